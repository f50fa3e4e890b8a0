"""The core thread: the one writer, and the heart of the daemon.

It drains what came in (verbs of users, news of runners), runs all of it and one round of placing in one transaction,
commits, and only then answers and acts. A crash before the commit changed nothing; after it, recovery finds the rest.
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dibs import dispatch, records, scheduling, verbs, views
from dibs.attempts import Shim, crash_point
from dibs.devices import DeviceId, Inventory
from dibs.engines.local import Local
from dibs.errors import Bug, Busy, DibsError, MachineError
from dibs.jobs import Job, JobId
from dibs.notices import Notices
from dibs.standing import Outlook, Standing
from dibs.store import Store
from dibs.tallies import Tally
from dibs.turns import PAUSED, Effect, EndLeftovers, Order, StartRunner, Turn, Watch, WatchOrphan
from dibs.verbs import Submitted
from dibs.views import Active, Occupant, Policy, View, Waiting
from dibs.waits import Waits
from dibs.wishing import Rules, Wish

T = TypeVar("T")
log = logging.getLogger("dibs.core")

#: Requests and news in one transaction at most: keeps a turn short when thousands of jobs end at once.
MOST_IN_A_TURN = 500
#: Seconds until a transaction that the disk refused is tried again.
RETRY_FOR_S = 1.0
#: Seconds until a start about which somebody else is just deciding is looked at again.
LOOK_AGAIN_FOR_S = 0.05
#: Seconds between looks at starts that nobody has told of yet.
CHECK_EVERY_S = 1.0
#: Seconds for which the news that a command runs waits for others like it: a short job's end makes it needless, and a
#: turn in which a device is free does not pay for it.
HURRY_S = 0.02
#: Seconds of the longest timer: the wall clock, which `--begin` follows, may be set meanwhile.
LONGEST_TIMER_S = 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """Something to be done in a turn; without an `answer` it is news, which is tried again when the disk refuses."""

    run: Callable[[Turn], Any]
    answer: Future[Any] | None = None
    #: It lets nothing start that could not start before, and after a power cut nobody misses it.
    is_quiet: bool = False


class Observed(Protocol):
    """What the core asks about real devices; `observing.Observing` answers."""

    def hold_back(self, held: Mapping[DeviceId, Occupant], ours: Collection[DeviceId]) -> Mapping[DeviceId, Occupant]:
        """Return who holds what, with the devices that must be looked at before they are given out."""

    def given(self, devices: Collection[DeviceId]) -> None:
        """Take note of devices that were given out."""

    def ask(self) -> None:
        """Have the devices looked at soon, and the core woken after that."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What a turn placed, as our place in the line needs it."""

    #: The first job that waits for devices.
    first: Waiting | None
    #: The devices it collects.
    wanted: tuple[DeviceId, ...]
    outlook: Outlook
    #: Devices of runners that do not hold them yet.
    pending: list[DeviceId]
    #: Of these, the ones that were given out in this turn.
    given: Sequence[DeviceId] = ()


NO_OUTLOOK = Outlook({})
NOTHING_PLACED = Placement(None, (), NO_OUTLOOK, [])


class Core:
    """Runs turns in its own thread; everything else hands it work. `publish` is told which jobs changed."""

    def __init__(
        self,
        store: Store,
        engine: Local,
        standing: Standing,
        policy: Policy,
        inventory: Callable[[], Inventory],
        waits: Waits[Work],
        publish: Callable[[set[JobId]], None],
    ) -> None:
        self.store = store
        self.policy = policy
        self.engine = engine
        self.standing = standing
        self.inventory = inventory
        self.waits = waits
        self.publish = publish
        #: Real devices are looked at before they are given out; None: they are pretend ones, and always well.
        self.observing: Observed | None = None
        #: Called when runs of sweeps have ended.
        self.gather: Callable[[], None] = lambda: None
        #: For those who draw curves.
        self.tally = Tally()
        self.notices = Notices(engine, standing.user, waits.watch, self.tell)
        #: What this thread itself has found to do, and what may wait a moment.
        self._news: list[Work] = []
        self._unhurried: list[Work] = []
        #: Nothing new starts: the daemon is to stop once nothing runs.
        self.is_closing = False
        self._is_over = False
        self._is_checking = False
        self._wakes_at = 0
        self._last_turn_at = 0
        #: The environment that was needed last, by its id.
        self._captured: tuple[int | None, bytes] = None, b""
        #: The starts whose process is watched: one watcher is enough.
        self._watched: set[tuple[JobId, int, int]] = set()

    def ask(self, run: Callable[[Turn], T]) -> Future[T]:
        """Run a verb in the next turn; the answer comes after the commit. From any thread."""
        answer: Future[T] = Future()
        self.waits.post(Work(run, answer))
        return answer

    def tell(self, run: Callable[[Turn], Any]) -> None:
        """Take note of something in the next turn. From any thread."""
        self.waits.post(Work(run))

    def submit_now(self, turn: Turn, wishes: Sequence[Wish], rules: Rules, explain: Callable[[Job], str]) -> Submitted:
        """Queue jobs that all start in this very turn; else raise, and with the turn's step nothing was queued."""
        submitted = verbs.submit(turn, wishes, rules)
        for job_id in submitted.ids:
            dispatch.refresh(turn, turn.store.job(job_id))
        self._place(turn)
        for job_id in submitted.ids:
            job = turn.store.job(job_id)
            if not job.is_active:
                raise Busy(f"it cannot start now: {explain(job) if job.is_waiting else job.remark}.")
        return submitted

    def wake(self) -> None:
        """Place once more: something outside has changed. From any thread."""
        self.tell(_nothing)

    def stop(self) -> None:
        """End the thread after the work that came before. From any thread."""
        self.tell(self._end)

    def _end(self, turn: Turn) -> None:
        self._is_over = True

    def run(self) -> None:
        """Do turns until told to stop. A bug that reaches this far ends the daemon: jobs do not need it, lies hurt."""
        try:
            while not self._is_over:
                posted = self.waits.wait(is_idle=not self._news)
                batch = [*self._news, *posted]
                self._news.clear()
                for first in range(0, len(batch), MOST_IN_A_TURN):
                    began = time.perf_counter()
                    self._turn(batch[first : first + MOST_IN_A_TURN])
                    self.tally.turns.add(time.perf_counter() - began)
                self._settle()
            self.standing.leave()
        except BaseException:
            log.critical("the core cannot go on", exc_info=True)
            os._exit(Bug.exit_code)

    def _turn(self, batch: list[Work]) -> None:
        turn = Turn(self.store, self.engine, self.inventory(), self.policy, now_ms(), self._last_turn_at)
        if all(work.is_quiet for work in batch) and not self.standing.is_granting:
            self._quiet_turn(turn, batch)
            return
        try:
            with self.store.batch():
                answers = [self._do(turn, work) for work in batch]
                followed = self._do(turn, Work(dispatch.follow_up))
                if isinstance(followed, DibsError):
                    raise followed
                placement = self._place(turn)
                crash_point("core:commit")
        except sqlite3.Error as error:
            self._refused(batch, error)
            return
        crash_point("core:committed")
        self._last_turn_at = turn.now
        if self.observing is not None and placement.given:
            # Not before: a look that does not find the job yet would take the device for a free one.
            self.observing.given(placement.given)
        for work, result in zip(batch, answers, strict=True):
            _give(work, result)
        for effect in turn.effects:
            self._act(turn, effect)
        # After the starts: whoever listens makes work for this processor.
        if turn.changed:
            self.publish(turn.changed)
        self._stand(turn, placement)
        self.tally.count(
            [effect.job for effect in turn.effects if isinstance(effect, StartRunner)], turn.ended, turn.now
        )
        if turn.over:
            self.notices.tell(turn)
        if turn.has_unread:
            self.gather()

    def _settle(self) -> None:
        try:
            self.store.settle()
        except sqlite3.Error as error:
            # Nothing is lost: the log only grows, until there is room.
            log.error("the log of the database cannot be copied into it: %s", error)

    def _quiet_turn(self, turn: Turn, batch: list[Work]) -> None:
        """Take note of what entails nothing: no plan, and no sync, which would keep a free device waiting."""
        try:
            with self.store.batch(is_synced=False):
                answers = [self._do(turn, work) for work in batch]
                crash_point("core:commit")
        except sqlite3.Error as error:
            self._refused(batch, error)
            return
        for work, result in zip(batch, answers, strict=True):
            _give(work, result)
        if turn.changed:
            self.publish(turn.changed)

    def _do(self, turn: Turn, work: Work) -> Any:
        mark = turn.mark()
        try:
            with self.store.step():
                return work.run(turn)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError) as error:
            turn.undo(mark)
            log.exception("the store refused a row")
            return Bug(f"the store refused a row: {error}")
        except sqlite3.Error:
            # The disk: nothing of this turn can be kept.
            raise
        except OSError as error:
            turn.undo(mark)
            log.exception("the system refused")
            return MachineError(f"nothing was changed: {error}.")
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
                self.waits.later(RETRY_FOR_S, lambda work=work: self._news.append(work))  # type: ignore[misc]

    def _place(self, turn: Turn) -> Placement:
        self._expect(turn.now)
        heads = self.store.head(*views.windows(turn.inventory, self.policy))
        if not heads and not self.standing.is_waiting:
            return NOTHING_PLACED
        active = self.store.active_devices()
        needs_devices = any(job.request.gpus for job in heads)
        outlook = self._outlook(turn, active) if needs_devices else NO_OUTLOOK
        if outlook is None:
            return NOTHING_PLACED
        held = self._hold_back(outlook, active) if needs_devices and self.observing is not None else outlook.held
        is_paused = self.is_closing or bool(self.store.fact(PAUSED))
        is_choosy = any(job.request.gpus > 1 or job.request.vram for job in heads)
        used_at = self.standing.used_at(turn.inventory) if is_choosy else {}
        view = View(heads, active, held, outlook.line, outlook.ahead, is_paused, outlook.sharers, used_at)
        plan = dispatch.place(turn, view, self.policy)
        pending = [device for job in active if job.started_at is None for device in job.devices]
        given = [device for start in plan.starts for device in start.devices]
        wanted = scheduling.collected(plan, turn.inventory)
        return Placement(plan.first, wanted, outlook, pending + given, given)

    def _hold_back(self, outlook: Outlook, active: Sequence[Active]) -> Mapping[DeviceId, Occupant]:
        """Return who holds what, with the real devices that are to be looked at before they are given out."""
        assert self.observing is not None
        in_use = {device for job in active for device in job.devices}.union(outlook.sharers)
        held = self.observing.hold_back(outlook.held, in_use)
        if len(held) > len(outlook.held):
            self.observing.ask()
        return held

    def _outlook(self, turn: Turn, active: list[Active]) -> Outlook | None:
        """Look at the machine; None if it cannot be seen, and then nothing is started for a moment."""
        try:
            return self.standing.look(turn.inventory, active)
        except (OSError, MachineError) as error:
            log.error("the machine-wide line cannot be read: %s", error)
            self.waits.later(RETRY_FOR_S, self._wake_soon)
            return None

    def _expect(self, now: int) -> None:
        """Wake when the next job may begin, at most one timer ahead."""
        begin_at = self.store.next_begin(now)
        if begin_at is not None and not now < self._wakes_at <= begin_at:
            self._wakes_at = min(begin_at, now + int(LONGEST_TIMER_S * 1000))
            self.waits.later((self._wakes_at - now) / 1000, self._wake_soon)

    def _act(self, turn: Turn, effect: Effect) -> None:
        job = effect.job
        try:
            match effect:
                case StartRunner():
                    self._start(turn, job)
                case Order(line=line):
                    self._order(job, line)
                case Watch(shim=shim):
                    self._watch_runner(job, shim)
                case WatchOrphan(running=None):
                    # Its runner died before it could note the pid: only its locks tell when it is over.
                    self._look_later(job)
                case WatchOrphan(running=running):
                    # One that ended while a child of it lives on is left to the slow tick.
                    self._watch(job, self.engine.adopt_command(running))
                case EndLeftovers():
                    self._when_ended(self.engine.end_leftovers(job, records.LEFTOVER_GRACE_S), lambda: self._look(job))
        except OSError as error:
            # No process, no descriptor, no room: the truth is in the files, so look at them again in a while.
            log.error("job %s: %s", job.id, error)
            self.waits.later(RETRY_FOR_S, lambda: self._look(job, runner_died=False))

    def _look_later(self, job: Job) -> None:
        """Look at a start after a while, once, however often that is asked for meanwhile."""
        key = (job.id, job.attempt, job.start)
        if key not in self._watched:
            self._watched.add(key)
            self.waits.later(CHECK_EVERY_S, lambda: self._ended(job))

    def _start(self, turn: Turn, job: Job) -> None:
        captured, script = self._environ(job.asked.environ_id), self.store.script(job.asked.script_id)
        self.engine.start(job, captured, turn.inventory, lambda: self._ended(job), script)
        self._watched.add((job.id, job.attempt, job.start))
        self._check_starting_later()
        crash_point("core:spawned")

    def _environ(self, environ_id: int | None) -> bytes:
        """Return a captured environment; jobs that start one after the other mostly have the same."""
        if self._captured[0] != environ_id:
            self._captured = environ_id, self.store.environ(environ_id)
        return self._captured[1]

    def _ended(self, job: Job) -> None:
        self._watched.discard((job.id, job.attempt, job.start))
        self._look(job)

    def _check_starting_later(self) -> None:
        """See to it that a start is known to run even if its datagram was lost among many."""
        if not self._is_checking:
            self._is_checking = True
            self.waits.later(CHECK_EVERY_S, lambda: self._news.append(Work(self._check_starting, is_quiet=True)))

    def _check_starting(self, turn: Turn) -> None:
        self._is_checking = False
        if dispatch.check_starting(turn):
            self._check_starting_later()

    def hear(self, sock: socket.socket) -> None:
        """Take in all that runners have told; words that mean nothing are another version's."""
        while True:
            try:
                words = sock.recv(4096).decode(errors="replace").split(" ", 4)
            except BlockingIOError:
                self.waits.watch(sock.fileno(), lambda: self.hear(sock))
                return
            if len(words) == 5 and words[0] in ("running", "stuck") and all(word.isdigit() for word in words[1:4]):
                if not self._unhurried:
                    self.waits.later(HURRY_S, self._hurry)
                self._unhurried.append(Work(_told(words), is_quiet=True))

    def _hurry(self) -> None:
        """Let news that can wait for others like it wait no longer."""
        self._news += self._unhurried
        self._unhurried.clear()

    def _order(self, job: Job, line: str) -> None:
        if not self.engine.order(job, line) and line.startswith("stop"):
            self._when_ended(self.engine.end_leftovers(job, float(line.split()[1])), lambda: self._look(job))

    def _watch_runner(self, job: Job, shim: Shim | None) -> None:
        pidfd = self.engine.adopt(shim)
        if pidfd is None:
            self.waits.later(LOOK_AGAIN_FOR_S, lambda: self._look(job, runner_died=False))
        else:
            self._watch(job, pidfd)

    def _watch(self, job: Job, pidfd: int | None) -> None:
        """Look at a start when its process ends; a second watcher of the same start is not needed."""
        key = (job.id, job.attempt, job.start)
        if pidfd is None:
            return
        if key in self._watched:
            os.close(pidfd)
            return

        self._watched.add(key)
        self._when_ended(pidfd, lambda: self._ended(job))

    def _when_ended(self, pidfd: int, then: Callable[[], None]) -> None:
        def ended() -> None:
            reap(pidfd)
            os.close(pidfd)
            then()

        self.waits.watch(pidfd, ended)

    def _look(self, job: Job, *, runner_died: bool = True) -> None:
        self._news.append(Work(lambda turn: self._looked(turn, job, runner_died)))

    def _looked(self, turn: Turn, job: Job, runner_died: bool) -> None:
        try:
            refusal = dispatch.look(turn, job.id, job.attempt, job.start, runner_died=runner_died)
        except OSError:
            # A disk that does not answer now may answer later; nobody else would look again.
            self.waits.later(RETRY_FOR_S, lambda: self._look(job, runner_died=runner_died))
            raise
        if refusal is not None and not self._is_seen(refusal.device):
            self.waits.later(self.standing.shun(DeviceId(refusal.device)), self._wake_soon)

    def _is_seen(self, device: str) -> bool:
        return bool(self.standing.look(self.inventory(), ()).held.get(DeviceId(device)))

    def _stand(self, turn: Turn, placement: Placement) -> None:
        """Keep our place in the line and watch what is in our way; whatever fails here costs only a late wake-up."""
        try:
            request = placement.first.request if placement.first else None
            self.standing.stand(placement.wanted, request, placement.pending)
            if placement.first is not None and self.standing.watch(placement.outlook, self._wake_soon):
                self._wake_soon()
        except (OSError, DibsError) as error:
            log.error("the machine-wide line: %s", error)

    def _wake_soon(self) -> None:
        self.waits.later(0, lambda: self._news.append(Work(_nothing)))


def _told(words: list[str]) -> Callable[[Turn], None]:
    kind, job_id, attempt, start, rest = words
    return lambda turn: dispatch.hear(turn, kind, JobId(int(job_id)), int(attempt), int(start), rest)


def _nothing(turn: Turn) -> None:
    """Do nothing: a turn always places."""


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
