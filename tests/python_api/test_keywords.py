"""Keywords of Python and options of the command line: the same request, and the same errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import errors
from dibs.cli import main as cli
from dibs.client.daemon_process import Unresponsive
from dibs.python_api import keywords, submission
from dibs.submission import drafts, options

#: Future days. Fixed, because they are in test ids, which must be equal for all workers that collect them.
TOMORROW = datetime(2099, 1, 1, 12, 30)
WORDS = ["true", "--lr", "a b"]
NEXT_WEEK = TOMORROW + timedelta(days=7)

#: Keywords, and the equivalent arguments of `dibs add`.
EQUAL: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"gpus": 2}, ["-g", "2"]),
    ({"gpus": 0}, ["--gpus", "0"]),
    ({"gpus": "2:a100"}, ["-g", "2:a100"]),
    ({"gpus": None, "name": None}, []),
    ({"gpu_ids": [0, 2]}, ["--gpu-ids", "0,2"]),
    ({"gpu_ids": 1}, ["--gpu-ids", "1"]),
    ({"gpu_ids": "0,1"}, ["--gpu-ids", "0,1"]),
    ({"gpu_ids": ("GPU-8f", 0), "gpus": 2}, ["--gpu-ids", "GPU-8f,0", "-g", "2"]),
    ({"prefer": [1, 3]}, ["--prefer", "1,3"]),
    ({"gpu_type": "a100*", "visible": "index"}, ["--gpu-type", "a100*", "--visible", "index"]),
    ({"cpus": 8, "mem": "32G"}, ["--cpus", "8", "--mem", "32G"]),
    ({"name": "vit", "project": "p"}, ["-n", "vit", "-P", "p"]),
    ({"priority": 7}, ["--priority", "7"]),
    ({"priority": -3}, ["--priority", "-3"]),
    ({"priority": "high"}, ["--priority", "high"]),
    ({"after": 12}, ["--after", "12"]),
    ({"after": dibs.Job(12)}, ["-a", "12"]),
    ({"after": [dibs.Job(12), 13, "name:vit*"]}, ["-a", "12", "-a", "13", "-a", "name:vit*"]),
    ({"after_any": [1, 2], "after_end": "3-7"}, ["--after-any", "1", "--after-any", "2", "--after-end", "3-7"]),
    ({"time": "2h"}, ["-t", "2h"]),
    ({"time": timedelta(hours=1, minutes=30)}, ["-t", "90m"]),
    ({"time": timedelta(seconds=0.5)}, ["-t", "0.5s"]),
    ({"begin": TOMORROW}, ["--begin", TOMORROW.isoformat()]),
    ({"begin": TOMORROW.astimezone()}, ["--begin", TOMORROW.isoformat()]),
    ({"begin": NEXT_WEEK.isoformat()}, ["--begin", NEXT_WEEK.isoformat()]),
    ({"retries": 2}, ["--retries", "2"]),
    ({"retries": 2, "retry_on": ["fail", "timeout"]}, ["--retries", "2", "--retry-on", "fail,timeout"]),
    ({"retries": 2, "retry_on": ["fail", 144]}, ["--retries", "2", "--retry-on", "fail,144"]),
    ({"retries": 2, "retry_on": 3}, ["--retries", "2", "--retry-on", "3"]),
    ({"retries": 1, "retry_on": "oom"}, ["--retries", "1", "--retry-on", "oom"]),
    ({"time": "1h", "signal": "USR1@2m"}, ["-t", "1h", "--signal", "USR1@2m"]),
    ({"time": "1h", "signal": signal.SIGUSR2}, ["-t", "1h", "--signal", "USR2"]),
    ({"comment": "warm start"}, ["--comment", "warm start"]),
    ({"hold": True, "wait_tree": True}, ["--hold", "--wait-tree"]),
    ({"hold": False}, []),
    ({"metric": {"loss": "loss: ([0-9.]+)"}}, ["--metric", "loss=loss: ([0-9.]+)"]),
    ({"metric": "acc=acc ([0-9.]+)"}, ["--metric", "acc=acc ([0-9.]+)"]),
    ({"env": {"SEED": "1", "WORKERS": 4}}, ["-e", "SEED=1", "-e", "WORKERS=4"]),
    ({"env": {}}, []),
    ({"cwd": "/"}, ["-C", "/"]),
    ({"cwd": Path("/tmp")}, ["-C", "/tmp"]),
    ({"output": Path("{name}.log"), "stderr": "{id}.err"}, ["-o", "{name}.log", "--stderr", "{id}.err"]),
    ({"tags": ["a", "b"]}, ["--tag", "a", "--tag", "b"]),
    ({"tags": "a"}, ["--tag", "a"]),
    ({"notify": "mail me"}, ["--notify", "mail me"]),
    ({"array": "0-99%4"}, ["--array", "0-99%4"]),
    ({"array": range(0, 10, 2)}, ["--array", "0-8:2"]),
    ({"array": [1, 3, 7]}, ["--array", "1,3,7"]),
    ({"repeat": 3, "jobs": 2, "halt": 1}, ["--repeat", "3", "-j", "2", "--halt", "1"]),
]


def typed(words: list[str], command: list[str]) -> Any:
    """Return the request of a command line."""
    verb = cli.load("add")
    args = options.parse("add", verb.OPTIONS, [*words, *command], takes_command=True)
    return drafts.from_words(args, args.words, "add")


@pytest.mark.parametrize(("keywords", "words"), EQUAL, ids=[" ".join(words) or "none" for _, words in EQUAL])
def test_keywords_make_the_request_of_the_command_line(keywords: dict[str, Any], words: list[str]) -> None:
    _, body = submission.draft(WORDS, keywords)
    assert body == typed(words, WORDS)


@pytest.mark.parametrize("command", ["true", "echo a | wc", "python -c 'print(1)'", "X=1 true"])
def test_a_string_is_a_quoted_shell_command(command: str) -> None:
    assert submission.draft(command, {})[1] == typed([], [command])


def test_a_timedelta_as_begin_is_relative_to_now() -> None:
    _, body = submission.draft("true", {"begin": timedelta(hours=2)})
    defaults: Any = body["defaults"]
    begin = datetime.fromisoformat(defaults["begin_at"]) - datetime.now().astimezone()
    assert timedelta(hours=1) < begin <= timedelta(hours=2)


def test_arguments_may_be_paths() -> None:
    _, body = submission.draft([Path("/bin/true"), "x"], {})
    assert body["jobs"] == [{"argv": ["/bin/true", "x"]}]


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ("", {}, "expected a command, got none."),
    ("  ", {}, "expected a command, got none."),
    ([], {}, "expected a command, got none."),
    (None, {}, "expected a command, one string or a list of words, got None."),
    (12, {}, "expected a command, one string or a list of words, got 12."),
    (b"true", {}, "expected a command, one string or a list of words, got b'true'."),
    (["true", 1], {}, "expected the words of a command to be strings, got 1."),
    (["echo a"], {}, 'expected the words of a command, got one string in a list: ["echo a"]. Give it alone.'),
    (["nosuchprogram", "x"], {}, "command not found: nosuchprogram"),
    (["cd", "/tmp"], {}, "command not found: cd; it is built into the shell"),
    ("true\0", {}, "the command: cannot contain a NUL byte."),
    ("x" * 200_000, {}, "the command: expected at most 131,071 bytes, got 200,000."),
    ("true", {"gpu": 1}, "there is no option gpu. Did you mean gpus?"),
    ("true", {"timeout": 1}, "there is no option timeout. Did you mean time?"),
    ("true", {"zzz": 1}, "there is no option zzz."),
    ("true", {"dependency": 12}, "there is no option dependency. Did you mean after?"),
    ("true", {"gpus": "two"}, 'gpus expected a whole number from 0 up, got "two".'),
    ("true", {"gpus": -1}, 'gpus expected a whole number from 0 up, got "-1".'),
    ("true", {"gpus": 1.5}, "gpus expected a whole number from 0 up, got 1.5."),
    ("true", {"gpus": True}, "gpus expected a whole number from 0 up, got True."),
    ("true", {"gpus": [0, 1]}, "gpus expected a whole number from 0 up, got [0, 1]."),
    ("true", {"gpus": "0,1"}, 'gpus expected a count, got the list "0,1". Choose GPUs with gpu_ids 0,1.'),
    ("true", {"gpus": 3, "gpu_ids": [0, 1]}, "gpus 3 contradicts gpu_ids, which names 2. Leave gpus out."),
    ("true", {"gpu_ids": [0.5]}, "gpu_ids expected GPUs such as 0,2 or GPU-8f4a..., got 0.5."),
    ("true", {"gpu_ids": []}, 'gpu_ids expected GPUs such as 0,2 or GPU-8f4a..., got "".'),
    ("true", {"mem": 32}, 'mem expected a size such as 18G, 512M or 24GiB, got 32. Write "32G" or "32M".'),
    ("true", {"mem": "lots"}, 'mem expected a size such as 18G, 512M or 24GiB, got "lots"'),
    (
        "true",
        {"time": 7200},
        'time expected a time such as 90m, 2h or 1d12h, or a timedelta, got 7200. Write "7200s" or "7200m".',
    ),
    ("true", {"time": "7200"}, 'time expected a time such as 90m, 2h or 1d12h, got "7200": write 7200m or 7200s'),
    ("true", {"time": timedelta(0)}, "time expected a time above 0"),
    ("true", {"time": timedelta(-1)}, "time expected a time such as"),
    ("true", {"begin": 22}, "begin expected a time such as 22:00 or now+2h, got 22."),
    ("true", {"begin": datetime(2020, 1, 1)}, "begin expected a future time such as 22:00"),
    ("true", {"name": 7}, "name expected a text, got 7."),
    ("true", {"name": " "}, 'name expected a text, got " ".'),
    ("true", {"name": "\udcff"}, "name: expected UTF-8 text, got other bytes."),
    ("true", {"priority": "soon"}, 'priority expected a whole number, or low, normal, high or urgent, got "soon".'),
    ("true", {"after": "nobody"}, "after expected"),
    ("true", {"after": [None]}, "after expected a job such as 12, 3-7, @ or name:vit*, got None."),
    ("true", {"retry_on": "fail"}, "retry_on needs a number of retries. Add retries N."),
    (
        "true",
        {"retries": 1, "retry_on": ["never"]},
        "retry_on expected one or more of fail, lost, oom, timeout and exit codes",
    ),
    ("true", {"signal": "NOSUCH"}, 'signal expected a signal and a time such as USR1@2m, got "NOSUCH".'),
    ("true", {"signal": 10}, "signal expected a signal and a time such as USR1@2m, got 10."),
    ("true", {"env": "A=1"}, 'env expected a mapping such as {"SEED": "1"}, got "A=1".'),
    ("true", {"env": {"A": None}}, 'env expected names and texts such as {"SEED": "1"}, got {\'A\': None}.'),
    (
        "true",
        {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
        "env CUDA_VISIBLE_DEVICES: dibs sets it to the assigned GPUs.",
    ),
    ("true", {"env": {"A=B": "1"}}, "env expected NAME=VALUE"),
    ("true", {"cwd": "/no/such/folder"}, 'cwd expected a folder, but "/no/such/folder" does not exist.'),
    ("true", {"output": "%j.log"}, "output expected a path such as {name}-{id}.log, got Slurm's %j. Write {id}."),
    ("true", {"output": "{nonsense}"}, "output"),
    ("true", {"hold": "yes"}, 'hold expected True or False, got "yes".'),
    ("true", {"metric": {"loss": "no group"}}, "metric expected"),
    ("true", {"array": "x"}, "array expected"),
    ("true", {"array": [1], "repeat": 2}, "expected array or repeat, got both. Leave one of them out."),
    ("true", {"repeat": 0}, 'repeat expected a whole number from 1 to 100000, got "0".'),
    ("true", {"jobs": 2}, "jobs is for a batch"),
]


@pytest.mark.parametrize(("command", "options", "says"), WRONG)
def test_a_mistake_is_one_clear_error_and_starts_no_daemon(
    command: Any, options: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("DIBS_HOME", str(home))
    submit: Callable[..., object] = dibs.submit
    with pytest.raises(errors.UserError) as caught:
        submit(command, **options)
    line = str(caught.value)
    assert line.startswith(says)
    assert "\n" not in line
    assert len(line) < 400
    assert not {name for option in submission.OPTIONS for name in option.names} & {*line.split()}
    assert not home.exists()


def test_the_environment_is_captured_at_each_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    before = submission.draft("true", {})[1]
    monkeypatch.setenv("SOME_NEW_NAME", "x")
    assert submission.draft("true", {})[1] != before


def test_reading_the_umask_never_changes_it() -> None:
    """Another thread may create a file at that very moment."""
    mask = os.umask(0o027)
    try:
        defaults: Any = submission.draft("true", {})[1]["defaults"]
        assert defaults["umask"] == 0o027
    finally:
        os.umask(mask)


def test_an_error_that_knows_more_than_its_texts_keeps_that() -> None:
    with pytest.raises(Unresponsive, match="daemon restart --force") as caught, keywords.keyword_errors():
        raise Unresponsive(7, "T", was_asked=False)
    assert caught.value.pid == 7
