"""Calls of an executor as runs of a sweep: parameters, returned numbers, and what a second submission runs."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chores
import dibs
from bench import PATIENCE_S, Bench
from dibs.client import connection
from dibs.errors import UserError
from dibs.python_api.calls import points


def runs(name: str) -> list[dict[str, Any]]:
    """Return the runs of a sweep as `dibs results` lists them."""
    client = connection.connect(os.environ)
    (found,) = client.get("/v1/sweeps", [("name", name)])["sweeps"]
    listed: list[dict[str, Any]] = client.get(f"/v1/sweeps/{found['id']}/results")["runs"]
    return listed


def test_calls_of_a_sweep_are_runs_with_parameters_and_returned_numbers(queue: Bench) -> None:
    with dibs.Executor(gpus=0, sweep="squares") as pool:
        assert list(pool.map(chores.square, [3, 4], timeout=PATIENCE_S)) == [9, 16]
    found = runs("squares")
    assert [(run["params"], run["state"], run["numbers"]) for run in found] == [
        ({"x": 3}, "done", {"result": 9}),
        ({"x": 4}, "done", {"result": 16}),
    ]
    assert [run["index"] for run in found] == [0, 1]
    printed = queue.cli("results", "squares").stdout
    assert "RESULT" in printed
    assert "16" in printed


def test_a_call_has_a_name_and_parameters_of_its_own(queue: Bench) -> None:
    with dibs.Executor(gpus=0, sweep="named") as pool:
        future = pool.submit_call(chores.add, (1,), {"y": 2}, name="first", params={"lr": 0.1, "model": Path("/m")})
        assert future.result(PATIENCE_S) == 3
        (run,) = runs("named")
        assert run["params"] == {"lr": 0.1, "model": "/m"}
        job = queue.job(future.job.id)
    assert (job["name"], job["command"], job["sweep"]) == ("first", "add(1, y=2)", "named")


def test_named_calls_share_a_submission(queue: Bench) -> None:
    with dibs.Executor(gpus=0) as pool:
        futures = [pool.submit_call(chores.square, [n], name=f"call {n}") for n in range(30)]
        assert [future.result(PATIENCE_S) for future in futures] == [n * n for n in range(30)]
        keys = {queue.job(future.job.id)["argv"][-2] for future in futures}
        assert {future.job.name for future in futures} == {f"call {n}" for n in range(30)}
    assert len(keys) < 5


def test_a_mapping_reports_its_numbers(queue: Bench) -> None:
    value = {"loss": 0.5, "note": "good", "steps": 3, 4: 5, "ok": True}
    with dibs.Executor(gpus=0, sweep="mappings") as pool:
        assert pool.submit(dict, value).result(PATIENCE_S) == value
        assert pool.submit(dict, note="none").result(PATIENCE_S) == {"note": "none"}
    assert [run["numbers"] for run in runs("mappings")] == [{"loss": 0.5, "steps": 3}, {}]


def test_a_second_program_runs_what_is_missing_or_failed(
    queue: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = str(tmp_path / "log")
    with dibs.Executor(gpus=0, sweep="resumed") as pool:
        good, bad = pool.submit(chores.noting, log, "a"), pool.submit_call(chores.even, [1], params={"x": 1})
        assert good.result(PATIENCE_S) == "a"
        assert isinstance(bad.exception(PATIENCE_S), chores.Odd)
    with caplog.at_level(logging.WARNING, "dibs"), dibs.Executor(gpus=0, sweep="resumed") as pool:
        same, mended = pool.submit(chores.noting, log, "a"), pool.submit_call(chores.even, [2], params={"x": 1})
        new = pool.submit(chores.square, 7)
        assert (same.result(PATIENCE_S), mended.result(PATIENCE_S), new.result(PATIENCE_S)) == ("a", 2, 49)
        assert (same.job.id, mended.job.id, mended.job.attempt) == (good.job.id, bad.job.id, 2)
    assert len(chores.noted(log)) == 1
    assert 'calls of sweep "resumed" that are done return their earlier values' in caplog.text
    with dibs.Executor(gpus=0, sweep="resumed", again=True) as pool:
        assert pool.submit(chores.noting, log, "a").result(PATIENCE_S) == "a"
    assert len(chores.noted(log)) == 2
    assert len(runs("resumed")) == 3


def test_equal_calls_are_one_run(queue: Bench) -> None:
    with dibs.Executor(gpus=0, sweep="equal") as pool:
        assert list(pool.map(chores.square, [5, 5, 5], timeout=PATIENCE_S)) == [25, 25, 25]
        assert len(runs("equal")) == 1
        other = pool.submit(chores.even, 5)
        assert isinstance(other.exception(PATIENCE_S), chores.Odd)
    assert len(runs("equal")) == 2


def test_the_value_of_a_deleted_run_is_computed_again(queue: Bench) -> None:
    with dibs.Executor(gpus=0, sweep="deleted") as pool:
        first = pool.submit(chores.square, 6)
        assert first.result(PATIENCE_S) == 36
        queue.cli("clean", str(first.job.id))
        second = pool.submit(chores.square, 6)
        assert second.result(PATIENCE_S) == 36
        assert second.job.id != first.job.id


def test_failures_hold_no_other_call(queue: Bench) -> None:
    """A sweep of commands is held after three failures; a program that waits for its calls would wait for ever."""
    with dibs.Executor(gpus=0, sweep="failing", max_jobs=1) as pool:
        futures = [pool.submit(chores.even, n) for n in (1, 3, 5, 7, 8)]
        assert futures[-1].result(PATIENCE_S) == 8
        assert all(isinstance(future.exception(PATIENCE_S), chores.Odd) for future in futures[:-1])


def test_one_executor_fills_several_sweeps(queue: Bench) -> None:
    with dibs.Executor(gpus=0, project="vision") as pool:
        futures = [pool.with_options(sweep=name).submit(chores.square, 2) for name in ("one", "two")]
        assert [future.result(PATIENCE_S) for future in futures] == [4, 4]
        assert [queue.job(future.job.id)["project"] for future in futures] == ["vision", "vision"]
    assert len(runs("vision/one")) == len(runs("vision/two")) == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda pool: pool.submit_call(chores.square, [1], name=""), "name expected a text"),
        (lambda pool: pool.submit_call(chores.square, [1], name=3), "name expected a text"),
        (
            lambda pool: pool.submit_call(chores.square, [1], params={"a": 1}),
            "params expected an executor with a sweep",
        ),
        (lambda pool: pool.with_options(sweep="s").submit_call(chores.square, params=[1]), "params expected a mapping"),
        (lambda pool: pool.with_options(sweep="s").map(chores.square, [1], chunksize=2), "chunksize expected 1"),
        (lambda pool: pool.with_options(sweep=""), "sweep expected a name"),
        (lambda pool: pool.with_options(sweep="s", again=1), "again expected True or False"),
    ],
)
def test_a_wrong_call_is_refused_at_once(queue: Bench, call: Callable[[Any], object], says: str) -> None:
    with dibs.Executor(gpus=0) as pool, pytest.raises(UserError, match=says):
        call(pool)


def test_the_name_of_another_sweep_is_refused(queue: Bench) -> None:
    queue.cli("sweep", "-g0", "-n", "taken", "-p", "x=1", "true {x}")
    with dibs.Executor(gpus=0, sweep="taken") as pool:
        error = pool.submit(chores.square, 1).exception(PATIENCE_S)
    assert "another command" in str(error)


def test_a_submission_that_is_repeated_makes_no_second_run(queue: Bench) -> None:
    """The answer may be lost; the client then sends the same request with the same key."""
    client = connection.connect(os.environ)
    made = client.post("/v1/sweeps", {"name": "repeated", "command": points.COMMAND, "calls": True})
    argv = ["/bin/true", "/dibs/python_api/call_main.py", "k1", "0"]
    call = {"argv": argv, "name": "n", "command": "f()", "params": {"x": 1}}
    body = {"calls": [call], "key": "k1", "again": True, "defaults": {"gpus": 0}}
    first = client.post(f"/v1/sweeps/{made['id']}/calls", body)
    queue.until(first["jobs"][0]["id"])
    second = client.post(f"/v1/sweeps/{made['id']}/calls", body)
    assert [job["id"] for job in second["jobs"]] == [job["id"] for job in first["jobs"]]
    assert (second["counts"], second["jobs"][0]["attempt"]) == ({}, 1)
    with pytest.raises(UserError, match=r"expected a call of dibs\.Executor"):
        client.post(f"/v1/sweeps/{made['id']}/calls", body | {"calls": [call | {"argv": ["true"]}]})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, 1.5),
        (float("nan"), "nan"),
        (2**80, "int"),
        ((1, [2, "a"]), [1, [2, "a"]]),
        ({1: 2}, "dict"),
        (b"x", "bytes"),
    ],
)
def test_a_parameter_is_plain_data_or_the_digest_of_a_value(value: object, shown: object) -> None:
    (found,) = points.given({"x": value}).params.values()
    assert found == shown or (isinstance(found, str) and found.startswith(f"{shown} "))


def test_different_values_without_a_plain_form_are_different_points() -> None:
    found = {str(points.derived(chores.told, [value], {})) for value in (b"a", b"b", {1}, {2}, "x" * 500, "y" * 500)}
    assert len(found) == 6


def test_a_secret_is_not_shown() -> None:
    assert "hunter2" not in str(points.derived(chores.told, [], {"password": "hunter2"}))


def test_the_function_is_part_of_what_identifies_a_call() -> None:
    functions: list[Callable[..., object]] = [
        chores.square, chores.even, functools.partial(chores.add, 1), functools.partial(chores.add, 2), len,
    ]  # fmt: skip
    assert len({points.derived(function, [1], {}).function for function in functions}) == len(functions)
    assert points.derived(chores.square, [1], {}) == ({"x": 1}, "chores.square")
    assert points.derived(chores.add, [1], {"y": 2}).params == {"x": 1, "y": 2}
    assert points.derived(chores.told, [1, 2], {"k": 3}).params == {"args": [1, 2], "k": 3}
