"""The core thread: the one writer, and the heart of the daemon.

It drains what came in (verbs of users, news of runners), runs all of it and one round of placing in one transaction,
commits, and only then answers and acts. A crash before the commit changed nothing; after it, recovery finds the rest.
"""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dibs import dispatch
from dibs.attempts import crash_point
from dibs.devices import DeviceId, Inventory
from dibs.engines.local import Local
from dibs.errors import Bug, DibsError, MachineError
from dibs.jobs import Job, JobId
from dibs.scheduling import Plan, Policy, View
from dibs.standing import Outlook, Standing
from dibs.store import Store
from dibs.verbs import PAUSED, Effect, LookAgain, Order, StartRunner, Sweep, Turn, Watch

T = TypeVar("T")
log = logging.getLogger("dibs.core")

#: Requests and news in one transaction at most: keeps a turn short when thousands of jobs end at once.
MOST_IN_A_TURN = 500
#: Seconds until a transaction that the disk refused is tried again.
RETRY_FOR_S = 1.0
#: Seconds until a start about which somebody else is just deciding is looked at again.
LOOK_AGAIN_FOR_S = 0.05


#: Seconds between TERM and KILL for what a job leaves running when it ends.
LEFTOVER_GRACE_S = 10.0


#: Seconds of the longest timer: the wall clock, which `--begin` follows, may be set meanwhile.
LONGEST_TIMER_S = 30.0


class Outside(Protocol):
    """What the core needs of the thread that waits for things. All of it may be called from any thread."""

    def watch(self, fd: int, then: Callable[[], None]) -> None:
        """Call `then` once, when `fd` becomes readable; it is for `then` to close it."""

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after so many seconds."""

    def publish(self, changed: set[JobId]) -> None:
        """Tell those who wait for jobs that these changed."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something to be done in a turn; without an `answer` it is news, which is tried again when the disk refuses."""

    run: Callable[[Turn], Any]
    answer: Future[Any] | None = None


class Core:
    """Runs turns in its own thread; everything else hands it work."""

    def __init__(
        self,
        store: Store,
        engine: Local,
        standing: Standing,
        policy: Policy,
        inventory: Callable[[], Inventory],
        outside: Outside,
    ) -> None:
        self.store = store
        self.policy = policy
        self.engine = engine
        self.standing = standing
        self.inventory = inventory
        self.outside = outside
        self.inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._wakes_at = 0

    def ask(self, run: Callable[[Turn], T]) -> Future[T]:
        """Run a verb in the next turn; the answer comes after the commit."""
        answer: Future[T] = Future()
        self.inbox.put(Work(run, answer))
        return answer

    def tell(self, run: Callable[[Turn], Any]) -> None:
        """Take note of something in the next turn."""
        self.inbox.put(Work(run))

    def wake(self) -> None:
        """Place once more: something outside has changed."""
        self.tell(lambda turn: None)

    def stop(self) -> None:
        """End the thread after the work that came before."""
        self.inbox.put(None)

    def run(self) -> None:
        """Do turns until told to stop. A bug that reaches this far ends the daemon: jobs do not need it, lies hurt."""
        is_last = False
        try:
            while not is_last:
                batch, is_last = self._collect()
                if batch:
                    self._turn(batch)
            self.standing.leave()
        except BaseException:
            log.critical("the core cannot go on", exc_info=True)
            os._exit(Bug.exit_code)

    def _collect(self) -> tuple[list[Work], bool]:
        batch: list[Work] = []
        item = self.inbox.get()
        while item is not None:
            batch.append(item)
            if len(batch) >= MOST_IN_A_TURN or self.inbox.empty():
                return batch, False
            item = self.inbox.get()
        return batch, True

    def _turn(self, batch: list[Work]) -> None:
        turn = Turn(self.store, self.engine, self.inventory(), self.policy, now_ms())
        try:
            with self.store.batch():
                answers = [self._do(turn, work) for work in batch]
                self._do(turn, Work(dispatch.follow_up))
                plan, outlook = self._place(turn)
                crash_point("core:commit")
        except sqlite3.Error as error:
            self._refused(batch, error)
            return
        crash_point("core:committed")
        for work, result in zip(batch, answers, strict=True):
            _give(work, result)
        if turn.changed:
            self.outside.publish(turn.changed)
        for effect in turn.effects:
            self._act(turn, effect)
        self._stand(turn, plan, outlook)

    def _do(self, turn: Turn, work: Work) -> Any:
        mark = turn.mark()
        try:
            with self.store.step():
                return work.run(turn)
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            if not isinstance(error, sqlite3.IntegrityError):
                raise
            turn.undo(mark)
            log.exception("the store refused a row")
            return Bug(f"the store refused a row: {error}")
        except DibsError as error:
            turn.undo(mark)
            return error
        # One job's trouble must not stop the others; it is logged whole.
        except Exception as error:
            turn.undo(mark)
            log.exception("work failed")
            return Bug(f"{type(error).__name__}: {error}")

    def _refused(self, batch: list[Work], error: sqlite3.Error) -> None:
        """Nothing of the turn was kept: say so to those who asked, and come back to the news later."""
        log.error("the disk refused a transaction: %s", error)
        refusal = MachineError(
            f"nothing was changed: the state folder cannot be written ({error}).", "Free some space?"
        )
        for work in batch:
            if work.answer is not None:
                _give(work, refusal)
        for work in batch:
            if work.answer is None:
                self.outside.later(RETRY_FOR_S, lambda work=work: self.inbox.put(work))  # type: ignore[misc]

    def _place(self, turn: Turn) -> tuple[Plan | None, Outlook]:
        self._expect(turn.now)
        heads = self.store.head(len(turn.inventory.devices) + self.policy.cpu_slots)
        if not heads:
            return None, Outlook({})
        active = self.store.active_devices()
        ours = {device for job in active for device in job.devices}
        needs_devices = any(job.request.gpus for job in heads)
        outlook = self.standing.look(turn.inventory, ours) if needs_devices else Outlook({})
        is_paused = bool(self.store.fact(PAUSED))
        view = View(heads, active, outlook.held, outlook.line, outlook.ahead, is_paused)
        return dispatch.place(turn, view, self.policy), outlook

    def _expect(self, now: int) -> None:
        """Wake when the next job may begin, at most one timer ahead."""
        begin_at = self.store.next_begin(now)
        if begin_at is not None and not now < self._wakes_at <= begin_at:
            self._wakes_at = begin_at
            self.outside.later(min((begin_at - now) / 1000, LONGEST_TIMER_S), self.wake)

    def _act(self, turn: Turn, effect: Effect) -> None:
        job = effect.job
        try:
            match effect:
                case StartRunner():
                    self._start(turn, job)
                case Order(line=line):
                    self._order(job, line)
                case Watch(pidfd=pidfd):
                    self._watch(job, pidfd)
                case Sweep():
                    self._watch(job, self.engine.sweep(job, LEFTOVER_GRACE_S))
                case LookAgain():
                    self.outside.later(LOOK_AGAIN_FOR_S, lambda: self._look(job))
        except OSError as error:
            # No process, no descriptor, no room: the truth is in the files, so look at them again in a while.
            log.error("job %s: %s", job.id, error)
            self.outside.later(RETRY_FOR_S, lambda: self._look(job))

    def _start(self, turn: Turn, job: Job) -> None:
        self.engine.prepare(job, self.store.environ(job.asked.environ_id), turn.inventory)
        crash_point("core:prepared")
        self.engine.start(job, lambda pidfd: self._began(job, pidfd))
        crash_point("core:spawned")

    def _began(self, job: Job, pidfd: int | None) -> None:
        """A runner was made, or the launcher died and nobody knows: then its files tell."""
        if pidfd is None:
            self.tell(lambda turn: dispatch.look(turn, job.id, job.attempt, job.start, runner_died=False))
        else:
            self._watch(job, pidfd)

    def _order(self, job: Job, line: str) -> None:
        if not self.engine.order(job, line) and line.startswith("stop"):
            self._watch(job, self.engine.sweep(job, float(line.split()[1])))

    def _watch(self, job: Job, pidfd: int) -> None:
        def ended() -> None:
            reap(pidfd)
            os.close(pidfd)
            self._look(job)

        self.outside.watch(pidfd, ended)

    def _look(self, job: Job) -> None:
        self.tell(lambda turn: self._looked(turn, job))

    def _looked(self, turn: Turn, job: Job) -> None:
        refusal = dispatch.look(turn, job.id, job.attempt, job.start)
        if refusal is not None and not self._is_seen(refusal.device):
            self.outside.later(self.standing.shun(DeviceId(refusal.device)), self.wake)

    def _is_seen(self, device: str) -> bool:
        return bool(self.standing.look(self.inventory(), ()).held.get(DeviceId(device)))

    def _stand(self, turn: Turn, plan: Plan | None, outlook: Outlook) -> None:
        """Keep our place in the line and watch what is in our way; whatever fails here costs only a late wake-up."""
        try:
            active = self.store.active_devices() if self.standing.is_waiting else []
            pending = [device for job in active if job.started_at is None for device in job.devices]
            self.standing.stand(plan.first if plan else None, turn.inventory, pending)
            if plan is not None and plan.first is not None and self.standing.watch(outlook, self.wake):
                self.wake()
        except (OSError, DibsError) as error:
            log.error("the machine-wide line: %s", error)


def now_ms() -> int:
    """Return the wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


def _give(work: Work, result: Any) -> None:
    if work.answer is None:
        if isinstance(result, DibsError):
            log.error("news could not be recorded: %s", result.line())
        return
    if isinstance(result, DibsError):
        work.answer.set_exception(result)
    else:
        work.answer.set_result(result)


def reap(pidfd: int) -> None:
    """Collect a runner of ours that ended, so that it does not stay a zombie; an adopted one is not ours to collect."""
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return
