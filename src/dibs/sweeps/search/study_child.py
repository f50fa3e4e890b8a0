"""A program that keeps an Optuna study: `python -m dibs.sweeps.search.study_child`, with JSON lines in and out.

The first line describes the search. Each further line tells what became of runs and asks for points; the answer has
them. The store of dibs is the truth: a study that is missing or belongs to something else is rebuilt from the runs. A
suggestion that no run has yet is given again, so nothing is lost or doubled whenever one of the two sides is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
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
#: Multiplied with the number of trials and added to the seed, if a sampler must begin anew in the middle of a search.
FURTHER_SEED = 1_000_003
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
        self._sampler_name, self._seed = str(about["sampler"]), int(about["seed"])
        self._study = _open(about)
        self._sampler_file = _SamplerFile(about)
        #: None: it begins anew when all runs are known.
        self._sampler = self._sampler_file.read(self._number)
        #: The points that have a run.
        self._runs: set[str] = set()
        self._trials: dict[str, FrozenTrial] = {}
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state is TrialState.RUNNING and POINT not in trial.user_attrs:
                # We were killed before it had a point.
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            self._remember(trial)

    @property
    def _number(self) -> int:
        return len(self._study.get_trials(deepcopy=False))

    def _remember(self, trial: FrozenTrial) -> None:
        # A point may have a failed trial and, after a retry, another one.
        if POINT in trial.user_attrs:
            self._trials[trial.user_attrs[POINT]] = trial

    # -- results

    def hear(self, run: dict[str, Any]) -> None:
        """Report the result of a run to the study."""
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
        if self._sampler is None:
            seed = (self._seed + FURTHER_SEED * self._number) % 2**32
            self._sampler = _new_sampler(self._sampler_name, seed)
        self._study.sampler = self._sampler
        while len(found) < wanted:
            point = self._next(taken)
            if point is None:
                break
            taken.add(point.key)
            found.append(point)
        self._sampler_file.write(self._number, self._sampler)
        return found

    def _is_waiting(self, key: str, trial: FrozenTrial) -> bool:
        return trial.state is TrialState.RUNNING and key not in self._runs

    def _again(self, trial: FrozenTrial) -> Point | None:
        return self._dimensions.point(lambda one: trial.params[dimensions.label(one)])

    def _next(self, taken: set[str]) -> Point | None:
        """Suggest a point without a run; None: there is none left."""
        excluded = 0
        for attempt in range(MOST_REPEATS + MOST_EXCLUDED):
            trial = self._study.ask()
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
    # The defaults of Optuna 5, also with an older one: trials that run count as bad, so that those beside them look
    # elsewhere, and parameters are chosen together, because one by one the best pairs are not seen.
    return TPESampler(seed=seed, constant_liar=True, multivariate=True)


class _SamplerFile:
    """The sampler beside its storage, as it was after a number of trials.

    With it, a search that was interrupted chooses what it would have chosen otherwise. If it is missing or broken, the
    search chooses other points, which are as good.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        self._path = None if about["storage"] is None else about["storage"] + ".sampler"
        self._made_for = [about["sampler"], about["seed"], _made_for(about)]

    def read(self, number: int) -> BaseSampler | None:
        if self._path is None:
            return None
        try:
            with open(self._path, "rb") as file:
                made_for, after, sampler = pickle.load(file)
        # Another version of Optuna may have written it.
        except Exception:  # noqa: BLE001
            return None
        return sampler if (made_for, after) == (self._made_for, number) and isinstance(sampler, BaseSampler) else None

    def write(self, number: int, sampler: BaseSampler) -> None:
        if self._path is None:
            return
        with open(self._path + ".new", "wb") as file:
            pickle.dump((self._made_for, number, sampler), file)
        os.replace(self._path + ".new", self._path)


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
    made_for = _made_for(about)
    try:
        study = _load(about["storage"], about["name"], direction)
        if study.user_attrs.get(MADE_FOR, made_for) == made_for:
            study.set_user_attr(MADE_FOR, made_for)
            return study
    # Whatever is wrong with the file, all that matters of it is in the store of dibs.
    except Exception as error:  # noqa: BLE001
        print(f"{about['storage']} cannot be used and is rebuilt: {error!r}", file=sys.stderr, flush=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(about["storage"])
    study = _load(about["storage"], about["name"], direction)
    study.set_user_attr(MADE_FOR, made_for)
    return study


def _made_for(about: dict[str, Any]) -> str:
    """Return a value that identifies the sweep, the space and the goal of a search."""
    about = {"made_for": None} | about
    return hashlib.sha256(json.dumps([about[key] for key in ("made_for", "space", "goal")]).encode()).hexdigest()


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
