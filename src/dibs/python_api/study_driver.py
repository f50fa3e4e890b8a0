"""Run the trials of an Optuna study as jobs: ask, submit, report, tell.

The driver only asks and tells. Inside its job a trial is the same trial of the same storage, so an objective needs no
change: it suggests parameters when it starts, with all that is known by then. The storage says which job has which
trial, so a driver that was killed is continued by the next call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Unpack

import optuna
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from dibs.client import queries
from dibs.errors import NotFound, UserError
from dibs.logs import reports, tails
from dibs.model import environment, selectors
from dibs.python_api import jobs
from dibs.python_api.executor import Executor
from dibs.python_api.futures import BrokenJob, Future
from dibs.python_api.keywords import Options

#: User attributes of a trial: its job, and that its job vanished, so that it does not count.
JOB, VANISHED = "dibs_job", "dibs_vanished"
#: Seconds between two looks at what running trials report.
LOOK_EVERY_S = 1.0
#: One trial in this many that run waits in the queue, at least one, so that no GPU is idle between two trials.
AHEAD_PART = 4

Value = float | Sequence[float]
Objective = Callable[[Trial], Value]


@dataclass(eq=False)
class _Flight:
    """A trial whose job is not finished."""

    trial: Trial
    job_id: int
    future: Future[Any]
    #: The last step whose value the study knows.
    last_step: int | None = None
    is_pruned: bool = False


def optimize(
    study: Study,
    objective: Objective,
    n_trials: int,
    *,
    pool: Executor | None = None,
    at_most: int | None = None,
    number: str = "",
    catch: type[Exception] | tuple[type[Exception], ...] = BrokenJob,
    callbacks: Sequence[Callable[[Study, FrozenTrial], None]] = (),
    **options: Unpack[Options],
) -> None:
    """Run trials as jobs until the study has `n_trials` of them; trials of earlier calls count.

    `options` are those of `dibs.submit` (`gpus=1`); `pool` is an executor that has them. At most `at_most` trials run
    at once, by default one for each free set of GPUs. Numbers that the objective reports with `dibs.report` are
    reported to the study, and its pruner stops running trials; `number` names the one to use, by default the first.
    An exception of the objective ends the call, unless it is one of `catch`; then only that trial fails. What is under
    way when the call ends continues, and the next call with the same study finds it.
    """
    if isinstance(study._storage, InMemoryStorage):
        raise UserError(
            "optimize expected a study with a storage that jobs can open, got one in memory.",
            'Write create_study(storage="sqlite:///study.db", study_name=..., load_if_exists=True).',
        )
    if pool is not None and options:
        raise UserError(f"expected either pool or options of jobs, got both: {', '.join(options)}.")
    if type(n_trials) is not int or n_trials < 1:
        raise UserError(f"n_trials expected a whole number from 1 up, got {n_trials!r}.")
    if at_most is not None and (type(at_most) is not int or at_most < 1):
        raise UserError(f"at_most expected a whole number from 1 up, got {at_most!r}.")
    own = pool or Executor(max_jobs=at_most, **options)
    running = at_most or _slots(own)
    ahead = math.ceil(running / AHEAD_PART)
    caught = catch if isinstance(catch, tuple) else (catch,)
    _Driver(study, objective, own, number, caught, callbacks).run(n_trials, running + ahead)


def _slots(pool: Executor) -> int:
    """Return how many trials can run at once on this machine."""
    if pool._pool.cap is not None:
        return pool._pool.cap.at_once
    return jobs.slots(pool._options.get("gpus"))


@dataclass(eq=False)
class _Driver:
    """One call of `optimize`."""

    _study: Study
    _objective: Objective
    _pool: Executor
    _number: str
    _catch: tuple[type[Exception], ...]
    _callbacks: Sequence[Callable[[Study, FrozenTrial], None]]
    _flights: list[_Flight] = field(default_factory=list)

    def run(self, n_trials: int, most: int) -> None:
        """Keep `most` trials in the queue until the study has `n_trials`."""
        self._find_again()
        counted = sum(_counts(trial) for trial in self._study.get_trials(deepcopy=False))
        while self._flights or counted < n_trials:
            while len(self._flights) < min(most, n_trials - counted):
                self._submit(self._study.ask())
            futures.wait([each.future for each in self._flights], LOOK_EVERY_S, futures.FIRST_COMPLETED)
            ended = [each for each in self._flights if each.future.done()]
            self._flights = [each for each in self._flights if not each.future.done()]
            # Also of those that ended, before Optuna knows them: the pruner compares with them.
            self._look([*ended, *self._flights])
            for each in ended:
                self._tell(each)
            counted += len(ended)

    # -- trials of a driver that has ended

    def _find_again(self) -> None:
        """Continue the trials whose jobs exist; the others fail, and their parameters are tried again."""
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            job_id = frozen.user_attrs.get(JOB) or self._job_of(frozen.number)
            try:
                future = None if job_id is None else Executor.attach([job_id])[0]
            except UserError:
                # It was deleted, or is no call.
                future = None
            trial = Trial(self._study, frozen._trial_id)
            if future is not None:
                self._flights.append(_Flight(trial, int(job_id or 0), future, frozen.last_step))
                continue
            trial.set_user_attr(VANISHED, True)
            self._study.tell(frozen.number, state=TrialState.FAIL, skip_if_finished=True)
            if frozen.params:
                self._study.enqueue_trial(frozen.params)

    def _name(self, number: int) -> str:
        # Without the characters of a glob, because a job is found by this name.
        return f"{re.sub(r'[^A-Za-z0-9_.:-]', '_', self._study.study_name)}-{number}"

    def _job_of(self, number: int) -> int | None:
        """Return the job of a trial whose driver ended before it noted the id."""
        try:
            found = queries.overview(jobs.client(), [f"name:{self._name(number)}"])["jobs"]
        except NotFound:
            return None
        return max((job["id"] for job in found), default=None)

    # -- a trial

    def _submit(self, trial: Trial) -> None:
        future = self._pool.with_options(name=self._name(trial.number)).submit(run_trial, self._objective, trial)
        job_id = future.job.id
        trial.set_user_attr(JOB, job_id)
        self._flights.append(_Flight(trial, job_id, future))

    def _tell(self, flight: _Flight) -> None:
        """Record how a trial ended."""
        place = flight.trial.number
        try:
            value = flight.future.result()
        except optuna.TrialPruned:
            self._finish(place, TrialState.PRUNED)
        except CancelledError:
            # By the pruner, or by a user.
            self._finish(place, TrialState.PRUNED if flight.is_pruned else TrialState.FAIL)
        except Exception as error:
            self._finish(place, TrialState.FAIL)
            if not isinstance(error, self._catch):
                raise
        else:
            self._finish(place, None, value)

    def _finish(self, number: int, state: TrialState | None, value: Value | None = None) -> None:
        frozen = self._study.tell(number, value, state, skip_if_finished=True)
        for callback in self._callbacks:
            callback(self._study, frozen)

    # -- reported numbers

    def _look(self, flights: Sequence[_Flight]) -> None:
        """Report what trials reported since, and stop running ones that the pruner rejects."""
        pruner = self._study.pruner
        if len(self._study.directions) > 1 or isinstance(pruner, optuna.pruners.NopPruner):
            return
        begun = {each.job_id: each for each in flights if each.future.running() or each.future.done()}
        if not begun:
            return
        answer = jobs.client().get("/v1/jobs/changes", [("select", selectors.ranges(begun))])
        for job in answer["jobs"]:
            folder = f"{answer['files']}/{job['id']}"
            lines = tails.read(environment.report_path(job["attempt"], folder), reports.COURSE_BYTES)
            self._report(begun[job["id"]], reports.curve(lines, self._number))

    def _report(self, flight: _Flight, curve: Sequence[tuple[int, float]]) -> None:
        for step, value in curve:
            if flight.is_pruned or (flight.last_step is not None and step <= flight.last_step):
                continue
            flight.last_step = step
            flight.trial.report(value, step)
            if not flight.future.done() and flight.trial.should_prune():
                flight.is_pruned = True
                jobs.Job(flight.job_id).cancel()


def _counts(trial: FrozenTrial) -> bool:
    return trial.state.is_finished() and not trial.user_attrs.get(VANISHED)


def run_trial(objective: Objective, trial: Trial) -> Value:
    """Run an objective inside its job."""
    # Every job has a copy of the sampler: without this, all of them would draw the same numbers.
    trial.study.sampler.reseed_rng()
    return objective(trial)
