"""The process that holds the leases: a fresh interpreter in its own session, from which every task is forked.

It waits in the machine-wide line for a place for the next task, and starts there the task that the scheduler sends. It
knows nothing of instances and folders. When the scheduler disconnects, it stops the tasks and exits.

Each task has a parent process of its own: it stops the task on request and ends the processes it leaves behind. It
holds the leases and the folder lock until no process of the task is left. If the foreman dies, the kernel sends a
signal and the parent stops the task with grace; if the parent is killed, the kernel kills the task.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import pickle
import select
import signal
import socket
import sys
import time

from dibs.foreground import slot_kinds, slots, supervision
from dibs.leases import device_lease
from dibs_compat.gpu_tasks import messages, workers
from dibs_compat.gpu_tasks.messages import Order, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import IO


class _RunningTask:
    """A task that was started."""

    def __init__(self, slot: slots.Slot, pid: int, line: socket.socket) -> None:
        self.slot = slot
        #: Of its parent, which is our child.
        self.pid = pid
        self.line = line


class Foreman:
    """Does what the scheduler asks for until it asks for nothing more."""

    def __init__(self, order: Order, scheduler: socket.socket, scheduler_pid: int) -> None:
        self._order = order
        self._scheduler = scheduler
        #: Says when the scheduler is gone, also while something else that it forked has its end of the line.
        self._gone = os.pidfd_open(scheduler_pid)
        note = device_lease.own_note("gpu_task_scheduler", "dibs-compat")
        # The first one first; of those that were freed, the last.
        free = [slots.Slot(place.devices, str(number)) for number, place in enumerate(order.places)]
        how = slots.LeaseOptions(device_lease.folder(), note, on_wait=self._waits, on_limit=self._is_limited)
        self._slots = slot_kinds.FixedSlots(how, free[::-1])
        #: The place that the scheduler was offered for its next task.
        self._offered: slots.Slot | None = None
        self._running: dict[int, _RunningTask] = {}
        self._is_wanted = False
        #: Whether no task will come any more, and whether the scheduler is gone.
        self._is_over = self._is_alone = False

    def run(self) -> Task | None:
        """Do it all; return None when it is over, or a task in the process that is to run it."""
        while self._running or not self._is_alone:
            self._offer(time.monotonic())
            task = self._sleep()
            if task is not None:
                return task
        self._slots.close()
        return None

    def _offer(self, now: float) -> None:
        """Offer the scheduler a place, if it wants one and we can have one now."""
        if not self._is_wanted or self._offered is not None:
            return
        self._offered = self._slots.take(now)
        if self._offered is not None:
            self._is_wanted = False
            messages.send(self._scheduler, "place", int(self._offered.label))

    def _waits(self, wanted: Sequence[str]) -> None:
        messages.send(self._scheduler, "waits", tuple(wanted))

    def _is_limited(self, why: str) -> None:
        messages.send(self._scheduler, "limit", why)

    def _sleep(self) -> Task | None:
        """Sleep until something happens, and see to it."""
        poll = select.poll()
        # Once it has ended, it would wake us forever.
        scheduler = () if self._is_alone else (self._scheduler.fileno(), self._gone)
        for fd in (*scheduler, *self._running, *self._slots.fds()):
            poll.register(fd, select.POLLIN)
        now = time.monotonic()
        wake_at = self._slots.ask_at if self._is_wanted else self._slots.rest(now, is_over=self._is_over)
        ready = {fd for fd, _ in poll.poll(None if wake_at == math.inf else max(0.0, wake_at - now) * 1000 + 0.5)}
        for fd in ready.intersection(self._running):
            self._ended(fd)
        self._slots.woken(ready, time.monotonic())
        if self._gone in ready:
            self._leave()
        elif self._scheduler.fileno() in ready:
            return self._receive()
        return None

    def _leave(self) -> None:
        """Stop all tasks: the scheduler is gone, so nobody reads their results."""
        self._is_wanted, self._is_over, self._is_alone = False, True, True
        self._tell_all("stop", self._order.grace_s)

    def _receive(self) -> Task | None:
        """Handle one request of the scheduler; in a forked worker return its task."""
        got = messages.receive(self._scheduler)
        if got is None:
            self._leave()
            return None
        (verb, *words), fds = got
        match verb:
            case "want":
                self._is_wanted = True
            case "run":
                return self._begin(str(words[0]), words[1], fds)
            case "pass" if self._offered is not None:
                self._slots.give(self._offered, time.monotonic())
                self._offered = None
            case "over":
                self._is_wanted, self._is_over = False, True
            case "tell":
                self._tell_all(*words)
        return None

    def _begin(self, work_dir: str, log: object, fds: list[int]) -> Task | None:
        """Start a task in the place that was offered: the configuration is the first descriptor."""
        slot, self._offered = self._offered, None
        if slot is None:
            raise RuntimeError("a task came for which no place was offered")
        inherited = tuple(self._slots.inherited(slot))
        task = Task(self._order.places[int(slot.label)], work_dir, None if log is None else str(log), fds[0], inherited)
        begun = _fork(fds, [fds[0], *inherited], self._order)
        if begun is None:
            # Their numbers will soon mean something else.
            for sock in (self._scheduler, *(running.line for running in self._running.values())):
                sock.detach()
            return task
        for fd in fds:
            os.close(fd)
        self._running[begun[1].fileno()] = _RunningTask(slot, *begun)
        return None

    def _ended(self, fd: int) -> None:
        """Take note of the end of a task, and tell it."""
        running = self._running.pop(fd)
        got = messages.receive(running.line)
        running.line.close()
        os.waitpid(running.pid, 0)
        if got is None:
            # It was killed, and the kernel has killed the task: what the task has started is left.
            supervision.kill_orphans({running.pid for running in self._running.values()})
        self._slots.give(running.slot, time.monotonic())
        messages.send(self._scheduler, "ended", int(running.slot.label), *(got[0] if got else (None, 0, "", "", False)))

    def _tell_all(self, *words: object) -> None:
        for running in self._running.values():
            _tell(running.pid, running.line, *words)


def _fork(kept: Collection[int], inherited: Collection[int], order: Order) -> tuple[int, socket.socket] | None:
    """Fork the parent of a task and the task; return the parent and the line to it, or None in the task itself.

    The parent has these descriptors and no others of ours, the task only those it inherits.
    """
    ours, its = messages.pair()
    foreman = os.getpid()
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    task = -1
    try:
        _close_all_but({0, 1, 2, its.fileno(), *kept, *inherited})
        task = _prepare(foreman)
        if task:
            its.setblocking(False)
            final = supervision.supervise(task, order.grace_s, lambda: _orders(its), order.limit_s)
            messages.send(its, final.code, final.signal, final.leftovers, final.note, final.timed_out)
    except BaseException:  # noqa: BLE001 - must not return into the foreman's code
        sys.excepthook(*sys.exc_info())
    if task:
        # Skip the cleanup of the forked interpreter; the foreman sees our exit.
        os._exit(1)
    _close_all_but({0, 1, 2, *inherited})
    for sock in (ours, its):
        sock.detach()
    return None


def _prepare(foreman: int) -> int:
    """Become a subreaper and fork the task; return its pid, 0 in the task."""
    before = supervision.become_supervisor()
    supervision.die_with(foreman, signal.SIGTERM)
    me = os.getpid()
    task = os.fork()
    if task == 0:
        supervision.die_with(me, signal.SIGKILL)
        # Its own group, so that a signal to its group does not reach us.
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return task


def _orders(line: socket.socket) -> list[list[str]]:
    """Return the orders of the foreman; its death arrives as a signal."""
    found: list[list[str]] = []
    with contextlib.suppress(BlockingIOError):
        while (got := messages.receive(line)) is not None:
            found.append([str(word) for word in got[0]])
    return found


def _tell(pid: int, line: socket.socket, *words: object) -> None:
    """Ask the parent of a task for something."""
    if messages.send(line, *words):
        os.kill(pid, signal.SIGUSR1)


def _close_all_but(kept: Collection[int]) -> None:
    for number in {int(name) for name in os.listdir("/proc/self/fd")}.difference(kept):
        # The one that was open for listing the others is closed already.
        with contextlib.suppress(OSError):
            os.close(number)


def main(file: IO[bytes]) -> None:
    """Be the foreman of a scheduler; in a forked process, be a task."""
    # What every task needs, or its parent to wait for it, is loaded once.
    import ctypes  # noqa: F401
    import resource  # noqa: F401

    import gpu_task_scheduler.gpu_task  # noqa: F401

    order, line, scheduler_pid = pickle.load(file)
    file.close()
    # Inherit the descendants of a task if its parent is killed.
    supervision.become_supervisor(())
    # Tasks share our pages as long as no collector writes to them.
    gc.freeze()
    task = Foreman(order, socket.socket(fileno=line), scheduler_pid).run()
    if task is not None:
        workers.run(order, task)
