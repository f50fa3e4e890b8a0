"""Wait in the machine-wide line: from a task's request to the leases of its GPUs, by events alone.

The line is the machine-wide one. The state file may exclude a GPU too (set aside by hand, or in use by a user of the
old tool): then the file and that process are watched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from dibs.errors import Busy, Impossible
from dibs.foreground.signals import Signals
from dibs.leases import device_lease, waiters
from dibs_compat.schedule.gpus import Gpus
from dibs_compat.schedule.state_file import Entries, Entry, State

#: Seconds between looks at the state file where the kernel has no watch left for us.
UNWATCHED_S = 5.0

#: From <sys/inotify.h>: written, its mode or number of names changed, moved away, deleted.
CHANGED = 0x2 | 0x4 | 0x800 | 0x400


HINT = "-i N sets the number of GPUs."


class StopSignal(Exception):
    """A signal came while we waited."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class GpuRequest:
    """Which GPUs a task asks for."""

    count: int
    #: Taken first if they are free, in this order.
    preferred: tuple[int, ...] = ()
    #: Waited for.
    forced: tuple[int, ...] = ()

    def check(self, total: int) -> None:
        """Refuse what no waiting would bring on a machine with `total` GPUs."""
        known = f"GPU{'s' if total > 2 else ''} 0{f' to {total - 1}' if total > 1 else ''}" if total else "no GPU"
        for number in (*self.forced, *self.preferred):
            if not 0 <= number < total:
                raise Impossible(f"there is no GPU {number}, only {known}.", HINT)
        if self.count > total:
            raise Impossible(f"the task asks for {self.count} GPUs; the state file has {known}.", HINT)

    def candidates(self, usable: Sequence[int], free: Sequence[int]) -> list[int]:
        """Return the numbers of which `count` will do, the best first; fewer than that if it cannot be now."""
        if len(self.forced) >= self.count and self.forced:
            return [number for number in self.forced if number in usable]
        rest = [*free, *(number for number in usable if number not in free)]
        if self.forced:
            # All of these, and as many others: which ones is decided now.
            others = [number for number in rest if number not in self.forced]
            wanted = [*self.forced, *others[: self.count - len(self.forced)]]
            return wanted if set(self.forced) <= set(usable) else []
        first = [number for number in self.preferred if number in usable]
        return [*first, *(number for number in usable if number not in first)]


@dataclass(frozen=True)
class Grant:
    """The GPUs of a task: their numbers in the order in which it gets them, and their leases."""

    numbers: tuple[int, ...]
    leases: tuple[device_lease.Lease, ...]

    def close(self) -> None:
        """Give them back."""
        device_lease.release(device_lease.folder(), self.leases)


@dataclass(frozen=True)
class GpuWait:
    """One call's place in the line."""

    _gpus: Gpus
    _state: State
    _coming: Signals
    _waiter: waiters.Waiter

    def wait(self, request: GpuRequest, mark: Callable[[Sequence[int]], Entry], say: Callable[[], None]) -> Grant:
        """Return the GPUs once they are ours and `mark`ed in the state file.

        `say` is called once if a forced GPU is busy while others are free. Raises `StopSignal` when a signal comes.
        """
        is_said = False
        try:
            while True:
                entries = self._entries()
                shut = self._gpus.shut(entries)
                with _Watch(self._state.path, shut) as watch:
                    if shut and self._gpus.shut(self._entries()) != shut:
                        # It changed before the watch stood.
                        continue
                    wanted, is_forced_only = _look(self._gpus, request, entries, shut)
                    if is_forced_only and not is_said:
                        say()
                        is_said = True
                    grant = self._acquire(request.count, wanted, watch)
                if grant is not None and self._claim(grant.numbers, mark):
                    return grant
                if grant is not None:
                    grant.close()
        finally:
            self._waiter.leave()

    def _entries(self) -> Entries:
        found = self._state.update(lambda entries: None if entries is None else self._gpus.swept(entries))
        return () if found is None else found

    def _acquire(self, count: int, wanted: Sequence[int], watch: _Watch) -> Grant | None:
        """Return `count` of the numbers once they are ours; None when the state file has to be looked at again."""
        numbers = {self._gpus.device(number): number for number in wanted}
        is_mine = True
        while is_mine:
            if len(wanted) < count:
                # A ticket would keep GPUs from others that we ourselves must leave alone.
                self._waiter.leave()
            elif (got := self._waiter.ask(count, list(numbers))) is not None:
                return Grant(tuple(sorted((numbers[lease.device] for lease in got), key=wanted.index)), tuple(got))
            self._waiter.check_left(count, list(numbers))
            is_mine = self._waiter.hung_up(self._sleep(watch))
        return None

    def _sleep(self, watch: _Watch) -> set[int]:
        """Sleep until something happens or it is time to look again; return the descriptors that are ready."""
        poll = select.poll()
        for fd in (*self._waiter.fds, *watch.fds, self._coming.fileno()):
            poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(min(self._waiter.sleep_s, watch.longest_s) * 1000)}
        for number in self._coming.new():
            raise StopSignal(number)
        return ready

    def _claim(self, numbers: Sequence[int], mark: Callable[[Sequence[int]], Entry]) -> bool:
        """Write our task into the state file; False if one of the GPUs was set aside meanwhile."""
        is_ours = False

        def edit(entries: Entries | None) -> Entries | None:
            nonlocal is_ours
            swept = self._gpus.swept(entries or (), numbers)
            is_ours = all(number < len(swept) and swept[number].avail for number in numbers)
            return tuple(mark(numbers) if is_ours and n in numbers else e for n, e in enumerate(swept))

        self._state.update(edit)
        return is_ours


def _look(gpus: Gpus, request: GpuRequest, entries: Entries, shut: Container[int]) -> tuple[list[int], bool]:
    """Return the numbers that will do, the best first, and whether others would be free at once but for `forced`."""
    total = range(len(entries))
    request.check(len(total))
    faults = {number: fault for number in total if (fault := gpus.fault(number))}
    _check_faults(request, faults, len(total))
    usable = [number for number in total if number not in shut and number not in faults]
    held = gpus.held(usable)
    free = [number for number in usable if number not in held]
    is_forced_only = bool(request.forced) and len(free) >= request.count and not set(request.forced) <= set(free)
    return request.candidates(usable, free), is_forced_only


def _check_faults(request: GpuRequest, faults: dict[int, str], total: int) -> None:
    """Refuse to wait for devices that are not well: nothing tells us when they are again."""
    hopeless = [number for number in request.forced if number in faults]
    if hopeless or (faults and total - len(faults) < request.count):
        faults_text = "; ".join(f"GPU {number}: {faults[number]}" for number in hopeless or faults)
        raise Busy(f"not enough GPUs can be used now ({faults_text}).")


class _Watch(contextlib.ExitStack):
    """Descriptors that become ready when something changes that keeps numbers shut."""

    def __init__(self, path: str, shut: dict[int, Entry]) -> None:
        super().__init__()
        changes = _changes_of(path) if shut else None
        self.fds = [fd for fd in (changes, *map(_end_of, shut.values())) if fd is not None]
        for fd in self.fds:
            self.callback(os.close, fd)
        #: Longest sleep in seconds.
        self.longest_s = UNWATCHED_S if shut and changes is None else waiters.LONGEST_S


def _end_of(entry: Entry) -> int | None:
    """Return a descriptor that becomes readable when the process of an entry ends."""
    try:
        return None if entry.task_pid is None else os.pidfd_open(entry.task_pid)
    except OSError:
        return None


def _changes_of(path: str) -> int | None:
    """Return a descriptor that becomes readable when the file changes; None where the kernel gives no watch."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), CHANGED) < 0:
        os.close(fd)
        return None
    return fd
