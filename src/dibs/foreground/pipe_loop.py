"""The loop of `dibs pipe`: read commands from a stream and start each in a slot as soon as one is free.

One process, one thread, no daemon and no files. The caller chooses the devices and prints what the user sees.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections import deque
from dataclasses import dataclass

from dibs.foreground import child
from dibs.foreground.pipe_values import Ended, Job, counted
from dibs.foreground.signals import Signals
from dibs.model import units
from dibs.system import process_tree, processes
from dibs.system.lean import signal
from dibs.system.process_tree import KILL_EVERY_S, LEFTOVER_GRACE_S, NEVER, SETTLE_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.foreground.command_lines import Lines
    from dibs.foreground.pipe_values import Observer, Rules
    from dibs.foreground.slots import Slot, Slots

#: Bytes per read, and commands to read ahead of those that run: a stream may be endless.
READ_BYTES = 65536
READ_AHEAD = 64

#: Signals that stop the pipe; each one is a step of `Pipe.stop`.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Signals that would stop a command forever when it uses the terminal. Ignored, its request fails instead.
TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)

#: Errors of a start that may succeed after another command has ended.
FULL = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


@dataclass(slots=True, eq=False)
class _Run:
    """A command that was started."""

    job: Job
    slot: Slot
    pid: int
    began_at: float
    #: The result of the command, while a process that it left still runs.
    result: Ended | None = None
    settle_at: float = NEVER
    kill_at: float = NEVER
    #: When it is ended because of its time limit, and whether that has begun.
    late_at: float = NEVER
    is_late: bool = False


class Pipe:
    """One run of a pipe: reads, starts and waits until the stream and the last command have ended."""

    def __init__(
        self, stream_fd: int, lines: Lines, slots: Slots, environ: Callable[[Slot], dict[bytes, bytes]], rules: Rules,
        observer: Observer,
    ) -> None:  # fmt: skip
        self._lines = lines
        self._slots = slots
        self._environ = environ
        self._rules = rules
        self._observer = observer
        self._fd = _own_descriptor(stream_fd)
        #: Read without polling first. A fifo whose writers were gone before we opened it never becomes readable; only a
        #: read shows that it has ended.
        self._is_owned = self._is_eager = self._fd != stream_fd
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._waiting: deque[Job] = deque()
        self._running: dict[int, _Run] = {}
        #: Commands that have ended but left processes running.
        self._leaving: list[_Run] = []
        #: No process could be created; wait until one has ended.
        self._is_full = False
        self._has_children = False
        self._is_read = False
        #: When to end processes that no longer belong to a command.
        self._orphans_at = NEVER
        self._termination = process_tree.Termination()
        #: When the next round of KILL is due, once it has begun.
        self._kill_at = 0.0
        #: Steps of stopping: 1 start nothing more, 2 TERM, 3 KILL.
        self.stopping = 0
        #: The signal that began the stop; None if it was not a signal.
        self.stopped_by: int | None = None
        self.is_halted = False
        self.read = self.started = self.done = self.failed = 0

    @property
    def running(self) -> int:
        """Return the number of running commands."""
        return len(self._running)

    @property
    def dropped(self) -> int:
        """Return the number of commands that were read but not started."""
        return len(self._waiting)

    @property
    def is_cut(self) -> bool:
        """Return whether the stream may hold commands that were not read."""
        return not self._is_read

    def not_started(self) -> str:
        """Describe what was not started because of a stop; empty if nothing."""
        if not self.stopping:
            return ""
        parts = [counted(len(self._waiting))] if self._waiting else []
        return " and ".join([*parts, *(["the rest of the input"] if self.is_cut else [])])

    # -- the loop

    def run(self) -> None:
        """Run until everything has ended. Signals are recorded when they arrive and handled between two steps."""
        # Processes that a command leaves running become our children, so we can find them.
        processes.become_subreaper()
        with Signals(*STOPPING, wake=(signal.SIGCHLD,), ignored=TERMINAL, is_escapable=False) as signals:
            poll = select.poll()
            poll.register(signals, select.POLLIN)
            try:
                while not self._is_over(time.monotonic(), signals):
                    self._sleep(poll, signals)
            finally:
                self._slots.close()
                os.close(self._null)
                if self._is_owned:
                    os.close(self._fd)

    def _is_over(self, now: float, signals: Signals) -> bool:
        """Do everything that is possible now; return whether all is done."""
        self._reap(now)
        # Again after reaping: a signal that arrived before a command ended must count before the next one starts.
        self._handle(signals)
        self._end_late(now)
        self._end_leftovers(now)
        self._start(now)
        if self.stopping > 2 and self._has_children and self._kill(now):
            return True
        is_drained = not self._waiting and (self._is_read or self.stopping > 0)
        if (is_drained or self.stopping) and not self._running and not self._leaving:
            return not self._has_children or not self._end_orphans(now)
        return False

    def _sleep(self, poll: select.poll, signals: Signals) -> None:
        """Wait for an event and record it."""
        fds = set(self._slots.fds())
        is_reading = not self.stopping and not self._is_read and len(self._waiting) < READ_AHEAD
        if is_reading and self._is_eager:
            self._read()
            return
        if is_reading:
            fds.add(self._fd)
        for fd in fds:
            poll.register(fd, select.POLLIN)
        now = time.monotonic()
        wake_at = min(self._wake_at(now), self._observer.changed(self, now))
        ready = {fd for fd, _ in poll.poll(None if wake_at == NEVER else max(0.0, wake_at - now) * 1000 + 0.5)}
        for fd in fds:
            poll.unregister(fd)
        if signals.fileno() in ready:
            signals.drain()
            self._handle(signals)
        if self._fd in ready:
            self._read()
        self._slots.woken(ready, time.monotonic())

    def _handle(self, signals: Signals) -> None:
        for number in signals.take():
            self.stop(number)

    def _wake_at(self, now: float) -> float:
        moments = [run.settle_at if run.kill_at == NEVER else run.kill_at for run in self._leaving]
        if self._rules.limit_s is not None:
            moments += [run.late_at for run in self._running.values()]
        if self._waiting and not self.stopping:
            moments.append(self._slots.ask_at)
        else:
            moments.append(self._slots.rest(now, is_over=self._is_read or self.stopping > 0))
        moments.append(self._orphans_at if self.stopping < 3 else self._kill_at)
        return min(moments)

    # -- reading

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            # Nothing yet, or another reader of the same stream was faster.
            self._is_eager = False
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            # The terminal is gone.
            data = b""
        self._is_read = not data
        self._is_eager = self._is_owned
        for text in self._lines.feed(data):
            self.read += 1
            self._waiting.append(Job(self.read, text))

    # -- starting

    def _start(self, now: float) -> None:
        if self.stopping or self._is_full:
            return
        most = self._rules.most
        while self._waiting:
            if most is not None and len(self._running) + len(self._leaving) >= most:
                self._slots.leave_line()
                return
            slot = self._slots.take(now)
            if slot is None:
                return
            if not self._begin(self._waiting.popleft(), slot) or self.stopping:
                return

    def _begin(self, job: Job, slot: Slot) -> bool:
        """Start one command; return whether to try another."""
        if not job.is_told:
            job.is_told = True
            self._observer.starting(job, slot)
        now = time.monotonic()
        try:
            pid = child.spawn(job, self._rules, self._environ(slot), self._slots.inherited(slot), self._null)
        except (OSError, ValueError) as error:
            self._slots.give(slot, now)
            if isinstance(error, OSError) and error.errno in FULL and self._running:
                self._waiting.appendleft(job)
                self._is_full = True
                return False
            why = error.strerror if isinstance(error, OSError) else None
            self._settle(Ended(job, slot.label, None, 0.0, why or str(error)))
            return True
        self.started += job.attempt == 1
        limit_s = self._rules.limit_s
        self._running[pid] = _Run(job, slot, pid, now, late_at=NEVER if limit_s is None else now + limit_s)
        return True

    # -- ending

    def _reap(self, now: float) -> None:
        ended: list[tuple[_Run, int]] = []

        def record(pid: int, status: int, usage: object) -> None:
            self._is_full = False
            run = self._running.pop(pid, None)
            if run is not None:
                ended.append((run, os.waitstatus_to_exitcode(status)))

        self._has_children = not process_tree.reap(record)
        # Only after all are reaped: a process that ended together with its command was not left running.
        for run, code in ended:
            self._command_ended(run, code, now)

    def _command_ended(self, run: _Run, code: int, now: float) -> None:
        result = Ended(run.job, run.slot.label, code, now - run.began_at)
        if self._rules.ends_leftovers and child.is_left(run.pid):
            run.result = result
            run.settle_at = now + SETTLE_S
            self._leaving.append(run)
        else:
            self._slots.give(run.slot, now)
            self._settle(result)

    def _settle(self, result: Ended) -> None:
        """Count how an attempt ended; retry the command or halt the pipe if the rules say so."""
        job = result.job
        is_failed = result.code != 0
        if is_failed and job.attempt <= self._rules.retries and not self.stopping:
            result.is_retried = True
            self._observer.ended(result)
            job.attempt += 1
            job.is_told = False
            self._waiting.appendleft(job)
            return
        self.done += not is_failed
        self.failed += is_failed
        self._observer.ended(result)
        if is_failed and self.failed == self._rules.halt:
            self.is_halted = True
            self.stopping = max(self.stopping, 1)

    def _end_late(self, now: float) -> None:
        """End and report commands that have reached their time limit: TERM, then KILL."""
        for run in self._running.values() if self._rules.limit_s is not None else ():
            if now < run.late_at:
                continue
            if not run.is_late:
                limit = units.format_duration(self._rules.limit_s or 0.0)
                self._observer.report(f"command {run.job.number} stopped: it reached the {limit} that the quota allows")
            child.signal_group(run.pid, signal.SIGKILL if run.is_late else signal.SIGTERM)
            run.late_at = now + (KILL_EVERY_S if run.is_late else LEFTOVER_GRACE_S)
            run.is_late = True

    def _end_leftovers(self, now: float) -> None:
        """End and report processes that commands left running: TERM, then KILL. Then free their slots."""
        for run in list(self._leaving):
            if not child.is_left(run.pid):
                self._leaving.remove(run)
                self._slots.give(run.slot, now)
                if run.result is not None:
                    self._settle(run.result)
            elif now >= run.kill_at:
                child.signal_group(run.pid, signal.SIGKILL)
                run.kill_at = now + KILL_EVERY_S
            elif now >= run.settle_at:
                left = [proc for proc in process_tree.living() if child.group_of(proc.pid) == run.pid]
                self._observer.report(
                    f"command {run.job.number} left processes running, now stopped: {processes.names(left)}"
                )
                child.signal_group(run.pid, signal.SIGTERM)
                run.settle_at, run.kill_at = NEVER, now + LEFTOVER_GRACE_S

    def _end_orphans(self, now: float) -> bool:
        """End processes that outlive the last command, such as daemons. Return whether to wait for them."""
        left = process_tree.living()
        if not left or not (self._rules.ends_leftovers or self.stopping > 1):
            if left and self.stopping:
                self._observer.report(f"still running: {processes.names(left)}")
            return False
        is_new = not all(map(self._termination.has_terminated, left))
        if self._orphans_at == NEVER:
            self._orphans_at = now + (SETTLE_S if is_new else LEFTOVER_GRACE_S)
        elif now >= self._orphans_at and self.stopping < 3:
            if is_new:
                self._observer.report(f"processes left running, now stopped: {processes.names(left)}")
                self._termination.terminate(left)
            else:
                self.stopping = 3
            self._orphans_at = now + LEFTOVER_GRACE_S
        return True

    def stop(self, number: int) -> None:
        """Take the next step of stopping: start nothing more; TERM everything; KILL everything.

        When a terminal closes, HUP arrives twice, from the kernel and from the shell: that counts as one step.
        """
        if self.stopped_by is None:
            self.stopped_by = number
            self.stopping = max(self.stopping, 1)
            if self._running:
                who = f"{counted(len(self._running))} {'finishes' if len(self._running) == 1 else 'finish'}"
                self._observer.report(f"no more commands start; {who} (send the signal again to stop running commands)")
        elif number != signal.SIGHUP:
            self.stopping += 1
            if self.stopping == 2:
                self._termination.terminate(process_tree.living())

    def _kill(self, now: float) -> bool:
        """KILL everything; return whether to give up on processes that survive it."""
        self._kill_at = self._termination.kill(now)
        if self._termination.is_stuck(now):
            self._observer.report(process_tree.describe_stuck(process_tree.living()))
            return True
        return False


def _own_descriptor(fd: int) -> int:
    """Return a non-blocking descriptor of the same stream if possible: other processes may read it too."""
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # Another user's fifo that we may not open: use the descriptor as it is.
            return fd
    return fd
