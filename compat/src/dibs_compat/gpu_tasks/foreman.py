"""The process that holds the leases: a fresh interpreter in its own session, from which every task is forked.

It waits in the machine-wide line for a place for the next task, and starts there the task that the scheduler sends. It
knows nothing of instances and folders. When the scheduler disconnects, it stops the tasks and exits.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import select
import socket
import time

from dibs.foreground import slot_kinds, slots, supervision
from dibs.leases import device_lease
from dibs_compat.gpu_tasks import messages, task_parent, workers
from dibs_compat.gpu_tasks.orders import Order, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
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
        how = slots.LeaseOptions(device_lease.folder(), note, on_wait=self._waits)
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

    def _sleep(self) -> Task | None:
        """Sleep until something happens, and see to it."""
        poll = select.poll()
        # Once it is gone it would wake us for ever.
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
        begun = task_parent.begin(fds, [fds[0], *inherited], self._order.grace_s)
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
        messages.send(self._scheduler, "ended", int(running.slot.label), *(got[0] if got else (None, 0, "", "")))

    def _tell_all(self, *words: object) -> None:
        for running in self._running.values():
            task_parent.order(running.pid, running.line, *words)


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
