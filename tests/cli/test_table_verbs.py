"""Every verb in each of its forms without jobs: what is on stdout when piped, with --json, and on a terminal; and every
documented exit code, produced by a real command.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.test_table_selectors import VERBS as WITH_SELECTORS
from tests.cli.test_table_selectors import bare

from bench import Bench, wait_for
from dibs.cli import main as cli
from dibs.runner import records
from dibs.submission import options
from keyboard import Typist
from terminal import CTRL_C, Terminal

ROOT = Path(__file__).resolve().parents[2]
LONG = ["sleep", "1000"]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A queue with a job of each kind, and names that are too long for any column."""
    bench = Bench(tmp_path_factory.mktemp("verbs"))
    (bench.folder / "jobs.txt").write_text("true\ntrue\n")
    (bench.folder / "jobs.esy").write_text("first;;out.txt;;true;;;second;;other.txt;;true;;;")
    bench.until(bench.add("exit 3", gpus=0))
    bench.until(bench.add(LONG, gpus=0, name="long " * 40), "started")
    bench.add("true " + "x" * 300, name="漢字" * 30, gpus=4, hold=True)
    # Results need one, and the form that submits it may be tried by another worker.
    made = bench.cli("sweep", "--hold", "--name", "s", "-p", "x", "1", "2", "--", "echo", "{x}")
    assert made.returncode == 0, made.stderr
    yield bench
    bench.close()


@dataclass(frozen=True)
class Form:
    """One form of a verb: its arguments, a pattern for each line on stdout when piped, and its exit code."""

    words: str
    #: None: stdout is not read line by line.
    line: str | None
    code: int = 0
    has_json: bool = True
    #: Its lines are to be copied or read by a program, so they are not wrapped.
    is_whole: bool = False
    stdin: str = ""


ROW = r"( *ID  NAME .*| *\d+  .*)"
FACT = r"(\d+ jobs? would be submitted; nothing was submitted\.|[A-Za-z ]+  .*|  .*)"
FORMS = [
    Form("", ROW),
    Form("status", ROW),
    Form("status -q", r"\d+", has_json=False),
    Form("add -g0 true", r"\d+"),
    Form("add --hold --file jobs.txt", r"\d+"),
    Form("add --hold --array 0-2 true", r"\d+"),
    Form("add --dry-run -g4 true", FACT, is_whole=True),
    Form("add --dry-run --array 0-20 true", FACT, is_whole=True),
    Form("run -g0 echo out", "out", has_json=False),
    Form("run --dry-run -g0 true", FACT, has_json=False, is_whole=True),
    Form("pipe", "out", has_json=False, stdin="echo out\necho out\n"),
    Form("add --hold -", r"\d+", stdin="true\ntrue\n"),
    Form("map --hold true {} ::: a b", r"\d+"),
    Form("map --dry-run true {} ::: a b", FACT, is_whole=True),
    Form("sweep --hold --name s -p x 1 2 -- echo {x}", r"2 points: .*"),
    Form("sweep --print --name s -p x 1 2 -- echo {x}", r"echo [12]", has_json=False),
    Form("sweep --dry-run --name s -p x 1 2 -- echo {x}", r"(2 points of s, .*|  echo [12])", is_whole=True),
    Form("results s", r"(JOB  X  STATE.*| *\d+  [12]  .*)"),
    Form("results s -q", r"\d+", has_json=False),
    Form("results", r"(NAME  PROJECT .*|s  .*)"),
    Form("wait --timeout 0s", r"", 124),
    Form("pause", r"queue paused; .*"),
    Form("resume", r"queue resumed"),
    Form("clean --dry-run", r"would delete \d+ finished jobs? and \S+ of files"),
    Form("group set night -j 2", r"group night: .*"),
    Form("group", r"(GROUP|default|night) .*"),
    Form("group set -q night -j 2", "night", has_json=False),
    Form("group -q", r"(default|night)", has_json=False),
    Form("gpus", r"( *GPU  NAME .*| *\d  Pretend .*)"),
    Form("gpus -q", r"FAKE-\d", has_json=False),
    Form("gpus drain -q 2", "FAKE-2", has_json=False),
    Form("gpus drain 2 3 --reason loud", r"GPU \d: .*loud.*; running jobs continue"),
    Form("gpus undrain 2 3", r"GPU \d: (available again|was not drained)"),
    Form("lease echo out", "out", has_json=False),
    Form("daemon status", r"(running \(pid .*|socket .*)", is_whole=True),
    Form("daemon start", r"already running \(pid \d+\)", has_json=False),
    Form("config", r"(NAME|[a-z_]+)  .*"),
    Form("config grace", "30s"),
    Form("web", r"http://127\.0\.0\.1:\d+/#code=\S+", is_whole=True),
    Form("web --stop", r"closed; .*"),
    Form("import --dry-run jobs.esy", FACT, is_whole=True),
    Form("completion bash", None, has_json=False, is_whole=True),
    Form("version", r"dibs \S+"),
    Form("help", None, has_json=False),
    Form("help selectors", None, has_json=False),
    Form("cancel --help", None, has_json=False),
    Form("report loss=0.5", r"", has_json=False),
]  # fmt: skip
#: Verbs whose answers depend on this machine, a cluster or a file: see the test named like each.
ELSEWHERE = {"doctor", "machine", "simulate", "engines", "sbatch-script", "reserve", "usage", "top"}
#: Verbs without --json: they print what somebody else wrote, or a page of text, or nothing.
WITHOUT_JSON = {"run", "pipe", "log", "follow", "lease", "report", "completion", "help", "top"}


def test_every_verb_is_in_a_table_and_those_that_print_have_json() -> None:
    forms = {form.words.split()[0] for form in FORMS if form.words}
    assert forms | {*WITH_SELECTORS} | ELSEWHERE == {*cli.VERBS}
    assert {name for name in cli.VERBS if options.JSON not in cli.load(name).OPTIONS} == WITHOUT_JSON


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.words or "dibs")
def test_a_form_prints_data_on_stdout_and_fits_the_terminal(used: Bench, typist: Typist, form: Form) -> None:
    words, more = form.words.split(), {"DIBS_REPORT": str(used.folder / "report")}
    piped = typist.type(used, *words, stdin=form.stdin, environ=more)
    assert piped.code == form.code, piped
    assert "\x1b" not in piped.out + piped.err
    # A sweep prints its name, because it may have chosen it.
    assert all(line.startswith(("dibs: ", "sweep s; ")) for line in piped.err.splitlines())
    if form.line is not None:
        assert not [line for line in piped.out.splitlines() if not re.fullmatch(form.line, line)], piped.out
        assert bool(piped.out) is bool(form.line)
    for columns in (80, 200):
        shown = typist.type(used, *words, columns=columns, stdin=form.stdin, environ=more)
        assert shown.code == form.code, shown
        for line in bare(shown.out).splitlines():
            assert "\x1b" not in line
            assert form.is_whole or cell_len(line) <= columns, line
    if form.has_json:
        verb, *rest = words or ["status"]
        for columns in (None, 80):
            asked = typist.type(used, verb, "--json", *rest, columns=columns, stdin=form.stdin, environ=more)
            assert asked.code == form.code, asked
            assert "\x1b" not in asked.out
            assert isinstance(json.loads(asked.out), dict)


# -- exit codes --


def lost(bench: Bench) -> int:
    """Return a job whose runner and command were killed, so that its outcome is unknown."""
    job_id = bench.add(LONG, gpus=0)
    pid = bench.until(job_id, "started")["pid"]
    assert records.read_running(f"{bench.home}/jobs/{job_id}/1", 1) is not None
    runner = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(runner), 9)
    os.kill(pid, 9)
    wait_for(lambda: bench.job(job_id)["state"], lambda state: state == "lost")
    return job_id


def ctrl_c(bench: Bench, *words: str) -> int:
    """Return the exit code of a command that was interrupted while it waited."""
    with Terminal(bench, *words) as person:
        # A waiting job is reported, and a bar is drawn.
        person.until("waiting" if words[0] == "run" else "finished")
        person.type(CTRL_C)
        return person.end()[0]


def of_a_stranger(bench: Bench) -> int:
    """Return the exit code of a lease for another user's process: for root a user's, for a user init."""
    if os.geteuid() != 0:
        return bench.cli("lease", "--pid", "1").returncode
    with subprocess.Popen(LONG, user=65534) as process:
        code = bench.cli("lease", "--pid", str(process.pid)).returncode
        process.kill()
    return code


def types(*words: str, **environ: str) -> Callable[[Bench], int]:
    """Return a function that runs these arguments, with variables in which {} is the folder of the bench."""

    def typed(bench: Bench) -> int:
        more = {name: value.format(bench.folder) for name, value in environ.items()}
        return bench.cli(*words, environ=more).returncode

    return typed


#: An exit code, what to do for it, and its reason.
CODES: list[tuple[int, str, Callable[[Bench], int]]] = [
    (0, "it worked", types("add", "-g0", "true")),
    (0, "all are done", lambda bench: bench.cli("wait", str(bench.add("true", gpus=0))).returncode),
    (1, "a job did not succeed", types("wait", "1")),
    (2, "wrong usage", types("add", "-t", "30", "true")),
    (2, "not in its state", types("move", "1", "first")),
    (3, "no such job", types("show", "999")),
    (3, "no such GPU", types("gpus", "drain", "9")),
    (4, "somebody else's", of_a_stranger),
    (5, "no daemon can be started", types("status", DIBS_HOME="{}/home-2", DIBS_LEASE_DIR="/no/such/folder")),
    (5, "no daemon runs", types("daemon", "status", DIBS_HOME="{}/home-3")),
    (6, "only a held job remains", lambda bench: bench.cli("wait", str(bench.add("true", hold=True))).returncode),
    (69, "never here", types("add", "-g", "9", "true")),
    (75, "a job cannot start now", types("run", "--no-wait", "-g", "4", "true")),
    (75, "GPUs cannot be leased now", types("lease", "--no-wait", "true")),
    (124, "the time to wait is over", types("wait", "--timeout", "0s", "2")),
    (124, "its time limit", types("run", "-g0", "-t", "0.01s", *LONG)),
    (124, "the time of a lease", types("lease", "-t", "0.01s", DIBS_LEASE_DIR="{}")),
    (125, "lost", lambda bench: bench.cli("follow", str(lost(bench))).returncode),
    (126, "could not be started", types("run", "-g0", "/etc/passwd ''")),
    (127, "was not found", types("run", "-g0", "no-such-program --at all")),
    (127, "no program to lease for", types("lease", "no-such-program")),
    (128 + 10, "ended by a signal", types("run", "-g0", "kill -USR1 $$")),
    (130, "cancelled before it started", lambda bench: bench.cli("follow", cancelled(bench)).returncode),
    (130, "Ctrl-C in front of a job that waits", lambda bench: ctrl_c(bench, "run", "true")),
    (130, "Ctrl-C while waiting", lambda bench: ctrl_c(bench, "wait", "2")),
]  # fmt: skip


def cancelled(bench: Bench) -> str:
    job_id = bench.add("true", hold=True)
    bench.cancel(job_id)
    return str(job_id)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A queue whose first job failed and whose second has all GPUs."""
    bench = Bench(tmp_path_factory.mktemp("codes"))
    bench.until(bench.add("exit 3", gpus=0))
    bench.until(bench.add(LONG, gpus=4), "started")
    yield bench
    bench.close()


@pytest.mark.parametrize(("code", "why", "do"), CODES, ids=lambda value: str(value) if isinstance(value, int) else "")
def test_every_documented_exit_code_is_returned(busy: Bench, code: int, why: str, do: Callable[[Bench], int]) -> None:
    assert do(busy) == code, why


def test_every_documented_exit_code_is_in_the_table() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    documented = {
        int(code)
        for row in re.findall(r"^\| (?:`\w+` \| )?([\d, ]+) \|", text, re.MULTILINE)
        for code in row.split(",")
    }
    assert "| 128 + n |" in text
    assert documented | {128 + 10} == {code for code, _, _ in CODES}
