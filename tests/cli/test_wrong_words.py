"""Mistakes on the command line with a queue of jobs: one line that says what to do, the right code, no change.

These mistakes reach a daemon, or might; those found without one are in `test_option_parsing`. The whole database
is compared before and after.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_table_selectors import VERBS as WITH_SELECTORS

from bench import Bench
from keyboard import Typed, Typist


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A queue with a finished job and a held one, and files for mistakes."""
    bench = Bench(tmp_path_factory.mktemp("wrong"))
    for name, text in FILES.items():
        (bench.folder / name).write_bytes(text)
    (bench.folder / "folder").mkdir()
    bench.until(bench.add("true", gpus=0))
    bench.add("true", hold=True)
    yield bench
    bench.close()


FILES = {
    "bytes.txt": b"true\necho \xe9\n",
    "nul.txt": b"true\necho a\0b\n",
    "long.txt": b"echo " + b"x" * 200 * 1024,
    "empty.txt": b"# nothing but this\n\n",
    "bytes.sh": b"#!/bin/sh\n#DIBS -n \xff\ntrue\n",
    "nul.sh": b"#!/bin/sh\necho \0\n",
    "option.sh": b"#!/bin/sh\n#DIBS --gpsu 2\ntrue\n",
    "nodes.sh": b"#!/bin/sh\n#SBATCH --nodes=2\ntrue\n",
    "plain": b"text\n",
    "point.yaml": b"command: echo {lr}\nparameters: [\n",
    "bytes.yaml": b"command: echo \xff\n",
}


def content(bench: Bench) -> dict[str, object]:
    """Return everything a queue stores: every row of every table, the folders of jobs, leases and drains."""
    store = sqlite3.connect(f"file:{bench.home}/dibs.db?mode=ro", uri=True)
    try:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows: dict[str, object] = {name: store.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
    finally:
        store.close()
    files = sorted(str(path) for path in Path(bench.home, "jobs").rglob("*"))
    # When a user was last served is recorded for each lease, also for one that failed afterwards.
    leases = sorted(name for name in os.listdir(bench.leases) if not name.startswith(".dibs-served-"))
    return rows | {"files": files, "leases": leases}


def check_refused(typed: Typed, code: int, text: str) -> None:
    """Check that a mistake was answered by the exit code and one readable line."""
    assert (typed.code, typed.out) == (code, ""), typed
    assert typed.err.startswith("dibs: "), typed
    assert typed.err.count("\n") == 1, typed
    assert text in typed.err, typed
    assert len(typed.err) < 1000
    assert "Traceback" not in typed.err
    assert "this is a bug" not in typed.err


#: Arguments, exit code, and what the line must contain.
WRONG: list[tuple[list[str], int, str]] = [
    # -- verbs --
    (["stauts"], 2, 'there is no verb "stauts". Did you mean status?'),
    (["python", "train.py"], 2, 'there is no verb "python".'),
    (["2"], 2, "Did you mean dibs show 2?"),
    # -- bare numbers --
    (["add", "-t", "30", "true"], 2, "write 30m or 30s"),
    (["add", "--mem", "32", "true"], 2, "write 32G or 32M"),
    (["run", "-t", "30", "true"], 2, "write 30m or 30s"),
    (["map", "-t", "30", "echo", ":::", "a"], 2, "write 30m or 30s"),
    (["sweep", "-t", "30", "echo {x}", "-p", "x", "1"], 2, "write 30m or 30s"),
    (["lease", "-t", "8", "true"], 2, "write 8m or 8s"),
    (["wait", "--timeout", "5"], 2, "write 5m or 5s"),
    (["cancel", "--grace", "5", "2"], 2, "write 5m or 5s"),
    (["edit", "2", "--mem", "32"], 2, "write 32G or 32M"),
    (["status", "since:24"], 2, "write 24m or 24s"),
    # -- GPUs --
    (["add", "-g", "9", "true"], 69, "the job asks for 9 GPUs; this machine has 4. Use -g 4 or less."),
    (["run", "-g", "9", "true"], 69, "the job asks for 9 GPUs"),
    (["map", "-g", "9", "echo", ":::", "a"], 69, "the job asks for 9 GPUs"),
    (["sweep", "-g", "9", "echo {x}", "-p", "x", "1"], 69, "the job asks for 9 GPUs"),
    (["lease", "-g", "9", "true"], 69, "the lease asks for 9 GPUs"),
    (["pipe", "-g", "9"], 69, "each command asks for 9 GPUs"),
    (["edit", "2", "-g", "9"], 69, "job 2 asks for 9 GPUs"),
    (["add", "-g", "0,1", "true"], 2, "Choose GPUs with --gpu-ids 0,1."),
    (["run", "--gpus", "0,1", "true"], 2, "Choose GPUs with --gpu-ids 0,1."),
    (["lease", "--gpus=0,1", "true"], 2, "Choose GPUs with --gpu-ids 0,1."),
    (["pipe", "--gpus", "2"], 2, "--gpu-ids"),
    (["add", "--gpu-ids", "9", "true"], 2, 'there is no GPU "9" (this machine has: 0, 1, 2, 3). See `dibs gpus`.'),
    (["add", "--gpu-ids", "GPU-8f4a", "true"], 2, 'there is no GPU "GPU-8f4a"'),
    (["add", "--prefer", "9", "true"], 2, "--prefer expected an index or UUID of a GPU"),
    (["edit", "2", "--gpu-ids", "9"], 2, 'there is no GPU "9"'),
    (["lease", "--gpu-ids", "9", "true"], 2, 'there is no GPU "9"'),
    (["pipe", "--gpu-ids", "9"], 2, 'there is no GPU "9"'),
    (["add", "--gpu-type", "h100", "true"], 69, 'no GPU matches --gpu-type "h100". This machine has: Pretend GPU.'),
    (["add", "-g", "2:h100", "true"], 69, 'no GPU matches --gpu-type "h100"'),
    (["add", "--cpus", "900", "true"], 69, "the job asks for 900 CPUs; 4 may be used here."),
    (["add", "--mem", "900T", "true"], 69, "the job asks for 900T of memory; this machine has "),
    (["edit", "2", "--cpus", "900"], 69, "job 2 asks for 900 CPUs"),
    # -- files and folders --
    (["add", "-C", "nowhere", "true"], 2, "does not exist"),
    (["add", "-C", "plain", "true"], 2, "is not a folder"),
    (["edit", "2", "-C", "nowhere"], 2, "does not exist"),
    (["add", "--file", "nowhere"], 2, "--file cannot read nowhere: No such file or directory."),
    (["add", "--file", "folder"], 2, "--file cannot read folder: Is a directory."),
    (["add", "--file", "bytes.txt"], 2, "bytes.txt, line 2: expected UTF-8 text, got other bytes."),
    (["add", "--file", "nul.txt"], 2, "nul.txt, line 2: cannot contain a NUL byte."),
    (["add", "--file", "long.txt"], 2, "long.txt, line 1: expected at most 131,071 bytes"),
    (["add", "--file", "empty.txt"], 2, "expected one command per line, got none from empty.txt."),
    (["add", "--script", "nowhere.sh"], 2, "--script cannot read nowhere.sh: No such file or directory."),
    (["add", "--script", "folder"], 2, "--script cannot read folder: Is a directory."),
    (["add", "--script", "bytes.sh"], 2, "expected UTF-8 text, got other bytes."),
    (["add", "--script", "nul.sh"], 2, "nul.sh is a binary file, not a script"),
    (["add", "--script", "option.sh"], 2, "option.sh, line 2: add has no option --gpsu. Did you mean --gpus?"),
    (["add", "--script", "nodes.sh"], 2, "nodes.sh, line 2: --nodes=2 asks for 2 nodes"),
    (["run", "--script", "nowhere.sh"], 2, "--script cannot read nowhere.sh"),
    (["add", "plain"], 2, "dibs add --script plain"),
    (["add", "./plain", "x"], 2, "dibs add --script ./plain -- ARGUMENTS"),
    (["sweep", "nowhere.yaml"], 2, "nowhere.yaml"),
    (["sweep", "point.yaml"], 2, "point.yaml"),
    (["sweep", "bytes.yaml"], 2, "bytes.yaml: expected UTF-8"),
    # -- programs --
    (["add", "no-such-program", "x"], 2, 'Quote a command that needs a shell: dibs add "no-such-program ..."'),
    (["add", "cd", "x"], 2, "built into the shell"),
    (["add", "ll"], 2, "command not found: ll (shell aliases and functions do not work here)"),
    (["add", "true 1", "-g", "2"], 2, 'true 1; options come before the command: dibs add -g 2 "true 1"'),
    (["reserve", "-g", "1"], 2, "reserve expected --from TIME and --for DURATION. For example: --from"),
    (["reserve", "--from", "now+1h", "--for", "0s"], 2, "--for expected a time above 0"),
    (["reserve", "--from", "now+1h", "--for", "1h", "--name", "x" * 61], 2, "--name expected up to 60 characters"),
    (["reserve", "list", "3"], 2, 'reserve list takes no arguments, got "3".'),
    (["reserve", "cancel"], 2, "reserve cancel expected numbers such as 1 3, got nothing."),
    (["reserve", "cancel", "1,3"], 2, 'reserve cancel expected numbers such as 1 3, got "1,3".'),
    (["usage", "--since", "0d"], 2, "--since expected a time above 0"),
    (["lease", "-t", "0s", "true"], 2, "-t expected a time above 0"),
    (["lease", "--extend", "0s"], 2, "--extend expected a time above 0"),
    (["lease", "no-such-program"], 127, 'command not found: no-such-program.'),
    # -- one job where there are two; two where there is one --
    (["log", "all"], 2, "log expected one job, got 2: 1, 2."),
    (["follow", "all"], 2, "follow expected one job, got 2: 1, 2."),
    (["move", "all", "first"], 2, "move expected one job, got 2: 1, 2."),
    (["move", "2", "before", "2"], 2, "job 2 cannot be moved before itself."),
    (["move", "2", "before", "99"], 3, "there is no job 99"),
    (["move", "2", "before", "1"], 2, "job 1 is done"),
    (["log", "--attempt", "9", "1"], 3, "job 1 has no attempt 9; its newest is 1."),
    (["edit", "1", "--priority", "3"], 2, "job 1 is done: only waiting jobs can be changed. Nothing was changed."),
    (["edit", "2", "-a", "2"], 2, "job 2 would depend on itself."),
    (["edit", "all", "-n", "x"], 2, "Nothing was changed. Select waiting jobs with SELECTOR+queued."),
    (["clean", "all"], 2, "job 2 is held: only finished jobs can be deleted. Nothing was changed."),
    (["results", "nothing"], 3, 'there is no sweep "nothing". `dibs results` lists them.'),
    (["engines", "lab"], 2, 'there is no engine "lab". The engines are: local.'),
    (["add", "--engine", "lab", "true"], 2, '--engine expected one of local, got "lab". To add it:'),
    (["simulate", "missing.csv"], 2, "cannot read missing.csv: No such file or directory.\n"),
    (["lease", "--release"], 3, "nothing is leased for this shell."),
    (["lease", "--pid", "999999999"], 3, "which has exited."),
    # -- jobs after they were submitted, and GPUs --
    (["kill", "1"], 2, "kill expected a signal: -s USR1. To stop jobs gracefully: dibs cancel 1"),
    (["kill", "-s", "USR9", "1"], 2, '-s expected a signal such as USR1 or 10, got "USR9".'),
    (["kill", "-s", "0", "1"], 2, "expected a signal"),
    (["kill", "-s", "65", "1"], 2, "expected a signal"),
    (["kill", "-s", "USR1"], 2, "kill expected a job"),
    (["move"], 2, "move expected a job and first, last, before JOB or after JOB, got nothing."),
    (["move", "1"], 2, "move expected a job and first"),
    (["move", "1", "before"], 2, "move expected a job and first"),
    (["move", "1", "first", "2"], 2, "move expected a job and first"),
    (["move", "1", "up"], 2, "move expected a job and first"),
    (["edit"], 2, "edit expected a job"),
    (["edit", "1", "--unset", "tme"], 2, "--unset expected the name of an option"),
    (["edit", "1", "--unset", "time", "-t", "2h"], 2, "--unset time contradicts --time."),
    (["edit", "1", "-t", "30"], 2, "write 30m or 30s"),
    (["edit", "1", "-e", "CUDA_VISIBLE_DEVICES=1"], 2, "CUDA_VISIBLE_DEVICES"),
    (["gpus", "drain"], 2, "gpus drain expected a GPU by index or UUID, got nothing."),
    (["gpus", "drain", "9"], 3, 'there is no GPU "9" (this machine has: 0, 1, 2, 3).'),
    (["gpus", "drain", "0", "9"], 3, 'there is no GPU "9"'),
    (["gpus", "drian", "0"], 2, "gpus expected drain or undrain, or nothing"),
    (["gpus", "--reason", "x"], 2, "--reason is for `dibs gpus drain`."),
    (["gpus", "undrain", "0", "--reason", "x"], 2, "--reason is for `dibs gpus drain`."),
    (["daemon", "status", "--drain"], 2, "daemon status has no option --drain."),
    (["daemon", "stop", "--print"], 2, "daemon stop has no option --print."),
    (["daemon", "drain"], 2, "daemon expected start, stop, restart, status, install or uninstall"),
    # -- dependencies, begin times, batches --
    (["add", "-a", "99", "true"], 3, "there is no job 99"),
    (["add", "--after-any", "name:nothing", "true"], 3, "no job matches"),
    (["add", "--after-end", "failed", "true"], 3, "no job matches"),
    (["add", "--dependency", "afterok:99", "true"], 3, "there is no job 99"),
    (["add", "--after", "faild", "true"], 2, "--after expected a job such as 12"),
    (["add", "--after-any", "7-3", "true"], 2, "write 3-7"),
    (["add", "--after-end", "", "true"], 2, "--after-end expected a job"),
    (["add", "--dependency", "12", "true"], 2, '--dependency expected afterok:12 or afterany:12, got "12".'),
    (["add", "--dependency", "afternotok:12", "true"], 2, "--dependency expected afterok:12"),
    (["add", "--dependency", "afterok:", "true"], 2, "--dependency expected afterok:12"),
    (["add", "--dependency", "singleton", "true"], 2, "--dependency expected afterok:12"),
    (["add", "--begin", "yesterday", "true"], 2, "--begin expected a future time such as 22:00, fri 18:00, now+2h"),
    (["add", "--begin", "2020-01-01T08:00", "true"], 2, "which is in the past"),
    (["add", "--begin", "20 o clock", "true"], 2, "--begin expected a future time such as 22:00, fri 18:00, now+2h"),
    (["add", "--begin", "30", "true"], 2, "--begin expected a future time"),
    (["add", "--begin", "now+30", "true"], 2, "write 30m or 30s"),
    (["add", "--retries", "-1", "true"], 2, '--retries expected a whole number from 0 to 1000, got "-1".'),
    (["add", "--retries", "1001", "true"], 2, "--retries expected a whole number from 0 to 1000"),
    (["add", "--retries", "2", "--retry-on", "nonsense", "true"], 2, "--retry-on expected one or more of fail, lost"),
    (["add", "--retries", "2", "--retry-on", "fail,256", "true"], 2, "exit codes from 1 to 255"),
    (["add", "--retries", "2", "--retry-on", "0", "true"], 2, "exit codes from 1 to 255"),
    (["add", "--retries", "2", "--retry-on", "", "true"], 2, "--retry-on expected one or more of fail, lost"),
    (["add", "--retry-on", "oom", "true"], 2, "Add --retries N."),
    (["add", "--cpus", "two", "true"], 2, '--cpus expected a whole number from 0 to 65536, got "two".'),
    (["add", "--mem", "32", "true"], 2, '--mem expected a size such as 18G, 512M or 24GiB, got "32": write 32G or 32M'),
    (["add", "--mem", "lots", "true"], 2, "--mem expected a size"),
    (["add", "--mem", "-1G", "true"], 2, "--mem expected a size"),
    (["add", "-j", "0", "-"], 2, '-j expected a whole number from 1 up, got "0".'),
    (["add", "-j", "2", "true"], 2, "-j is for a batch (`dibs add -`, --file, --array or --repeat), this is one job."),
    (["add", "--halt", "0", "-"], 2, '--halt expected a whole number from 1 up, got "0".'),
    (["add", "--halt", "2", "true"], 2, "--halt is for a batch"),
    (["run", "-j", "2", "true"], 2, "run has no option -j."),
    (["hold"], 2, "hold expected a job such as 12"),
    (["hold", "99"], 3, "there is no job 99"),
    (["hold", "quued"], 2, "Did you mean queued?"),
    (["unhold"], 2, "unhold expected a job such as 12"),
    (["unhold", "99"], 3, "there is no job 99"),
    (["enqueue", "99"], 3, "there is no job 99"),
    (["pause", "12"], 3, "there is no job 12"),
    (["resume", "name:nobody+failed"], 3, "no job matches"),
    (["stash", "12"], 2, "Did you mean hold?"),
    (["unpause"], 2, "Did you mean resume?"),
    (["add", "--array", "9-1", "true"], 2, "--array expected numbers such as 0-99, 1,3,7, 0-10:2 or 0-99%4, got"),
    (["add", "--array", "0-9999999", "true"], 2, "at most 100,000 jobs"),
    (["add", "--array", "1-3", "--repeat", "2", "true"], 2, "expected --array or --repeat, got both."),
    (["add", "--array", "1-3", "--file", "/dev/null"], 2, "--array is for one command, not for one command per line."),
    (["add", "--repeat", "0", "true"], 2, '--repeat expected a whole number from 1 to 100000, got "0".'),
    (["add", "-o", "{index}", "--file", "/etc/hostname"], 2, "{index} is for --array and --repeat."),
    # -- values --
    (["add", "-o", "{foo}.log", "true"], 2, "-o expected placeholders among {id} {name} {project} {index} {attempt}"),
    (["add", "--stderr", "a{", "true"], 2, "--stderr expected placeholders among"),
    (["add", "-o", "%x-%j.out", "true"], 2, "got Slurm's %j. Write {id}."),
    (["add", "-t", "0s", "true"], 2, "-t expected a time above 0"),
    (["add", "--mem", "2000P", "true"], 2, "larger than any machine"),
    (["add", "-g", "5000", "true"], 2, "--gpus: expected a number up to 4096, got 5000."),
    (["add", "-n", "x" * 1001, "true"], 2, "--name: expected at most 1000 characters, got x"),
    (["add", "--signal", "USR1@2m", "true"], 2, "--signal needs a time limit or --evictable: it warns"),
    (["add", "--signal", "USR1@2m", "-t", "1m", "true"], 2, "--signal comes 2m00s before the time limit, which is"),
    (["add", "--signal", "FOO@2m", "-t", "1h", "true"], 2, "--signal expected a signal and a time such as USR1@2m"),
    (["add", "--signal", "KILL@2m", "-t", "1h", "true"], 2, "--signal expected a signal"),
    (["add", "--signal", "USR1@2", "-t", "1h", "true"], 2, "write 2m or 2s"),
    (["add", "--metric", "loss", "true"], 2, '--metric expected NAME=REGEX with one group for the number, got "loss".'),
    (["add", "--metric", "loss=(", "true"], 2, "is not a regular expression"),
    (["add", "--metric", "loss=a(b)(c)", "true"], 2, "has 2 groups"),
    (["add", "--wrap", "true", "true"], 2, '--wrap already contains the command, got another one: "true".'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "text"), WRONG, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_a_mistake_is_a_one_line_error_and_changes_nothing(
    used: Bench, typist: Typist, words: list[str], code: int, text: str
) -> None:
    before = content(used)
    check_refused(typist.type(used, *words, stdin="true\n"), code, text)
    assert content(used) == before


@pytest.mark.parametrize("name", WITH_SELECTORS)
def test_an_invalid_selector_is_refused_by_every_verb(used: Bench, typist: Typist, name: str) -> None:
    verb, before = WITH_SELECTORS[name], content(used)
    for word, code, text in [
        ("99", 3, "there is no job 99 (the newest is 2)."),
        ("queued+name:x", 3, "no job matches"),
        ("faild", 2, "Did you mean failed?"),
        ("nam:x", 2, "Did you mean name:x?"),
        ("7-3", 2, "write 3-7"),
        ("since:soon", 2, "expected a time"),
    ]:
        check_refused(typist.type(used, name, *verb.before, word, *verb.after), code, text)
    assert content(used) == before


# -- strange texts --

STRANGE = {"bytes that are no UTF-8": os.fsdecode(b"\xff"), "a NUL": "a\0b", "200 KiB": "x" * 200 * 1024}
#: Where a text may be; X is the text.
ANYWHERE = [
    "X", "-X", "status --X",
    "add X", "add echo X", "add -n X true", "add -P X true", "add --tag X true", "add -e A=X true", "add -e X=1 true",
    "add -C X true", "add --notify X true", "add --gpu-type X true", "add --gpu-ids X true", "add --prefer X true",
    "add -a X true", "add -a name:X true", "add -t X true", "add --mem X true", "add --begin X true",
    "add --array X true", "add --metric a=X true", "add --file X", "add --script X", "add --wrap X", "add -o X true",
    "run -g0 echo X", "run -g0 --name X true", "map X ::: a", "map true ::: X", "sweep echo{x}X -p x 1",
    "sweep echo{x} -p x X", "sweep X", "sweep echo{x} -p X 1", "sweep --name X echo{x} -p x 1", "results X",
    "show X", "show name:X", "status tag:X", "why name:X", "log name:X", "follow sweep:X", "wait name:X",
    "cancel name:X", "retry name:X", "hold name:X", "unhold name:X", "pause name:X", "resume name:X", "clean project:X",
    "kill -s X 1", "kill -X 1", "kill -s 9 name:X", "move 2 X", "move name:X first", "move 2 before name:X",
    "edit 2 --command X", "edit 2 -n X", "edit 2 --unset X", "edit name:X -n a",
    "gpus X", "gpus drain X", "gpus drain 0 --reason X", "gpus undrain X", "lease X", "lease --gpu-ids X",
    "lease --gpu-type X true", "pipe --gpu-ids X", "report X=1", "report X", "report loss=X", "help X", "config X",
    "completion X", "daemon X", "doctor X", "version X", "wait --timeout X",
]  # fmt: skip


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("line", ANYWHERE)
def test_a_strange_text_is_refused_in_every_argument(used: Bench, typist: Typist, line: str, kind: str) -> None:
    before = content(used)
    words = [word.replace("X", STRANGE[kind]) for word in line.split()]
    typed = typist.type(used, *words, environ={"DIBS_REPORT": str(used.folder / "report")})
    # 127: no such program; 69: no such GPU; 3: not found.
    assert typed.code in (2, 3, 69, 127), typed
    check_refused(typed, typed.code, "")
    assert content(used) == before


@pytest.mark.parametrize("line", ["add -n X true", "show name:X", "cancel X", "gpus drain X", "add echo X"])
def test_bytes_that_are_not_utf8_are_refused_by_the_script_too(used: Bench, line: str) -> None:
    """Through a real argument list, and the fast path."""
    before = content(used)
    done = used.cli(*(word.replace("X", STRANGE["bytes that are no UTF-8"]) for word in line.split()))
    check_refused(Typed(done.returncode, done.stdout, done.stderr), done.returncode, "")
    assert content(used) == before


def test_there_are_more_than_eighty_mistakes() -> None:
    assert len(WRONG) > 80
