"""`dibs group`: limits of named groups on the command line, through a real daemon."""

from __future__ import annotations

import json

from bench import Bench

LONG = ["sleep", "1000"]


def states(bench: Bench, ids: list[int]) -> list[str]:
    return [str(bench.job(job_id)["state"]) for job_id in ids]


def test_a_group_runs_no_more_jobs_than_its_limit_and_can_be_paused(bench: Bench) -> None:
    assert bench.cli("group", "set", "night", "-j", "1").stdout == "group night: at most 1 at once\n"
    ids = [int(bench.cli("add", "--group", "night", *LONG).stdout) for _ in range(2)]
    other = int(bench.cli("add", *LONG).stdout)
    for job_id in (ids[0], other):
        bench.until(job_id, "started")
    assert states(bench, ids)[1] == "queued"
    why = json.loads(bench.cli("why", "--json", str(ids[1])).stdout)
    assert why["reason"] == "the group night is at its limit: 1 of 1 jobs run"
    groups = json.loads(bench.cli("group", "--json").stdout)["groups"]
    assert groups == [
        {"name": "default", "at_once": None, "paused": False, "active": 1, "waiting": 0},
        {"name": "night", "at_once": 1, "paused": False, "active": 1, "waiting": 1},
    ]
    assert bench.cli("group", "pause", "night").stdout == "group night: at most 1 at once, paused\n"
    bench.cli("group", "unset", "night")
    assert json.loads(bench.cli("why", "--json", str(ids[1])).stdout)["reason"] == "the group night is paused"
    assert bench.cli("group", "resume", "night").stdout == "group night: no limit\n"
    bench.until(ids[1], "started")
    assert json.loads(bench.cli("status", "--json", "group:night").stdout)["jobs"][0]["group"] == "night"


def test_a_waiting_job_can_change_its_group(bench: Bench) -> None:
    bench.cli("group", "set", "night", "-j", "1")
    ids = [int(bench.cli("add", "--group", "night", *LONG).stdout) for _ in range(2)]
    bench.until(ids[0], "started")
    assert bench.cli("edit", str(ids[1]), "--group", "day").returncode == 0
    bench.until(ids[1], "started")
    assert bench.job(ids[1])["group"] == "day"


def test_wrong_words_change_nothing(bench: Bench) -> None:
    for words, told in (
        (("group", "sett", "x"), "dibs: group expected list, set, unset, pause, resume"),
        (("group", "set", "x"), "dibs: group set expected a limit: -j N."),
        (("group", "pause"), "dibs: group pause expected one name, got 0."),
        (("group", "set", "", "-j", "1"), "dibs: group set expected one name, got an empty one."),
        (("group", "set", "x", "-j", "0"), "dibs: "),
    ):
        done = bench.cli(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(told)
    assert json.loads(bench.cli("group", "--json").stdout)["groups"] == []


def test_a_mistyped_group_is_named(bench: Bench) -> None:
    """Otherwise somebody believes that the night jobs are paused, and they run."""
    bench.cli("group", "set", "night", "-j", "1")
    for action in ("unset", "pause", "resume"):
        done = bench.cli("group", action, "nihgt")
        assert (done.returncode, done.stdout) == (3, "")
        assert 'there is no group "nihgt" with a limit or unfinished jobs.' in done.stderr
    assert [each["name"] for each in json.loads(bench.cli("group", "--json").stdout)["groups"]] == ["night"]
