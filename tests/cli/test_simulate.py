"""`dibs simulate`: the table, JSON, picture and history, and what it says about bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench import Bench

HEADER = "submit_time_s,duration_s,gpus,tenant\n"
JOBS = "".join(f"{n * 60},{(n * 7919) % 5000 + 60},{(1, 1, 2, 8)[n % 4]},t{n % 2}\n" for n in range(60))
POLICIES = ["dibs", "fifo", "fifo+easy", "greedy", "sjf", "lower-bound"]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress((HEADER + JOBS).encode()))
    return str(path)


def test_a_table_has_a_line_for_each_policy(bench: Bench, trace: str) -> None:
    done = bench.cli("simulate", trace, "--load", "0.8")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["policy", *POLICIES]
    assert "jobs on 1 × 8 GPUs, load 0.80; times in hours." in done.stderr


def test_the_table_fits_into_80_columns(bench: Bench, tmp_path: Path) -> None:
    """With the longest name of a policy, and waits of months."""
    path = tmp_path / "long.csv"
    path.write_text(HEADER + "".join(f"{n},{20_000_000 + n},8,t{n % 2}\n" for n in range(2)))
    done = bench.cli("simulate", str(path), "--evictable", "1")
    assert "dibs, none evictable" in done.stdout
    assert max(map(len, (done.stdout + done.stderr).splitlines())) <= 80, done.stdout


def test_json_has_the_measures_of_each_policy(bench: Bench, trace: str) -> None:
    words = ("simulate", trace, "--boxes", "2", "--gpus-per-box", "4", "--no-limits", "--seed", "3", "--json")
    answer = json.loads(bench.cli(*words).stdout)
    assert list(answer["policies"]) == POLICIES
    assert {"mean_completion_s", "median_completion_s", "p99_completion_s", "mean_wait_s", "p99_wait_s", "slowdown",
            "utilisation", "p99_wait_big_s", "fairness"} <= answer["policies"]["dibs"].keys()  # fmt: skip
    assert {name: answer[name] for name in ("jobs", "too_large", "boxes", "gpus_per_box", "seed", "limits")} == {
        "jobs": 60, "too_large": 0, "boxes": 2, "gpus_per_box": 4, "seed": 3, "limits": "none",
    }  # fmt: skip


def test_evictable_jobs_are_compared_with_none(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("submit_time_s,duration_s,gpus\n0,36000,8\n3600,60,8\n")
    answer = json.loads(bench.cli("simulate", str(path), "--evictable", "1", "--json").stdout)["policies"]
    assert answer["dibs"]["evictions"] == 1
    assert answer["dibs"]["mean_wait_s"] < answer["dibs, none evictable"]["mean_wait_s"] == 32400 / 2


def test_a_picture_is_written(bench: Bench, trace: str, tmp_path: Path) -> None:
    assert bench.cli("simulate", trace, "--svg", str(tmp_path / "x.svg"), "-q").stderr == ""
    assert (tmp_path / "x.svg").read_text().startswith("<svg")


@pytest.mark.usefixtures("started")
def test_the_own_queue_is_a_trace(bench: Bench) -> None:
    assert "got none" in bench.cli("simulate", "--from-history").stderr
    jobs = [int(bench.cli("add", "-g1", "true").stdout) for _ in range(3)]
    for job_id in jobs:
        bench.until(job_id)
    answer = json.loads(bench.cli("simulate", "--from-history", "--gpus-per-box", "1", "--json").stdout)
    assert answer["jobs"] == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "simulate expected one trace or --from-history, got nothing."),
        (["a", "b"], "simulate expected one trace or --from-history, got 2 words."),
        (["a", "--from-history"], "simulate expected one trace or --from-history, got both."),
        (["none.csv"], "cannot read none.csv: No such file or directory."),
        (["."], "cannot read .: Is a directory."),
        (["{trace}", "--boxes", "0"], "--boxes expected a whole number from 1 to 100000"),
        (["{trace}", "--load", "x"], "--load expected a number from 0.01 to 10"),
        (["{trace}", "--evictable", "nan"], "--evictable expected a number from 0 to 1"),
        (["{trace}", "--svg", "no/x.svg"], "cannot write no/x.svg: No such file or directory."),
        (["{trace}", "--svg", "."], "cannot write .: Is a directory."),
        # What cannot be written is refused before anything is read or simulated.
        (["none.csv", "--svg", "no/x.svg"], "cannot write no/x.svg: No such file or directory."),
    ],
)
def test_bad_words_get_one_clear_line(bench: Bench, trace: str, words: list[str], text: str) -> None:
    done = bench.cli("simulate", *(word.format(trace=trace) for word in words))
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"submit_time_s,duration_s,gpus\n0,1,1\n0,x,1\n", "line 3 of the trace: expected a number of seconds"),
        (b"\xff\xfe\x00", "bad.csv: it is not text, or incomplete."),
        (b"", 'line 1 of the trace: expected a column submit_time_s, got "nothing".'),
    ],
)  # fmt: skip
def test_bad_traces_get_one_clear_line(bench: Bench, tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    done = bench.cli("simulate", str(tmp_path / "bad.csv"))
    assert done.returncode == 2
    assert text in done.stderr


def test_a_cut_off_archive_is_refused(bench: Bench, tmp_path: Path) -> None:
    whole = gzip.compress((HEADER + JOBS).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert "it is not text, or incomplete" in bench.cli("simulate", str(tmp_path / "cut.csv.gz")).stderr
