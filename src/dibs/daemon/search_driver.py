"""Drive the searches in a separate thread: ask their studies for points, and stop runs that do badly.

The store says which searches need trials, so a crash loses nothing: the next daemon continues. Studies are child
processes; files of reports may be on a slow disk. The queue thread waits for neither.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from dibs.daemon.readers import AGAIN_S, StoreThread
from dibs.daemon.run_curves import RunCurves
from dibs.engines.job_files import JobFiles
from dibs.errors import DibsError, UserError
from dibs.jobqueue import searches
from dibs.jobqueue.sweeps import Added, Fate
from dibs.jobqueue.turns import Turn
from dibs.jobqueue.validation import Submission
from dibs.model.fields import JobSpec
from dibs.model.jobs import LOCAL
from dibs.sweeps.ranking import MINIMIZE
from dibs.sweeps.records import Sweep
from dibs.sweeps.search import early_stop, trials
from dibs.sweeps.search.study import Study

log = logging.getLogger("dibs.daemon.search_driver")
T = TypeVar("T")

#: Seconds between two looks at what runs report, while a rule may stop some: a file that grows tells nobody.
LOOK_EVERY_S = 1.0
#: The least seconds between two looks because of changes.
REST_S = 0.02
#: Errors in a row after which a search ends.
MOST_TROUBLES = 5


class SearchDriver(StoreThread):
    """The thread that drives searches. `wake` it when jobs change; it finds in the store what to do."""

    name = "searches"

    def __init__(self, files: JobFiles, database: Path) -> None:
        super().__init__(database)
        self._files = files
        #: Whether changes of jobs matter: a search takes trials, or a rule may stop runs.
        self._is_interested = True
        self._studies: dict[int, Study] = {}
        self._troubles: dict[int, int] = {}
        self._curves = RunCurves(files)

    def wake(self) -> None:
        """Look at the searches, because jobs have changed. From any thread, and cheap if there are none."""
        if self._is_interested and self._calls.empty():
            super().wake()

    def expect(self) -> None:
        """Look at the searches: a sweep was made whose rule may stop runs. From any thread."""
        self._is_interested = True
        super().wake()

    def begin(self, sweep_id: int, submission: Submission) -> Future[Added]:
        """Submit the first trials of a search, or continue it with the options of a submission. From any thread."""
        answer: Future[Added] = Future()

        def run() -> None:
            try:
                answer.set_result(self._begin(sweep_id, submission))
            # Whatever it is, the caller hears of it.
            except Exception as error:  # noqa: BLE001
                answer.set_exception(error)

        self._is_interested = True
        self._calls.put(run)
        return answer

    # -- the thread

    def _leave(self) -> None:
        for study in self._studies.values():
            study.close()

    def _look(self) -> float | None:
        began = time.monotonic()
        try:
            return self._drive()
        finally:
            # Changes come in bursts.
            time.sleep(max(0.0, REST_S - (time.monotonic() - began)))

    def _drive(self) -> float | None:
        open_ids = self._reader.trials_left()
        for sweep_id in [each for each in self._studies if each not in open_ids]:
            self._studies.pop(sweep_id).close()
        is_troubled = False
        for sweep_id in open_ids:
            is_troubled |= not self._advance_safely(self._reader.sweep(sweep_id))
        judged = self._reader.sweeps_to_judge()
        has_running = any(self._judge(sweep) for sweep in judged)
        self._curves.keep_only({sweep.id for sweep in judged})
        self._is_interested = bool(open_ids or judged)
        if self._is_interested and self._reader.trials_left().keys() != open_ids.keys():
            return 0.0
        if has_running:
            return LOOK_EVERY_S
        return AGAIN_S if is_troubled else None

    # -- trials

    def _begin(self, sweep_id: int, submission: Submission) -> Added:
        self._troubles.pop(sweep_id, None)
        added = self._do(lambda turn: searches.resume(turn, sweep_id, submission))
        sweep = self._reader.sweep(sweep_id)
        added.fates[Fate.NEW] += self._advance(sweep, submission)
        return added

    def _advance_safely(self, sweep: Sweep) -> bool:
        """Add the trials that a search needs; after repeated trouble end it. Tell whether there was none."""
        try:
            self._advance(sweep)
        except (OSError, DibsError) as error:
            log.warning("the search of sweep %s: %s", sweep.name, error)
            self._troubles[sweep.id] = self._troubles.get(sweep.id, 0) + 1
            text = error.line() if isinstance(error, DibsError) else str(error)
            # A mistake in the request stays one, however often it is tried.
            if isinstance(error, UserError) or self._troubles[sweep.id] >= MOST_TROUBLES:
                self._do(lambda turn: searches.end(turn, sweep.id, text))
            return False
        self._troubles.pop(sweep.id, None)
        return True

    def _advance(self, sweep: Sweep, submission: Submission | None = None) -> int:
        """Tell the study of a search the new results, and queue the trials that are needed; return their number."""
        search, metric = sweep.search, sweep.metric
        if search is None or metric is None:
            return 0
        runs = searches.runs(self._reader, sweep.id)
        if not runs and submission is None:
            # It was just created, and the request with its options follows.
            return 0
        need = trials.need(search, runs, metric, self._slots(sweep, submission))
        if need.ended:
            self._do(lambda turn: searches.end(turn, sweep.id, need.ended))
        if not need.trials:
            return 0
        study = self._study(sweep)
        answer = study.ask([trials.told(run, metric) for run in runs], need.trials)
        added = self._do(lambda turn: searches.add(turn, sweep.id, answer.points, submission))
        if answer.is_over:
            self._do(lambda turn: searches.end(turn, sweep.id, "every point of the space has a run"))
        return added

    def _slots(self, sweep: Sweep, submission: Submission | None) -> int | None:
        """Return how many trials can run at once; None: a cluster may take them, and it alone knows."""
        spec = self._spec(sweep, submission)
        at_once = self._reader.batch_limit(sweep.batch)
        if spec is None or spec.request.engine != LOCAL or spec.overflow is not None:
            return at_once
        slots = searches.slots(spec.request, self._queue.devices.inventory(), self._queue.policy)
        return min(slots, at_once or slots)

    def _spec(self, sweep: Sweep, submission: Submission | None) -> JobSpec | None:
        if submission is not None:
            return submission.spec
        newest = self._reader.newest_run(sweep.id)
        return None if newest is None else newest.spec

    def _study(self, sweep: Sweep) -> Study:
        """Return the study of a search; another one if the search was submitted again with other options."""
        about = about_study(sweep, self._files.home / "searches")
        study = self._studies.get(sweep.id)
        if study is None or study.about != about:
            if study is not None:
                study.close()
            study = self._studies[sweep.id] = Study(about)
        return study

    # -- early stopping

    def _judge(self, sweep: Sweep) -> bool:
        """Stop the runs of a sweep that its rule rejects; return whether runs are left that it may reject later."""
        if sweep.early_stop is None or sweep.metric is None:
            return False
        curves = self._curves.read(sweep.id, self._reader.runs_to_compare(sweep.id), sweep.metric)
        stops = early_stop.decide(sweep.early_stop, curves, sweep.goal or MINIMIZE)
        if stops:
            self._do(lambda turn: searches.stop_early(turn, stops))
        return any(curve.is_running for curve in curves)

    def _do(self, work: Callable[[Turn], T]) -> T:
        return self._queue.ask(work).result()


def about_study(sweep: Sweep, folder: Path) -> dict[str, Any]:
    """Return what the process of a study must know; its storage is in the state folder."""
    assert sweep.search is not None
    folder.mkdir(mode=0o700, exist_ok=True)
    return {
        "space": json.loads(sweep.search.space),
        "sampler": sweep.search.sampler,
        "seed": sweep.search.seed,
        "goal": sweep.goal or MINIMIZE,
        "storage": str(folder / f"{sweep.id}.journal"),
        "name": f"{sweep.project}/{sweep.name}",
        "made_for": f"{sweep.project}/{sweep.name} {sweep.created_at}",
    }
