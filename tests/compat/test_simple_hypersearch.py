"""`simple_hypersearch`: the recorded behaviour of the old tool, to the byte, without its bugs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from simple_gpu_scheduler import hypersearch
from simple_gpu_scheduler.hypersearch import HyperparameterSearch

CASES = json.loads((Path(__file__).parent.parent / "data" / "simple_hypersearch.json").read_text())["cases"]
#: The usage and errors of argparse differ a little between versions; the cases are from this one.
IS_SAME_ARGPARSE = sys.version_info[:2] == (3, 11)


def run(*argv: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Run the console script, or a shell command that finds it."""
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "LANG": "C.UTF-8", "COLUMNS": "80"}
    words = ["bash", "-c", shell] if shell else list(argv)
    return subprocess.run(words, capture_output=True, text=True, env=environ, timeout=60)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_behaves_as_recorded_from_the_old_tool(case: dict[str, Any]) -> None:
    done = run(*case["argv"])
    assert (done.stdout, done.returncode) == (case["stdout"], case["code"])
    if case["is_last_line"]:
        assert done.stderr.splitlines()[-1] == case["stderr"]
    elif case["code"] != 2 or IS_SAME_ARGPARSE:
        assert done.stderr == case["stderr"]
    else:
        assert "simple_hypersearch: error: " in done.stderr


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [(">&-", 0, ""), (">/dev/full", 1, "simple_hypersearch: cannot write the commands: No space left on device\n")],
)
def test_an_output_that_takes_nothing_gives_no_traceback(output: str, code: int, said: str) -> None:
    done = run(shell=f"simple_hypersearch 'c {{a}}' -p a 1 2 {output}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_a_large_grid_has_the_old_order() -> None:
    """Ten thousand points with seed 1: the digest of what the old tool printed."""
    values = " ".join(map(str, range(100)))
    done = run(shell=f"simple_hypersearch 'c {{a}} {{b}}' --seed 1 -p a {values} -p b {values}")
    assert hashlib.md5(done.stdout.encode()).hexdigest() == "6da8027d7b2b26c75e5cecff0b9b5423"


def test_an_unknown_name_is_a_one_line_error_that_lists_the_names() -> None:
    done = run("simple_hypersearch", "c {zzz}", "-p", "a", "1", "2")
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == "simple_hypersearch: unknown {zzz} in the pattern; there is {a}\n"


def test_if_a_later_value_fails_nothing_is_printed() -> None:
    done = run("simple_hypersearch", "c {a[3]}", "--sampling-mode", "grid", "-p", "a", "long enough", "x")
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr == "simple_hypersearch: the pattern does not fit its values: string index out of range\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "error: expected at least one parameter, such as -p lr 0.01 0.001\n"),
        (("-p", "a"), "error: argument -p/--parameter: expected values for a, got none\n"),
    ],
)
def test_a_search_without_values_is_refused(words: tuple[str, ...], complaint: str) -> None:
    done = run("simple_hypersearch", "c {a}", *words)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.endswith(complaint)


def test_a_reader_that_closes_the_pipe_ends_it_quietly() -> None:
    done = run(
        shell="simple_hypersearch 'c {a}' --sampling-mode grid -p a $(seq 1 50000) | head -n 1; echo ${PIPESTATUS[0]}"
    )
    assert done.stdout == "c 1\n141\n"
    assert done.stderr == ""


def test_it_runs_as_a_module_too() -> None:
    done = run(
        sys.executable, "-m", "simple_gpu_scheduler.hypersearch", "c {a}", "--sampling-mode", "grid", "-p", "a", "1"
    )
    assert done.stdout == "c 1\n"


def test_lines_can_be_counted_unless_a_parameter_has_that_name() -> None:
    assert HyperparameterSearch("{job_index}: {a}", "grid", None, {"a": ["x", "y"]}).get_commands() == ["0: x", "1: y"]
    assert HyperparameterSearch("{job_index}", "grid", None, {"job_index": ["x"]}).get_commands() == ["x"]


def test_from_python_the_order_depends_on_the_global_seed() -> None:
    random.seed(3)
    expected = list(range(20))
    random.shuffle(expected)
    random.seed(3)
    search = HyperparameterSearch("{a}", "shuffled_grid", None, {"a": range(20)})
    assert search.get_commands() == [str(number) for number in expected]


def test_an_ordered_grid_uses_no_more_memory_than_its_values() -> None:
    columns = {name: [str(number) for number in range(200)] for name in "abc"}
    commands = HyperparameterSearch("{a} {b} {c}", "grid", 300_000, columns).commands()
    next(commands)
    tracemalloc.start()
    assert sum(1 for _ in commands) == 299_999
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_shuffled_grid_too_large_for_the_old_tool_starts_at_once() -> None:
    columns = {name: range(1000) for name in "abc"}
    commands = HyperparameterSearch("{a} {b} {c}", "shuffled_grid", 100, columns).get_commands()
    assert len({*commands}) == 100
    assert hypersearch.SHUFFLED_AS_EVER < 1000**3
