"""Parsing of the command line: options, arguments, and every kind of mistake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.cli import main as cli
from dibs.client import queries
from dibs.errors import UserError
from dibs.submission import drafts, job_options, options
from dibs.submission.options import Args


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder that does not exist; a refused command must not create it."""
    monkeypatch.setenv("DIBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DIBS_LEASE_DIR", str(tmp_path))
    monkeypatch.setenv("DIBS_DEVICES", "fake:4")
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "home"
    assert not (tmp_path / "home").exists(), "a daemon was started, or something was queued"


def parse(verb: str, *words: str) -> Args:
    """Parse the arguments of a verb with its table."""
    module = cli.load(verb)
    return options.parse(verb, module.OPTIONS, words, takes_command=cli.takes_command(module))


@pytest.mark.parametrize(
    "words",
    [
        ("-g", "2", "python"),
        ("-g2", "python"),
        ("-g=2", "python"),
        ("--gpus", "2", "python"),
        ("--gpus=2", "python"),
        ("-g", "4", "-g", "2", "python"),
        ("-g2", "--", "python"),
    ],
)
def test_an_option_and_its_value_may_be_written_in_every_usual_way(words: tuple[str, ...]) -> None:
    args = parse("add", *words)
    assert args.get(job_options.GPUS) == job_options.Count(2)
    assert args.words == ("python",)


def test_options_end_at_the_first_word_of_the_command() -> None:
    args = parse("add", "-g", "1", "python", "-g", "7", "--json", "--", "x")
    assert args.words == ("python", "-g", "7", "--json", "--", "x")
    assert not args.has(options.JSON)


def test_after_two_dashes_everything_is_the_command() -> None:
    assert parse("add", "-g1", "--", "--weird", "-g").words == ("--weird", "-g")


def test_options_and_selectors_may_mix() -> None:
    args = parse("status", "12", "--json", "failed", "-q")
    assert args.words == ("12", "failed")
    assert args.has(options.JSON)
    assert args.has(options.QUIET)


def test_short_flags_may_be_joined() -> None:
    from dibs.cli.verbs import log

    args = parse("log", "-fn20", "12")
    assert args.has(log.FOLLOW)
    assert args.get(log.LINES) == 20


def test_repeated_options_keep_their_order() -> None:
    args = parse("add", "-e", "A=1", "--env=B=2=3", "-eC=", "--tag", "x", "--tag", "y", "true")
    assert args.all(job_options.ENV) == (("A", "1"), ("B", "2=3"), ("C", ""))
    assert args.all(job_options.TAG) == ("x", "y")


@pytest.mark.parametrize("habit", ["-n", "--name", "-J", "--job-name", "--label"])
def test_option_names_of_other_tools_are_accepted(habit: str) -> None:
    assert parse("add", habit, "vit", "true").get(job_options.NAME) == "vit"


@pytest.mark.parametrize(
    ("text", "number"), [("5", 5), ("-5", -5), ("low", -10), ("normal", 0), ("high", 10), ("urgent", 100)]
)
def test_a_priority_is_a_number_or_a_word(text: str, number: int) -> None:
    assert parse("add", "--priority", text, "true").get(job_options.PRIORITY) == number


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["12"], ["12"]),
        (["3", "1", "2", "2", "failed", "7"], ["failed", "1-3,7"]),
        (["1-3", "@", "4"], ["1-3", "@", "4"]),
        ([str(n) for n in range(1, 5001)], ["1-5000"]),
        ([], []),
    ],
)
def test_consecutive_ids_are_sent_as_ranges(words: list[str], expected: list[str]) -> None:
    assert queries.compact(words) == expected


def test_a_gpu_count_may_include_a_type() -> None:
    assert parse("add", "-g", "2:a100", "true").get(job_options.GPUS) == job_options.Count(2, "a100")


def test_leading_assignments_become_variables() -> None:
    assert drafts.split_variables(["A=1", "B=x y", "prog", "C=3"]) == (
        [("A", "1"), ("B", "x y")],
        ("prog", "C=3"),
    )
    assert drafts.split_variables(["A=1 prog x"]) == ([], ("A=1 prog x",))
    assert drafts.split_variables(["--a=1", "x"]) == ([], ("--a=1", "x"))


def test_every_verb_has_help_that_names_all_its_options(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    for name in cli.VERBS:
        assert cli.execute([name, "--help"]) == 0
        page = capsys.readouterr().out
        if name != "help":
            assert cli.execute(["help", name]) == 0
            assert capsys.readouterr().out == page
            for option in cli.load(name).OPTIONS:
                assert option.names[-1] in page
        assert max(len(line) for line in page.splitlines()) <= 80


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        assert cli.execute(words) == 0
        page = capsys.readouterr().out
        assert all(f"\n  {name} " in page for name in cli.VERBS)


def test_no_two_options_of_a_verb_share_a_name() -> None:
    for name in cli.VERBS:
        table = (*cli.load(name).OPTIONS, *options.COMMON)
        names = [each for option in table for each in (*option.names, *option.habits)]
        assert len(names) == len(set(names)), name


#: Arguments, exit code, and what the line must contain.
WRONG = [
    (["stauts"], 2, 'there is no verb "stauts". Did you mean status?'),
    (["ls"], 2, "Did you mean status?"),
    (["logs", "12"], 2, "Did you mean log?"),
    (["python", "train.py"], 2, 'there is no verb "python". Did you mean dibs add python train.py?'),
    (["train.py", "--lr", "a b"], 2, "Did you mean dibs add python train.py --lr 'a b'?"),
    (["torchrun", "train.py"], 2, "Did you mean dibs add torchrun train.py?"),
    (["attach", "12"], 2, "Did you mean follow?"),
    (["history"], 2, "Did you mean status all?"),
    (["delete", "12"], 2, "Did you mean cancel, or clean for finished jobs?"),
    (["htop"], 2, "Did you mean top?"),
    (["12"], 2, "Did you mean dibs show 12?"),
    ([""], 2, 'there is no verb "".'),
    (["--jsn"], 2, "status has no option --jsn. Did you mean --json?"),
    (["--color", "pink", "status"], 2, '--color expected auto, always or never, got "pink".'),
    (["--color"], 2, "--color expected auto, always or never after it, got nothing."),
    (["help", "stauts"], 2, "Did you mean status?"),
    (["help", "add", "run"], 2, "help expected one verb"),
    (["add"], 2, "expected a command, got none."),
    (["add", ""], 2, "expected a command"),
    (["add", "  "], 2, "expected a command"),
    (["add", "A=1"], 2, "expected a command after A=1, got none."),
    (["add", "--gpsu", "1", "true"], 2, "add has no option --gpsu. Did you mean --gpus?"),
    (["add", "-x", "true"], 2, "add has no option -x. See `dibs add --help`."),
    (["add", "-name", "x", "true"], 2, "add has no option -name. Did you mean --name?"),
    (["add", "--gpus"], 2, "--gpus expected a whole number from 0 up after it, got nothing."),
    (["add", "--gpus", "two", "true"], 2, '--gpus expected a whole number from 0 up, got "two".'),
    (["add", "-g", "-1", "true"], 2, '-g expected a whole number from 0 up, got "-1".'),
    (["add", "-g", "1.5", "true"], 2, '-g expected a whole number from 0 up, got "1.5".'),
    (["add", "-g", "", "true"], 2, '-g expected a whole number from 0 up, got "".'),
    (["add", "-g", "99999999999999999999", "true"], 2, "-g expected a whole number from 0 up"),
    (["add", "-g", "2:", "true"], 2, "-g expected a whole number from 0 up"),
    (["add", "-g", "0,1", "true"], 2, "--gpu-ids 0,1"),
    (["add", "-g", "--json", "true"], 2, "-g expected a whole number from 0 up, got the option --json."),
    (["add", "-n", "--gpus=2", "true"], 2, "-n expected a text, got the option --gpus=2."),
    (["add", "-n", "", "true"], 2, '-n expected a text, got "".'),
    (["add", "--gpu-ids", "0,,1", "true"], 2, "--gpu-ids expected GPUs such as 0,2"),
    (["add", "-g", "3", "--gpu-ids", "0,1", "true"], 2, "--gpus 3 contradicts --gpu-ids, which names 2."),
    (["add", "-g", "1:a100", "--gpu-type", "h100", "true"], 2, "Leave one of them out."),
    (["add", "--priority", "hgih", "true"], 2, "--priority expected a whole number, or low, normal, high or urgent"),
    (["add", "-t", "30", "true"], 2, '-t expected a time such as 90m, 2h or 1d12h, got "30": write 30m or 30s'),
    (["add", "-t", "soon", "true"], 2, '-t expected a time such as 90m, 2h or 1d12h (or HH:MM:SS), got "soon"'),
    (["add", "-e", "NAME", "true"], 2, '-e expected NAME=VALUE, got "NAME".'),
    (["add", "-e", "CUDA_VISIBLE_DEVICES=0", "true"], 2, "dibs sets it"),
    (["add", "CUDA_VISIBLE_DEVICES=0", "true"], 2, "dibs sets it"),
    (["add", "-e", "DIBS_JOB_ID=0", "true"], 2, "set by dibs itself"),
    (["add", "-C", "nowhere", "true"], 2, "does not exist"),
    (["add", "-C", "/etc/passwd", "true"], 2, "is not a folder"),
    (["add", "--visible", "both", "true"], 2, '--visible expected uuid or index, got "both".'),
    (["add", "--json=yes", "true"], 2, '--json takes no value, got "yes".'),
    (["add", "no-such-program", "x"], 2, 'Quote a command that needs a shell: dibs add "no-such-program ..."'),
    (["add", "cd", "x"], 2, "command not found: cd"),
    (["add", "./missing.sh"], 2, "command not found: ./missing.sh"),
    (["add", "A=1", "-g", "2", "true"], 2, "options come before the command"),
    (["add", "-e", "PATH=/nowhere", "true"], 2, "command not found: true"),
    (["add", "echo", "x" * 200_000], 2, "into a script"),
    (["add", "echo", os.fsdecode(b"\xff")], 2, "the command: expected UTF-8 text, got other bytes."),
    (["add", "-n", os.fsdecode(b"\xff"), "true"], 2, "--name: expected UTF-8 text"),
    (["add", "-e", os.fsdecode(b"A=\xff"), "true"], 2, "--env: expected UTF-8 text"),
    (["add", "echo", "a\0b"], 2, "cannot contain a NUL byte"),
    (["add", "--file", "nowhere"], 2, "--file cannot read nowhere: No such file or directory."),
    (["add", "--file", "/dev/null"], 2, "expected one command per line, got none from /dev/null."),
    (["add", "--file", "x", "true"], 2, '--file takes no command, got "true".'),
    (["run"], 2, "expected a command, got none."),
    (["run", "--json", "true"], 2, "run has no option --json."),
    (["run", "nope", "x"], 2, 'dibs run "nope ..."'),
    (["show"], 2, "show expected a job such as 12"),
    (["show", "faild"], 2, "Did you mean failed?"),
    (["why"], 2, "why expected a job such as 12"),
    (["log"], 2, "log expected a job such as 12"),
    (["log", "-n", "many", "1"], 2, '-n expected a whole number from 0 up, got "many".'),
    (["log", "--attempt", "0", "1"], 2, '--attempt expected a whole number from 1 up, got "0".'),
    (["wait", "--timeout", "5"], 2, "write 5m or 5s"),
    (["wait", "7-3"], 2, "write 3-7"),
    (["cancel"], 2, "cancel expected a job"),
    (["cancel", "--grace", "1", "1"], 2, "--grace expected a time"),
    (["cancel", "-s", "1"], 2, "cancel has no option -s."),
    (["retry"], 2, "retry expected a job"),
    (["gpus", "0"], 2, 'gpus expected drain or undrain, or nothing, got "0".'),
    (["version", "1"], 2, 'version takes no arguments, got "1".'),
    (["daemon"], 2, "daemon expected start, stop, restart, status, install or uninstall, got nothing."),
    (["daemon", "strat"], 2, 'got "strat"'),
    (["daemon", "stop", "--foreground"], 2, "daemon stop has no option --foreground."),
    (["daemon", "start", "--json"], 2, "daemon start has no option --json."),
    (["lease", "-g", "0"], 2, "lease expected at least one GPU"),
    (["lease", "-g", "5"], 69, "the lease asks for 5 GPUs; this machine has 4."),
    (["lease", "--gpu-ids", "9"], 2, "--gpu-ids expected an index or UUID of a GPU"),
    (["lease", "--gpu-type", "h100"], 69, "no GPU matches"),
    (["lease", "no-such-program"], 127, "command not found: no-such-program."),
]


@pytest.mark.parametrize(("words", "code", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_a_mistake_is_a_one_line_error_and_changes_nothing(
    words: list[str], code: int, text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.execute(words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("dibs: ")
    assert shown.err.count("\n") == 1
    assert text in shown.err


def test_escape_sequences_in_a_mistake_do_not_reach_the_terminal(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.execute(["\x1b[2Jls\n\u202e"]) == 2
    assert capsys.readouterr().err.startswith('dibs: there is no verb "\\e[2Jls\\n\\u202e".')


@pytest.mark.parametrize("words", [["--debug", "gpus", "x"], ["gpus", "--debug", "x"]])
def test_debug_prints_the_traceback(words: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(words) == 2
    assert "Traceback" in capsys.readouterr().err


def test_debug_after_the_command_belongs_to_the_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["add", "nope", "--debug"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_deleted_working_folder_is_an_error(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.execute(["add", "true"]) == 2
    assert "no longer exists" in capsys.readouterr().err


def test_separate_words_are_an_argument_list_and_a_quoted_command_is_for_the_shell(home: Path) -> None:
    def job(*words: str) -> object:
        jobs = drafts.from_words(parse("add", *words), words, "add")["jobs"]
        assert isinstance(jobs, list)
        return jobs[0]

    assert job("true") == {"argv": ["true"]}
    assert job("echo", "a b", "$HOME") == {"argv": ["echo", "a b", "$HOME"]}
    assert job("echo hi") == {"command": "echo hi"}
    assert job("a|b") == {"command": "a|b"}
    assert job("no such thing") == {"command": "no such thing"}


def test_very_many_lines_are_sent_as_one_text(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MOST_LISTED", 2)
    body = drafts.from_lines(Args(), [b"echo 1\n", b"# 2\n", b"echo 3\n", b"echo 4\n"], "stdin")
    assert (body["lines"], "commands" in body) == ("echo 1\necho 3\necho 4", False)


def test_lines_become_jobs_and_comments_do_not(home: Path) -> None:
    lines = [b"echo 1\r\n", b"\n", b"  # not this\n", b"  echo 2 # but this", "echo ü".encode()]
    body = drafts.from_lines(Args(), lines, "stdin")
    assert body["commands"] == ["echo 1", "echo 2 # but this", "echo ü"]
    with pytest.raises(UserError, match="stdin, line 2: expected UTF-8"):
        drafts.from_lines(Args(), [b"true\n", b"\xff\n"], "stdin")


def test_without_an_option_about_gpus_the_daemon_decides(home: Path) -> None:
    def defaults(*words: str) -> drafts.Body:
        return drafts.common(parse("add", *words, "true"), [])

    assert defaults()["gpus"] is None
    assert defaults("-g", "0")["gpus"] == 0
    assert defaults("-g", "2:a*")["gpu_type"] == "a*"
    chosen = defaults("--gpu-ids", "0, GPU-1", "-g2")
    assert (chosen["gpus"], chosen["gpu_ids"]) == (2, ["0", "GPU-1"])
    assert defaults("--gpu-ids", "0,1")["gpus"] is None
