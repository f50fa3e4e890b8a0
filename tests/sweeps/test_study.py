"""The study of a search: a child process with Optuna, which may be killed at any time."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import Impossible, MachineError
from dibs.sweeps import parameters, spaces
from dibs.sweeps.grid import Point
from dibs.sweeps.search import codec, study
from dibs.sweeps.search.study import Study


def about(*words: str, storage: Path | None = None, sampler: str = "tpe", goal: str = "minimize", **more: Any) -> Any:
    space = spaces.build([parameters.parse([word]) for word in words], **more)
    told = {"space": codec.encode(space), "sampler": sampler, "seed": 7, "goal": goal, "name": "p/s"}
    return told | {"storage": None if storage is None else str(storage), "made_for": "p/s 1"}


def run(point: Point, state: str = "waiting", **more: float) -> dict[str, Any]:
    return {"point": point.key, "params": point.data(), "state": state, **more}


def data(points: list[Point]) -> list[dict[str, Any]]:
    return [point.data() for point in points]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "1.journal"


@pytest.fixture
def own(storage: Path) -> Iterator[Study]:
    found = Study(about("x=uniform(-1,1)", "opt=a,b", storage=storage))
    yield found
    found.close()


def kill(victim: Study) -> None:
    """kill -9 the child of a study."""
    child = victim._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


def test_a_suggestion_without_a_run_is_given_again_after_a_kill(own: Study) -> None:
    """The daemon was killed between the suggestion and the commit, or its turn was refused."""
    first = own.ask([], 2).points
    kill(own)
    assert data(own.ask([], 2).points) == data(first)
    later = own.ask([run(first[0])], 2).points
    assert data(later)[0] == first[1].data()
    assert first[0].key not in {point.key for point in later}


def test_a_study_whose_storage_is_lost_is_made_anew_from_the_runs(own: Study, storage: Path) -> None:
    points = own.ask([], 6).points
    states = [("done", {"value": 0.1}), ("stopped", {"value": 9.0, "step": 3}), ("failed", {}), ("waiting", {})]
    runs = [run(point, state, **more) for point, (state, more) in zip(points, states, strict=False)]
    after = own.ask(runs, 1).points
    own.close()
    storage.unlink()
    assert data(own.ask(runs, 1).points) != []
    assert _trials(storage) == ["COMPLETE", "PRUNED", "FAIL", "RUNNING", "RUNNING"]
    assert after[0].key not in {each["point"] for each in runs}


@pytest.mark.parametrize("garbage", [b"not a journal", b"", b'{"op_code": 99}\n'], ids=["text", "empty", "strange"])
def test_a_broken_storage_is_replaced(own: Study, storage: Path, garbage: bytes) -> None:
    storage.write_bytes(garbage)
    (point,) = own.ask([], 1).points
    assert own.ask([run(point, "done", value=1.0)], 1).points


def test_half_a_line_at_the_end_is_cut_off(own: Study, storage: Path) -> None:
    first = own.ask([], 2).points
    own.close()
    with storage.open("ab") as journal:
        journal.write(b'{"op_code": 4, "wor')
    assert data(own.ask([], 2).points) == data(first)
    assert _trials(storage) == ["RUNNING", "RUNNING"]


def test_a_search_with_four_at_a_time_chooses_what_optuna_alone_would(own: Study, storage: Path) -> None:
    """The same sampler, the same seed, the same order of results: the same points, also after a kill."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    alone = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=7, multivariate=True, constant_liar=True))
    order = random.Random(3)
    known: dict[str, dict[str, Any]] = {}
    running: list[tuple[optuna.Trial, Point]] = []
    for number in range(40):
        if len(running) == 4:
            trial, point = running.pop(order.randrange(4))
            value = float(str(point.data()["x"])) ** 2 + (point.data()["opt"] == "a")
            alone.tell(trial, value)
            known[point.key] = run(point, "done", value=value)
        if number in (5, 25):
            kill(own)
        (point,) = own.ask(list(known.values()), 1).points
        trial = alone.ask()
        # In the order of the study: axes first.
        expected = {"opt": trial.suggest_categorical("opt", ["a", "b"]), "x": trial.suggest_float("x", -1, 1)}
        assert point.data() == pytest.approx(expected, abs=1e-5), number
        known[point.key] = run(point)
        running.append((trial, point))
    assert _trials(storage).count("COMPLETE") == 36


def test_a_sampler_that_was_not_kept_begins_anew(own: Study, storage: Path) -> None:
    (first,) = own.ask([], 1).points
    kept = storage.with_name(storage.name + ".sampler")
    own.close()
    kept.write_bytes(b"not a sampler")
    (second,) = own.ask([run(first)], 1).points
    own.close()
    kept.unlink()
    (third,) = own.ask([run(first), run(second)], 1).points
    assert len({first.key, second.key, third.key}) == 3


def test_a_storage_of_another_sweep_or_space_is_not_used(own: Study, storage: Path) -> None:
    own.ask([], 3)
    own.close()
    other = Study(about("x=uniform(5,6)", "opt=a,b", storage=storage))
    try:
        assert all(5 <= point.data()["x"] <= 6 for point in other.ask([], 3).points)  # type: ignore[operator]
    finally:
        other.close()


def test_a_retry_that_succeeds_counts_after_all(own: Study, storage: Path) -> None:
    (point,) = own.ask([], 1).points
    own.ask([run(point, "failed")], 0)
    own.ask([run(point)], 0)
    own.ask([run(point, "done", value=3.0)], 0)
    assert _trials(storage) == ["FAIL", "COMPLETE"]


def test_a_finite_space_gives_every_point_once_and_then_none() -> None:
    own = Study(about("a=1,2,3", "b=x,y", exclude=["a == 2"]))
    try:
        found = own.ask([], 10)
        assert found.is_over
        assert sorted(tuple(each.values()) for each in data(found.points)) == [(1, "x"), (1, "y"), (3, "x"), (3, "y")]
        assert own.ask([run(point) for point in found.points], 1) == ([], True)
    finally:
        own.close()


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_the_seed_makes_a_search_repeatable_across_restarts(sampler: str, storage: Path) -> None:
    def points(restart_after: int, path: Path) -> list[dict[str, Any]]:
        own = Study(about("x=uniform(-1,1)", "y=loguniform(1e-4,1)", storage=path, sampler=sampler))
        known: list[dict[str, Any]] = []
        found: list[Point] = []
        try:
            for number in range(14):
                (point,) = own.ask(known, 1).points
                found.append(point)
                known.append(run(point, "done", value=float(str(point.data()["x"])) ** 2))
                if number == restart_after:
                    own.close()
        finally:
            own.close()
        return data(found)

    assert points(4, storage) == points(12, storage.with_name("2.journal"))


def test_a_child_that_cannot_start_is_an_error(own: Study) -> None:
    own.about["space"] = {}
    with pytest.raises(MachineError, match="ended"):
        own.ask([], 1)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    study.require("random")
    monkeypatch.setattr(study.importlib.util, "find_spec", lambda name: None if name == "cmaes" else object())
    study.require("tpe")
    with pytest.raises(Impossible, match="the package cmaes, which is not installed") as error:
        study.require("cmaes")
    assert "pip install 'dibs[search]'" in error.value.line()


def _trials(storage: Path) -> list[str]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(storage)))
    loaded = optuna.load_study(study_name="p/s", storage=opened)
    return [trial.state.name for trial in loaded.get_trials(deepcopy=False)]
