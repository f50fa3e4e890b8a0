"""The queue thread: the only writer of the store.

It takes all pending work (user requests, runner messages), runs it and one round of placement in one transaction,
commits, and only then answers and acts. A crash before the commit changes nothing; after it, recovery completes the
rest.
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from dibs.devices.view import DeviceView
from dibs.engines.job_files import JobFiles
from dibs.engines.local import Local
from dibs.errors import Bug, Busy, DibsError, MachineError
from dibs.jobqueue import control, dispatch
from dibs.jobqueue.backoff import Backoff
from dibs.jobqueue.control import Cancel, Submitted
from dibs.jobqueue.counters import Tally
from dibs.jobqueue.effects import RETRY_FOR_S, EffectRunner
from dibs.jobqueue.machine_line import MachineLine, Outlook
from dibs.jobqueue.notifications import Notices
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.shared_forecast import SharedForecast
from dibs.jobqueue.turns import PAUSED, Acted, StartRunner, Turn, Work
from dibs.jobqueue.validation import Rules, Submission
from dibs.model.devices import DeviceId, with_faults
from dibs.model.jobs import Job
from dibs.scheduling import planner
from dibs.scheduling.views import Active, Occupant, Policy, View, WaitingJob
from dibs.store.writer import FileGone, Store
from dibs.system import refusals
from dibs.system.crash_points import crash_point
from dibs.system.disk import Ballast
from dibs.system.settings import Settings

T = TypeVar("T")
log = logging.getLogger("dibs.jobqueue.thread")

#: Requests and messages in one transaction: keeps a turn short when thousands of jobs end at once.
MOST_IN_A_TURN = 500
#: Seconds of the longest timer, because the wall clock, which `--begin` follows, may be set meanwhile.
LONGEST_TIMER_S = 30.0


@dataclass(frozen=True, slots=True)
class Placement:
    """The result of placement in a turn, as the machine-wide line needs it."""

    #: The first job that waits for devices.
    first: WaitingJob | None
    #: The devices it collects.
    wanted: tuple[DeviceId, ...]
    outlook: Outlook
    #: Devices of runners that do not hold them yet.
    pending: list[DeviceId]
    #: The pending devices that were assigned in this turn.
    given: Sequence[DeviceId] = ()


NO_OUTLOOK = Outlook({})
NOTHING_PLACED = Placement(None, (), NO_OUTLOOK, [])


class QueueThread:
    """Run turns in one thread, which all others send work to. `publish` is called when jobs changed."""

    def __init__(
        self,
        store: Store,
        engine: Local,
        files: JobFiles,
        settings: Settings,
        line: MachineLine,
        policy: Policy,
        devices: DeviceView,
        request_reading: Callable[[], None],
        waits: Reactor[Work],
        publish: Callable[[], None],
        read_numbers: Callable[[], None],
    ) -> None:
        self.store = store
        self.policy = policy
        self.engine = engine
        self.files = files
        self.settings = settings
        self.line = line
        self.devices = devices
        self.request_reading = request_reading
        self.waits = waits
        self.publish = publish
        #: Called when jobs with unread numbers have finished.
        self._read_numbers = read_numbers
        #: The number of commits; the queue is unchanged while this is. Read from any thread.
        self.commits = 0
        #: The forecast that all readers share.
        self.forecast = SharedForecast()
        #: For metrics.
        self.tally = Tally()
        self.notices = Notices(files, settings, line.user, waits.watch, self.tell)
        #: Work that this thread posts to itself.
        self._news: list[Work] = []
        self.backoff = Backoff(devices, line, waits, self._wake_soon)
        self.effect_runner = EffectRunner(store, engine, waits, self._news.append, self.backoff.refuse)
        self._ballast = Ballast(files.home)
        #: Start nothing new: the daemon stops when no job runs.
        self.is_closing = False
        self._is_over = False
        #: The last logged loss of the database.
        self._loss = ""
        self._wakes_at = 0
        self._last_turn_at = 0

    def ask(self, run: Callable[[Turn], T]) -> Future[T]:
        """Run a verb in the next turn; the future completes after the commit. From any thread."""
        answer: Future[T] = Future()
        self.waits.post(Work(run, answer))
        return answer

    def tell(self, run: Callable[[Turn], Any]) -> None:
        """Run work in the next turn, without an answer. From any thread."""
        self.waits.post(Work(run))

    def submit_now(
        self, turn: Turn, submissions: Sequence[Submission], rules: Rules, explain: Callable[[Job], str]
    ) -> Submitted:
        """Queue jobs that all start in this turn; otherwise raise, which undoes the step."""
        submitted = control.submit(turn, submissions, rules)
        for job_id in submitted.ids:
            dispatch.refresh(turn, turn.store.job(job_id))
        self._place(turn)
        for job_id in submitted.ids:
            job = turn.store.job(job_id)
            if not job.is_active:
                raise Busy(f"it cannot start now: {explain(job) if job.is_waiting else job.remark}.")
        return submitted

    def wake(self) -> None:
        """Run a placement, because something outside the queue has changed. From any thread."""
        self.tell(_nothing)

    def close(self, is_wanted: bool) -> None:
        """Start no further jobs, or start jobs again. From any thread."""
        self.is_closing = is_wanted
        self.wake()

    def listen(self, sock: socket.socket) -> None:
        """Receive the messages of runners. Call before the thread starts."""
        self.waits.watch(sock.fileno(), lambda: self.effect_runner.hear(sock))

    def stop(self) -> None:
        """End the thread after the work that is already posted. From any thread."""
        self.tell(self._end)

    def _end(self, turn: Turn) -> None:
        self._is_over = True

    def run(self) -> None:
        """Run turns until stopped. An unexpected error ends the daemon: jobs survive that, and records stay correct."""
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
            self.line.leave()
        except BaseException:
            log.critical("the core cannot go on", exc_info=True)
            os._exit(Bug.exit_code)

    def _new_turn(self) -> Turn:
        return Turn(
            self.store,
            self.engine,
            self.files,
            self.settings,
            self.devices.inventory(),
            self.policy,
            now_ms(),
            self._last_turn_at,
        )

    def _turn(self, batch: list[Work]) -> None:
        turn = self._new_turn()
        if all(work.is_quiet for work in batch) and not self.line.is_granting:
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
        except (sqlite3.Error, FileGone) as error:
            self._rescue(batch, error)
            return
        # Before any answer: a client that learns of a change must be able to read it.
        self.commits += 1
        crash_point("core:committed")
        self._last_turn_at = turn.now
        self.backoff.accept(turn.begun)
        if placement.given and self.devices.is_real:
            # After the commit: a reading that does not find the job yet would see the device as free.
            self.devices.note_given(placement.given)
            self.request_reading()
        for work, result in zip(batch, answers, strict=True):
            _give(work, result)
        for effect in turn.effects:
            self.effect_runner.act(turn, effect)
        # After the starts, because listeners take processor time.
        if turn.changed:
            self.publish()
        self._stand(turn, placement)
        self.tally.count(
            [effect.job for effect in turn.effects if isinstance(effect, StartRunner)], turn.finished, turn.now
        )
        if turn.finished_for_good:
            self.notices.tell(turn)
        if turn.has_unread_numbers:
            self._read_numbers()

    def _settle(self) -> None:
        try:
            self.store.settle()
        except sqlite3.Error as error:
            # Nothing is lost: the write-ahead log grows until there is space.
            log.error("the log of the database cannot be copied into it: %s", error)

    def _quiet_turn(self, turn: Turn, batch: list[Work]) -> None:
        """Record work that lets nothing start, without placement and without a disk sync."""
        try:
            with self.store.batch(is_synced=False):
                answers = [self._do(turn, work) for work in batch]
                crash_point("core:commit")
        except (sqlite3.Error, FileGone) as error:
            self._rescue(batch, error)
            return
        self.commits += 1
        self.backoff.accept(turn.begun)
        for work, result in zip(batch, answers, strict=True):
            _give(work, result)
        for effect in turn.effects:
            self.effect_runner.act(turn, effect)
        if turn.changed:
            self.publish()

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
            # The disk failed: nothing of this turn can be stored.
            raise
        except OSError as error:
            turn.undo(mark)
            log.exception("the system refused")
            return MachineError(f"nothing was changed: {error}.")
        except DibsError as error:
            turn.undo(mark)
            return error
        # An error of one job must not stop the others.
        except Exception as error:
            turn.undo(mark)
            log.exception("work failed")
            return Bug(f"{type(error).__name__}: {error}")

    def _rescue(self, batch: list[Work], error: sqlite3.Error | FileGone) -> None:
        """After a failed commit, release the ballast for what stops jobs or records their ends; refuse the rest."""
        if isinstance(error, FileGone):
            self._tell_loss(error)
            self._refuse(batch, error, "the database was deleted")
            return
        log.error("the disk refused a transaction: %s", error)
        refusal = MachineError(
            f"nothing was changed: the state folder cannot be written ({error}).", "Free some space?"
        )
        vital = [work for work in batch if work.answer is None or isinstance(work.run, Cancel)]
        if vital and self._ballast.release():
            log.warning("the ballast was released")
            self._refuse([work for work in batch if work not in vital], refusal, str(error))
            self._turn(vital)
        else:
            self._refuse(batch, refusal, str(error))

    def _tell_loss(self, error: FileGone) -> None:
        """Log the loss of the database and wake who waits for changes, once: every further turn fails too."""
        if self._loss != error.line():
            self._loss = error.line()
            log.error("the disk refused a transaction: %s", self._loss)
            self.publish()

    def _refuse(self, batch: list[Work], refusal: MachineError, why: str) -> None:
        """Answer that nothing was stored; stop jobs nevertheless, and record that and the messages of runners later."""
        for work in batch:
            if work.run == self._end:
                self._is_over = True
                continue
            run = work.run
            if isinstance(run, Cancel) and work.answer is not None:
                acted = self._deliver(run, why)
                _give(work, acted)
                if isinstance(acted, DibsError) or not (acted.changed or acted.unchanged):
                    continue
                run = run.of(acted)
            elif work.answer is not None:
                _give(work, refusal)
                continue
            if isinstance(refusal, FileGone):
                # Nothing is stored before a restart, which examines all jobs.
                continue
            again = Work(run, is_quiet=work.is_quiet)
            self.waits.later(RETRY_FOR_S, lambda again=again: self._news.append(again))  # type: ignore[misc]

    def _deliver(self, request: Cancel, why: str) -> Acted | DibsError:
        """Stop jobs without a record: ending a process must never need space on the disk."""
        turn = self._new_turn()
        try:
            acted = request.deliver(turn, why)
        except DibsError as error:
            return error
        for effect in turn.effects:
            self.effect_runner.act(turn, effect)
        return acted

    def _place(self, turn: Turn) -> Placement:
        self._expect(turn.now)
        now = time.monotonic()
        pauses = self.backoff.pauses
        # A device may have been refused in this turn.
        turn.inventory = with_faults(turn.inventory, pauses.unusable(now))
        heads = self.backoff.waiting_jobs(self.store, turn.inventory, self.policy, now)
        if not heads and not self.line.is_waiting:
            return NOTHING_PLACED
        active = self.store.active_devices()
        needs_devices = any(job.request.gpus for job in heads)
        outlook = self._outlook(turn, active) if needs_devices else NO_OUTLOOK
        if outlook is None:
            return NOTHING_PLACED
        held = self._hold_back(outlook, active) if needs_devices else outlook.held
        is_refused = pauses.told([job.id for job in active], now) is not None
        is_paused = self.is_closing or bool(self.store.fact(PAUSED)) or is_refused
        is_choosy = any(job.request.gpus > 1 or job.request.vram for job in heads)
        used_at = self.line.used_at(turn.inventory) if is_choosy else {}
        view = View(heads, active, held, outlook.line, outlook.ahead, is_paused, outlook.sharers, used_at)
        plan = dispatch.place(turn, view, self.policy, pauses)
        self.backoff.pauses = pauses.probed_by(plan.starts)
        pending = [device for job in active if job.started_at is None for device in job.devices]
        given = [device for start in plan.starts for device in start.devices]
        wanted = planner.collected(plan, turn.inventory)
        return Placement(plan.first, wanted, outlook, pending + given, given)

    def _hold_back(self, outlook: Outlook, active: Sequence[Active]) -> Mapping[DeviceId, Occupant]:
        """Return the holders of devices, including devices that must be read again before they are assigned."""
        in_use = {device for job in active for device in job.devices}.union(outlook.sharers)
        held = self.devices.hold_back(outlook.held, in_use)
        if len(held) > len(outlook.held):
            self.request_reading()
        return held

    def _outlook(self, turn: Turn, active: list[Active]) -> Outlook | None:
        """Read the machine's state; if that fails, return None, and nothing starts until the retry."""
        try:
            return self.line.look(turn.inventory, active)
        except OSError as error:
            self.backoff.pause_queue(f"the leases cannot be read: {refusals.describe(error)}")
        except MachineError as error:
            self.backoff.pause_queue(error.message.rstrip("."))
        return None

    def _expect(self, now: int) -> None:
        """Set a timer for the next begin time, at most one."""
        begin_at = self.store.next_begin(now)
        if begin_at is not None and not now < self._wakes_at <= begin_at:
            self._wakes_at = min(begin_at, now + int(LONGEST_TIMER_S * 1000))
            self.waits.later((self._wakes_at - now) / 1000, self._wake_soon)

    def _stand(self, turn: Turn, placement: Placement) -> None:
        """Update our place in the line and watch obstacles; a failure here only delays a wake-up."""
        try:
            request = placement.first.request if placement.first else None
            self.line.update_ticket(placement.wanted, request, placement.pending)
            if placement.first is None:
                return
            if self.line.watch(placement.outlook, self._wake_soon):
                self._wake_soon()
            elif (again_s := self.line.look_again_s(time.monotonic())) is not None:
                self.waits.later(again_s, self._wake_soon)
        except (OSError, DibsError) as error:
            log.error("the machine-wide line: %s", error)

    def _wake_soon(self) -> None:
        self.waits.later(0, lambda: self._news.append(Work(_nothing)))


def _nothing(turn: Turn) -> None:
    """Do nothing; the turn itself runs a placement."""


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
