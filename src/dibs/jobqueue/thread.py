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
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dibs.devices.view import DeviceView
from dibs.engines.job_files import JobFiles
from dibs.engines.local import Local
from dibs.engines.remote import Remote
from dibs.errors import Bug, Busy, DibsError, MachineError
from dibs.jobqueue import control, dispatch, evictions, machine_line
from dibs.jobqueue.backoff import Backoff
from dibs.jobqueue.control import Cancel, Submitted
from dibs.jobqueue.counters import Tally
from dibs.jobqueue.effects import RETRY_FOR_S, EffectRunner
from dibs.jobqueue.machine_line import MachineLine, Outlook
from dibs.jobqueue.notifications import Notices
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.remote import dispatch as remote_dispatch
from dibs.jobqueue.shared_forecast import SharedForecast
from dibs.jobqueue.turns import PAUSED, Acted, StartRunner, Turn, Work
from dibs.jobqueue.validation import Rules, Submission
from dibs.model.devices import DeviceId, Inventory, with_faults
from dibs.model.jobs import Job
from dibs.scheduling import planner, views
from dibs.scheduling.project_use import WEEK_MS, ProjectUse, WeekUse
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
#: Seconds between two looks at the line because of bells.
RING_EVERY_S = 0.1
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
    #: Our evictable jobs yield to those in the line.
    is_yielding: bool = False
    #: A device that the first job could use is free, and is left to tickets ahead of ours.
    is_left: bool = False


NO_OUTLOOK = Outlook({})
NOTHING_PLACED = Placement(None, (), NO_OUTLOOK, [])


@dataclass(eq=False)
class QueueThread:
    """Run turns in one thread, which all others send work to. `publish` is called when jobs changed."""

    store: Store
    engine: Local
    files: JobFiles
    settings: Settings
    line: MachineLine
    policy: Policy
    devices: DeviceView
    request_reading: Callable[[], None]
    waits: Reactor[Work]
    publish: Callable[[], None]
    #: Called when jobs with unread numbers have finished.
    read_numbers: Callable[[], None]
    #: The number of commits; the queue is unchanged while this is. Read from any thread.
    commits: int = 0
    #: Start nothing new: the daemon stops when no job runs.
    is_closing: bool = False
    #: The engines that others operate, by name.
    remotes: Mapping[str, Remote] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: The forecast that all readers share.
        self.forecast = SharedForecast()
        #: For metrics.
        self.tally = Tally()
        self.notices = Notices(self.files, self.settings, self.line.user, self.waits.watch, self.tell)
        #: Work that this thread posts to itself.
        self._news: list[Work] = []
        folders = [str(self.files.home), str(self.files.output_home), self.line.folder.line_path]
        self.backoff = Backoff(self.devices, self.line, self.waits, self._wake_soon, folders)
        self.effect_runner = EffectRunner(self.store, self.engine, self.waits, self._news.append, self.backoff.refuse)
        self.project_use = ProjectUse(self.settings.fair_half_life)
        now = now_ms()
        self.project_use.begin(self.store.project_times(self.project_use.since(now)), now)
        self._week_use = WeekUse(self.store.ordinary_times(now - WEEK_MS))
        #: GPU-hours of projects with a quota of them, as of the last placement. Replaced as a whole.
        self.project_hours: Mapping[str, float] = {}
        self._looks_at_hours = False
        self.line.restore(self.store.people_days(0))
        self._restore_reservations()
        self._ballast = Ballast(self.files.home)
        self._is_over = False
        #: The last logged loss of the database.
        self._loss = ""
        #: A timer is set that looks whether the database is back.
        self._awaits_return = False
        #: When the timers end that wake us at a time, by what they wait for.
        self._wakes_at: dict[str, int] = {}
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
            log.critical("the queue thread cannot continue", exc_info=True)
            os._exit(Bug.exit_code)

    def _new_turn(self) -> Turn:
        return Turn(
            self.store,
            self.engine,
            self.files,
            self.settings,
            self.devices.inventory(),
            self._policy(),
            now_ms(),
            self._last_turn_at,
            self.remotes,
        )

    def _policy(self) -> Policy:
        """Return the policy with root's quotas, which are rare and may have changed."""
        projects = self.line.project_quotas(self.settings.rules.own_project)
        if projects != self.policy.project_quotas:
            self.policy = replace(self.policy, project_quotas=projects)
        quotas = self.line.quotas()
        return replace(self.policy, quotas=quotas) if quotas else self.policy

    def _turn(self, batch: list[Work]) -> None:
        """Run work in one transaction; after work that lets nothing start, without placement and a disk sync."""
        turn = self._new_turn()
        is_quiet = all(work.is_quiet for work in batch) and not self.line.is_granting
        placement = NOTHING_PLACED
        try:
            with self.store.batch(is_synced=not is_quiet):
                answers = [self._do(turn, work) for work in batch]
                if not is_quiet:
                    self._follow_up(turn)
                    placement = self._place(turn)
                crash_point("core:commit")
        except (sqlite3.Error, FileGone) as error:
            self._rescue(batch, error)
            return
        # Before any answer: a client that learns of a change must be able to read it.
        self.commits += 1
        self.backoff.accept(turn.begun)
        if not is_quiet:
            crash_point("core:committed")
            if self._loss:
                self._note_return()
            self._last_turn_at = turn.now
        if placement.given and self.devices.is_real:
            # After the commit: a reading that does not find the job yet would see the device as free.
            self.devices.note_given(placement.given)
            self.request_reading()
        for work, result in zip(batch, answers, strict=True):
            _give(work, result)
        for effect in turn.effects:
            self.effect_runner.act(turn, effect)
        for job, refusal in turn.refused:
            self.backoff.refuse(job, refusal)
        # After the starts, because listeners take processor time.
        if turn.changed:
            self.publish()
        if turn.has_unread_numbers:
            self.read_numbers()
        if is_quiet:
            return
        self._stand(placement)
        self.tally.count(
            [effect.job for effect in turn.effects if isinstance(effect, StartRunner)], turn.finished, turn.now
        )
        self.project_use.add(turn.finished, turn.now)
        self._week_use.add(turn.finished, turn.now)
        if turn.finished_for_good:
            self.notices.tell(turn)

    def _follow_up(self, turn: Turn) -> None:
        followed = self._do(turn, Work(dispatch.follow_up))
        if isinstance(followed, DibsError):
            raise followed

    def _settle(self) -> None:
        try:
            self.store.settle()
        except sqlite3.Error as error:
            # Nothing is lost: the write-ahead log grows until there is space.
            log.error("the database checkpoint failed: %s", error)

    def _do(self, turn: Turn, work: Work) -> Any:
        mark = turn.mark()
        try:
            with self.store.step():
                return work.run(turn)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError) as error:
            turn.undo(mark)
            log.exception("the database refused a row")
            return Bug(f"the database refused a row: {error}")
        except (sqlite3.Error, FileGone):
            # The disk failed, or the file is gone: nothing of this turn can be stored.
            raise
        except OSError as error:
            turn.undo(mark)
            log.exception("system error")
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
            why = "the database was deleted" if error.is_final else "the database is not accessible"
            self._refuse(batch, error, why)
            return
        log.error("cannot write the database: %s", error)
        refusal = MachineError(
            f"nothing was changed: the state folder cannot be written ({error}).", "Free some disk space."
        )
        vital = [work for work in batch if work.answer is None or isinstance(work.run, Cancel)]
        if vital and self._ballast.release():
            log.warning("the reserve file was deleted to make room on the disk")
            self._refuse([work for work in batch if work not in vital], refusal, str(error))
            self._turn(vital)
        else:
            self._refuse(batch, refusal, str(error))

    def _tell_loss(self, error: FileGone) -> None:
        """Log the loss of the database and wake who waits for changes, once: every further turn fails too."""
        if error.is_folder:
            # No client finds us, and another daemon may run here: its sockets have the names of ours, so nothing is
            # cleaned up. Jobs run on.
            log.critical("%s", error.line())
            os._exit(error.exit_code)
        if self._loss != error.line():
            self._loss = error.line()
            log.error("cannot write the database: %s", self._loss)
            self.publish()
        if not error.is_final and not self._awaits_return:
            self._awaits_return = True
            self.waits.later(RETRY_FOR_S, self._look_for_return)

    def _look_for_return(self) -> None:
        self._awaits_return = False
        self._wake_soon()

    def _note_return(self) -> None:
        """Log that the database is in its place again."""
        log.warning("the database is accessible again")
        self._loss = ""
        self.publish()

    def _refuse(self, batch: list[Work], refusal: MachineError, why: str) -> None:
        """Answer that nothing was stored; stop jobs anyway, and record that and the messages of runners later."""
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
            if isinstance(refusal, FileGone) and refusal.is_final:
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
        self._wake_at(self.store.next_begin(turn.now), "begin time", turn.now)
        self._observe()
        now = time.monotonic()
        pauses = self.backoff.pauses
        if self.remotes and not self.is_closing and not self.store.fact(PAUSED):
            remote_dispatch.place(turn, pauses.resting(now))
        # A device may have been refused in this turn.
        turn.inventory = with_faults(turn.inventory, pauses.unusable(now))
        turn.inventory = self._mark_reserved(turn.inventory, turn.now)
        heads = self.backoff.waiting_jobs(self.store, turn.inventory, self.policy, now)
        active = self.line.apart(self.store.active_devices())
        is_yielding = any(job.is_evictable for job in active)
        if not heads and not self.line.is_waiting and not is_yielding:
            return NOTHING_PLACED
        self._count_hours(active, turn.now)
        heads = self.in_order(views.bounded(heads, active, self.bounding_policy), active, turn.now)
        needs_devices = is_yielding or any(job.request.gpus for job in heads)
        outlook = self._outlook(turn, active) if needs_devices else NO_OUTLOOK
        if outlook is None:
            return NOTHING_PLACED
        held = self._hold_back(outlook, active) if needs_devices else outlook.held
        lendable = self._lendable(outlook, heads)
        is_refused = pauses.told([job.id for job in active], now) is not None
        is_paused = self.is_closing or bool(self.store.fact(PAUSED)) or is_refused
        is_choosy = any(job.request.gpus > 1 or job.request.vram for job in heads)
        used_at = self.line.used_at(turn.inventory) if is_choosy else {}
        heads, active = self.store.histories.in_plan(heads, active)
        own = str(os.geteuid())
        view = View(
            heads, active, held, outlook.line, outlook.ahead, is_paused, outlook.sharers, used_at, user=own,
            lendable=lendable,
        )  # fmt: skip
        policy = machine_line.within_quotas(self.policy, outlook.bounds, active)
        plan = dispatch.place(turn, view, policy, pauses)
        if is_yielding:
            decision = evictions.evict(turn, view, policy, plan)
            self.line.expect(device for each in decision.evictions if each.id is None for device in each.devices)
            self._wake_at(decision.again_at, "eviction", turn.now)
        if is_yielding or any(job.is_evictable for job in heads):
            self.line.listen(self._ring)
        self.backoff.pauses = pauses.probed_by(plan.starts)
        pending = [device for job in active if job.started_at is None for device in job.devices]
        given = [device for start in plan.starts for device in start.devices]
        wanted = planner.collected(plan, turn.inventory)
        free = planner.free_devices(view, turn.inventory).difference(given) if outlook.ahead else ()
        is_left = not {*wanted}.isdisjoint(free)
        return Placement(plan.first, wanted, outlook, pending + given, given, is_yielding, is_left)

    def _wake_at(self, at: int | None, reason: str, now: int) -> None:
        """Set a timer for a time, at most one for each reason."""
        if at is not None and not now < self._wakes_at.get(reason, 0) <= at:
            self._wakes_at[reason] = min(at, now + int(LONGEST_TIMER_S * 1000))
            self.waits.later((self._wakes_at[reason] - now) / 1000, lambda: self._wake_for(reason))

    def _wake_for(self, reason: str) -> None:
        # The timer may be early by the clock of `now_ms`; then it is set again.
        self._wakes_at.pop(reason, None)
        self._wake_soon()

    def _ring(self) -> None:
        """Look at the line because somebody new waits; a flood of rings costs ten turns a second at most."""
        self._wake_soon()
        self.waits.later(RING_EVERY_S, lambda: self.line.listen_again(self._ring))

    def _hold_back(self, outlook: Outlook, active: Sequence[Active]) -> Mapping[DeviceId, Occupant]:
        """Return the holders of devices, including devices that must be read again before they are assigned."""
        in_use = {device for job in active for device in job.devices}.union(outlook.sharers)
        held = self.devices.hold_back(outlook.held, in_use)
        if len(held) > len(outlook.held):
            self.request_reading()
        return held

    def _lendable(self, outlook: Outlook, heads: Sequence[WaitingJob]) -> frozenset[DeviceId]:
        """Return the devices with idle leases, if a job waits that may use them; have them read if that is too old."""
        if self.line.idle_after_s is None or not any(job.is_evictable and job.request.gpus for job in heads):
            return frozenset()
        if not self.devices.is_fresh:
            self.request_reading()
        return self.lendable(outlook.held) - outlook.lent

    def lendable(self, held: Mapping[DeviceId, Occupant]) -> frozenset[DeviceId]:
        """Return those of the held devices that root lends to evictable jobs, because their leases are idle."""
        after_s = self.line.idle_after_s
        if after_s is None:
            return frozenset()
        ordinary = [device for device, who in held.items() if not who.is_evictable and not who.lent_to]
        return self.devices.lendable(after_s).intersection(ordinary)

    def _outlook(self, turn: Turn, active: list[Active]) -> Outlook | None:
        """Read the machine's state; if that fails, return None, and nothing starts until the retry."""
        try:
            return self.line.look(turn.inventory, active)
        except OSError as error:
            self.backoff.pause_queue(f"the leases cannot be read: {refusals.describe(error)}")
        except MachineError as error:
            self.backoff.pause_queue(error.message.rstrip("."))
        return None

    def _mark_reserved(self, inventory: Inventory, now: int) -> Inventory:
        """Return the inventory with what is reserved; set a timer for the next change of that."""
        try:
            inventory, change_at = self.line.with_reservations(inventory, self.policy.assumed_s, now)
        except (OSError, MachineError) as error:
            log.error("the reservations: %s", error)
            return inventory
        self._wake_at(change_at, "reservation", now)
        return inventory

    @property
    def bounding_policy(self) -> Policy:
        """Return the policy with what the quotas of projects bound. From any thread."""
        return replace(self.policy, project_hours=self.project_hours) if self.project_hours else self.policy

    def _count_hours(self, active: Sequence[Active], now: int) -> None:
        """Count the GPU-hours of projects with a quota of them; look again soon while one is used up."""
        quotas = self.policy.project_quotas.items()
        most = {name: quota.gpu_hours_per_week for name, quota in quotas if quota.gpu_hours_per_week is not None}
        self.project_hours = self._week_use.hours(active, now) if most else {}
        is_used_up = any(self.project_hours.get(name, 0.0) >= hours for name, hours in most.items())
        if is_used_up and not self._looks_at_hours:
            self._looks_at_hours = True
            self.waits.later(LONGEST_TIMER_S, self._look_at_hours)

    def _look_at_hours(self) -> None:
        self._looks_at_hours = False
        self._wake_soon()

    def in_order(self, heads: list[WaitingJob], active: Sequence[Active], now: int) -> list[WaitingJob]:
        """Return waiting jobs with the turn of their projects, if these take turns. From any thread."""
        if not self.settings.fair_projects:
            return heads
        return views.by_project(heads, self.project_use.now_s(active, now))

    def _observe(self) -> None:
        """Record who has devices; a failure here costs nobody a device."""
        try:
            if self.line.observe():
                self.store.keep_people(self.line.people_days())
                self._restore_reservations()
        except (OSError, MachineError) as error:
            log.error("the record of device time: %s", error)

    def _restore_reservations(self) -> None:
        """Put back reservations that the lease folder lost; a failure here costs nobody a job."""
        try:
            self.line.restore_reservations(self.files.home)
        except (OSError, MachineError) as error:
            log.error("reservations: %s", error)

    def _stand(self, placement: Placement) -> None:
        """Update our place in the line and watch obstacles; a failure here only delays a wake-up."""
        try:
            request = placement.first.request if placement.first else None
            self.line.update_ticket(placement.wanted, request, placement.pending)
            if placement.first is None and not placement.outlook.bounds and not placement.is_yielding:
                return
            if self.line.watch(placement.outlook, self._wake_soon):
                self._wake_soon()
            elif (again_s := self.line.look_again_s(time.monotonic(), placement.is_left)) is not None:
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
            log.error("events could not be recorded: %s", result.line())
        return
    if isinstance(result, DibsError):
        work.answer.set_exception(result)
    else:
        work.answer.set_result(result)
