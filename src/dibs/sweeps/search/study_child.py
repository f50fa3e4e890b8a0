"""A program that keeps an Optuna study: `python -m dibs.sweeps.search.study_child`, with JSON lines in and out.

The first line describes the search. Each further line tells what became of runs and asks for points; the answer has
them. The store of dibs is the truth: a study that is missing or belongs to something else is made anew from the runs. A
suggestion that no run has yet is given again, so nothing is lost or doubled whenever one of the two sides is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from dibs.sweeps.grid import Point, Points
from dibs.sweeps.search import codec, dimensions
from dibs.sweeps.search.dimensions import Choice, Dimension, Dimensions, Index
from dibs.system import processes

#: User attributes: of a trial the point that it stands for, of a study what it was made for.
POINT, MADE_FOR = "point", "dibs"
#: The first suggestions of TPE, which it would draw by chance, are spread over the space instead.
SPREAD = 10
ROOT_STEPS = 50
#: Points that TPE compares for a suggestion; Optuna's default is 24. It makes up for the result that a trial which
#: waits in the queue does not know (`scripts/measure-search`).
CANDIDATES = 128
#: Suggestions in a row that are points with a run already, or excluded ones, before another way is tried.
MOST_REPEATS = 20
#: Excluded points in a row before the search gives up.
MOST_EXCLUDED = 1000

STATES = {"done": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}


class Keeper:
    """The study of one search."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._space = codec.decode(about["space"])
        self._dimensions = Dimensions(self._space)
        self._sampler, self._seed = str(about["sampler"]), int(about["seed"])
        self._study = _open(about)
        #: The points that have a run.
        self._runs: set[str] = set()
        self._trials: dict[str, FrozenTrial] = {}
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state is TrialState.RUNNING and POINT not in trial.user_attrs:
                # We were killed before it had a point.
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            self._remember(trial)

    def _remember(self, trial: FrozenTrial) -> None:
        # A point may have a failed trial and, after a retry, another one.
        if POINT in trial.user_attrs:
            self._trials[trial.user_attrs[POINT]] = trial

    # -- results

    def hear(self, run: dict[str, Any]) -> None:
        """Tell the study what became of a run."""
        self._runs.add(run["point"])
        known = self._trials.get(run["point"])
        state = STATES.get(run["state"], TrialState.RUNNING)
        if known is None or (known.state is TrialState.FAIL and state in (TrialState.COMPLETE, TrialState.PRUNED)):
            self._add(run, state)
        elif known.state is TrialState.RUNNING and state is not TrialState.RUNNING:
            if state is TrialState.PRUNED:
                Trial(self._study, known._trial_id).report(run["value"], run["step"])
            value = run["value"] if state is TrialState.COMPLETE else None
            self._remember(self._study.tell(known.number, value, state, skip_if_finished=True))

    def _add(self, run: dict[str, Any], state: TrialState) -> None:
        """Add the trial of a run that the study does not know; one that the space no longer has is left out."""
        found = self._dimensions.suggestions(run["params"])
        if found is None:
            return
        trial = create_trial(
            state=state,
            value=run.get("value") if state is TrialState.COMPLETE else None,
            params={dimensions.label(one): suggestion for one, suggestion in found.items()},
            distributions={dimensions.label(one): _distribution(one) for one in found},
            user_attrs={POINT: run["point"]},
            intermediate_values={run["step"]: run["value"]} if state is TrialState.PRUNED else {},
        )
        self._study.add_trial(trial)
        self._remember(self._study.get_trials(deepcopy=False)[-1])

    # -- suggestions

    def points(self, wanted: int) -> list[Point]:
        """Return new points, at most `wanted`: fewer only if all points of the space have a run."""
        waiting = [key for key, trial in self._trials.items() if self._is_waiting(key, trial)]
        found = [point for key in waiting[:wanted] if (point := self._again(self._trials[key])) is not None]
        taken = {*self._runs, *(point.key for point in found)}
        while len(found) < wanted:
            point = self._next(taken)
            if point is None:
                break
            taken.add(point.key)
            found.append(point)
        return found

    def _is_waiting(self, key: str, trial: FrozenTrial) -> bool:
        return trial.state is TrialState.RUNNING and key not in self._runs

    def _again(self, trial: FrozenTrial) -> Point | None:
        return self._dimensions.point(lambda one: trial.params[dimensions.label(one)])

    def _next(self, taken: set[str]) -> Point | None:
        """Suggest a point without a run; None: there is none left."""
        excluded = 0
        for attempt in range(MOST_REPEATS + MOST_EXCLUDED):
            trial = self._ask()
            point = self._dimensions.point(lambda one, trial=trial: _suggest(trial, one))  # type: ignore[misc]
            if point is not None and point.key not in taken:
                trial.set_user_attr(POINT, point.key)
                self._trials[point.key] = self._study.get_trials(deepcopy=False)[trial.number]
                return point
            self._study.tell(trial.number, state=TrialState.FAIL)
            excluded += point is None
            if attempt - excluded >= MOST_REPEATS or excluded >= MOST_EXCLUDED:
                break
        return self._any(taken)

    def _ask(self) -> Trial:
        # The seed and the number of trials decide, so that a search can be repeated, also after a restart.
        number = len(self._study.get_trials(deepcopy=False))
        if number < SPREAD and self._sampler == "tpe":
            self._study.enqueue_trial(self._spread(number))
        self._study.sampler = _new_sampler(self._sampler, (self._seed * 1_000_003 + number) % 2**31)
        return self._study.ask()

    def _spread(self, number: int) -> dict[str, float | str]:
        """Return one of the first points: a sequence that fills the space more evenly than chance does.

        It adds powers of a root of x^(d+1) = x + 1, the golden ratio for one dimension, from a start that the seed
        draws.
        """
        root = 2.0
        for _ in range(ROOT_STEPS):
            root = (1 + root) ** (1 / (len(self._dimensions.all) + 1))
        chance = random.Random(self._seed)
        found = {}
        for place, one in enumerate(self._dimensions.all, 1):
            share = (chance.random() + (number + 1) / root**place) % 1
            found[dimensions.label(one)] = dimensions.at_share(one, share)
        return found

    def _any(self, taken: set[str]) -> Point | None:
        """Return some point of the space that has no run; None if a finite space has no more."""
        size = len(taken) + 1 if self._space.chance else None
        for point in Points(self._space, sample=size, is_shuffled=True, seed=self._seed):
            if point.key not in taken:
                found = self._dimensions.suggestions(point.data()) or {}
                self._study.enqueue_trial({dimensions.label(one): each for one, each in found.items()})
                trial = self._study.ask()
                for one in found:
                    _suggest(trial, one)
                trial.set_user_attr(POINT, point.key)
                self._trials[point.key] = self._study.get_trials(deepcopy=False)[trial.number]
                return point
        return None


def _new_sampler(name: str, seed: int) -> BaseSampler:
    if name == "cmaes":
        return CmaEsSampler(seed=seed, warn_independent_sampling=False)
    # With the liar, trials that run count as bad, so that those beside them look elsewhere. Parameters are chosen
    # together, as Optuna does by default from version 5 on: one by one, the best pairs are not seen.
    return TPESampler(seed=seed, constant_liar=True, multivariate=True, n_ei_candidates=CANDIDATES)


def _distribution(one: Dimension) -> BaseDistribution:
    match one:
        case Choice():
            return CategoricalDistribution(one.labels)
        case Index():
            return IntDistribution(0, one.count - 1)
        case _:
            return FloatDistribution(one.low, one.high, log=one.is_log)


def _suggest(trial: Trial, one: Dimension) -> float | str:
    name = dimensions.label(one)
    match one:
        case Choice():
            return str(trial.suggest_categorical(name, one.labels))
        case Index():
            return trial.suggest_int(name, 0, one.count - 1)
        case _:
            return trial.suggest_float(name, one.low, one.high, log=one.is_log)


def _open(about: dict[str, Any]) -> Study:
    """Open the study of a search; one that was made for another sweep or another space is replaced."""
    direction = StudyDirection[about["goal"].upper()]
    if about["storage"] is None:
        return optuna.create_study(direction=direction)
    made_for = hashlib.sha256(json.dumps([about[key] for key in ("made_for", "space", "goal")]).encode()).hexdigest()
    try:
        study = _load(about["storage"], about["name"], direction)
        if study.user_attrs.get(MADE_FOR, made_for) == made_for:
            study.set_user_attr(MADE_FOR, made_for)
            return study
    # Whatever is wrong with the file, all that matters of it is in the store of dibs.
    except Exception as error:  # noqa: BLE001
        print(f"{about['storage']} cannot be used and is made anew: {error!r}", file=sys.stderr, flush=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(about["storage"])
    study = _load(about["storage"], about["name"], direction)
    study.set_user_attr(MADE_FOR, made_for)
    return study


def _load(path: str, name: str, direction: StudyDirection) -> Study:
    return optuna.create_study(
        storage=JournalStorage(_Journal(path)), study_name=name, direction=direction, load_if_exists=True
    )


class _Journal(BaseJournalBackend):
    """A journal file as Optuna's own, which others can open; written by one process, so without locks.

    It does not wait for the disk, which would take most of the time of a suggestion. What a crash leaves of the last
    line is cut off.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - open as long as this process
        self._file.seek(0)
        self._logs: list[dict[str, Any]] = []
        whole = 0
        for line in self._file.read().splitlines(keepends=True):
            try:
                self._logs.append(json.loads(line))
            except ValueError:
                break
            whole += len(line)
        self._file.truncate(whole)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the entries from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write entries."""
        self._file.write(b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in logs))
        self._logs += logs


def answers(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield an answer to each line after the first."""
    keeper = Keeper(json.loads(next(lines)))
    for line in lines:
        asked = json.loads(line)
        for run in asked["runs"]:
            keeper.hear(run)
        points = keeper.points(asked["want"])
        yield {"points": [_written(point) for point in points], "is_over": len(points) < asked["want"]}


def _written(point: Point) -> list[Sequence[Any]]:
    return [(name, value.data, value.text) for name, value in zip(point.names, point.values, strict=True)]


def main() -> None:
    """Answer questions until the end of the input."""
    processes.die_with(int(sys.argv[1]), signal.SIGKILL)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    os.umask(0o077)
    for answer in answers(iter(sys.stdin.readline, "")):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
