"""`dibs usage`: sums by user, project, group and day, as a table, as text, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
from datetime import date

import pytest

from bench import Bench, wait_for
from dibs.cli.verbs.lab import usage
from dibs.cli.verbs.lab.usage import Usage

SUM = {
    "sweep": None, "watched_s": 3600, "idle_s": 360, "used_s": 1800.0, "jobs": 2, "waited_s": 720.0, "gpu_s": 7200.0,
}  # fmt: skip


def answer() -> Usage:
    return {  # type: ignore[typeddict-item]
        "sums": [
            {"day": "2026-11-01", "project": "vision", "group": "night", **SUM},
            {"day": "2026-11-02", "project": "vision", "group": "day", **SUM},
            {"day": "2026-11-02", "project": "audio", "group": "day", **SUM, "gpu_s": 3600.0, "watched_s": 0},
            {"day": "2026-10-31", "project": "old", "group": "day", **SUM},
        ],
        "people": [
            {"day": "2026-11-01", "user": "ada", "gpu_s": 18000.0},
            {"day": "2026-11-02", "user": "ben", "gpu_s": 54000.0},
            {"day": "2026-10-31", "user": "ada", "gpu_s": 9e9},
        ],
    }


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("user", [("ben", 15.0), ("ada", 5.0)]),
        ("project", [("vision", 4.0), ("audio", 1.0)]),
        ("group", [("day", 3.0), ("night", 2.0)]),
        ("day", [("2026-11-01", 2.0), ("2026-11-02", 3.0)]),
    ],
)
def test_sums_are_of_the_asked_days(by: str, told: list[tuple[str, float]]) -> None:
    found = usage.rows(answer(), by, "2026-11-01", "2026-11-30")
    assert [(row.name, row.held) for row in found] == told


def test_used_time_is_what_was_observed_for_the_whole_time() -> None:
    vision, audio = usage.rows(answer(), "project", "2026-11-01", "2026-11-30")
    assert (vision.used, vision.wasted, vision.waited, vision.jobs) == (2.0, 0.2, 0.4, 4)
    # Nothing of it was observed.
    assert audio.used == 0.0


def test_a_month_is_a_text_to_mail() -> None:
    text = usage.summary(answer(), date(2026, 11, 1), date(2026, 11, 30))
    assert text.startswith("GPU-hours in November 2026: 20.0\n")
    assert "  ben                           15.0   75%" in text.splitlines()
    assert "  vision                         4.0       2.0       0.2       0.4       4" in text.splitlines()


def test_the_verb_shows_what_a_job_used(bench: Bench) -> None:
    job = bench.add("sleep 0.05", project="vision")
    bench.until(job)
    by_project = json.loads(bench.cli("usage", "--by", "project", "--json").stdout)["usage"]
    assert [(row["project"], row["jobs"]) for row in by_project] == [("vision", 1)]
    assert by_project[0]["held_h"] > 0
    people = wait_for(lambda: json.loads(bench.cli("usage", "--json").stdout)["people"])
    assert people[0]["gpu_s"] > 0
    rows = list(csv.reader(io.StringIO(bench.cli("usage", "--by", "day", "--csv").stdout)))
    assert rows[0] == ["day", "held_h", "used_h", "wasted_h", "waited_h", "jobs"]
    assert bench.cli("usage", "--month", f"{date.today():%Y-%m}").stdout.startswith("GPU-hours in ")
    assert "HELD" in bench.cli("usage").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--csv", "--json"), "expected --csv or --json, got both."),
        (("--month", "2026-13"), "a month such as 2026-11"),
        (("--month", "2026-11", "--by", "day"), "--month is a summary of one month."),
        (("--month", "2999-01"), "expected this month or an earlier one"),
        (("--since", "3y"), "a time such as"),
        (("--since", "400d"), "expected at most 366 days"),
        (("yesterday",), "usage takes no arguments"),
    ],
)
def test_wrong_words_are_refused(bench: Bench, words: tuple[str, ...], told: str) -> None:
    done = bench.cli("usage", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
