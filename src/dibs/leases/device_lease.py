"""The machine-wide right to use a device, held by the kernel for as long as any holder lives.

A lease is a `flock` on the device's file and a listening abstract socket. Both are needed: a file can be deleted, and a
socket is not visible from another network namespace. Nothing here waits; `tickets` decides whose turn it is.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from dibs import errors
from dibs.leases import drains, holders
from dibs.leases.holders import Holder as Holder
from dibs.leases.holders import Note as Note
from dibs.leases.holders import own_note as own_note
from dibs.system import locks, processes
from dibs.system.locks import Broken as Broken
from dibs.system.locks import Folder as Folder
from dibs.system.locks import folder as folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Start of the name of the file that says when a user was last given a device.
SERVED = ".dibs-served-"

#: Digits of the boot-time ns in it, which are always as many.
BOOT_NS_DIGITS = 20

#: Seconds to wait for a gate. It is held for microseconds, so only a stopped process holds it longer.
GATE_S = 1.0

#: Seconds between looks at a gate.
GATE_PAUSE_S = 0.0005

#: Seconds between looks while file and socket disagree: a holder that is dying lets go of one just before the other.
SETTLE_S = (0.001, 0.004, 0.016, 0.064)


class Lease:
    """A lease this process holds. Children that inherit both descriptors hold it too, also after `close`."""

    __slots__ = ("device", "file_fd", "socket_fd")

    def __init__(self, device: str, file_fd: int, socket_fd: int) -> None:
        self.device = device
        self.file_fd = file_fd
        self.socket_fd = socket_fd

    def fds(self) -> tuple[int, int]:
        """Return the descriptors; a process that inherits them holds the lease too."""
        return self.file_fd, self.socket_fd

    def close(self) -> None:
        """Release it; calling it twice is harmless. The socket closes last, because its hang-up wakes the waiters."""
        for fd in self.fds():
            if fd >= 0:
                os.close(fd)
        self.file_fd = self.socket_fd = -1


def duplicate_fds(leases: Iterable[Lease]) -> list[int]:
    """Return copies of the descriptors of leases for a child to inherit, on numbers that programs do not use."""
    return [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, processes.FIRST_FD) for lease in leases for fd in lease.fds()]


class Refused(errors.Busy):
    """A device could not be taken: `why` is leased, full (no room to share), split, drained, or gate (it is stuck)."""

    def __init__(self, device: str, why: str, holder: Holder | None) -> None:
        message = f"device {device} cannot be taken: {REFUSALS[why]}"
        if holder is not None:
            message += f"; held by {holder.user or 'somebody'} (pid {holder.pid}, job {holder.job or '?'})"
        super().__init__(f"{message}.", "dibs gpus shows who holds what.")
        self.device = device
        self.why = why
        self.holder = holder


REFUSALS = {
    "leased": "it is leased",
    "full": "it has no room for one more to share it",
    "split": "its lease file and its socket disagree (a deleted file, or a container with its own network)",
    "drained": "root has drained it",
    "gate": "a process that was stopped keeps its gate closed",
}


class Share:
    """What a shared take asks for of each device, and the limits it has to keep."""

    __slots__ = ("capacity_mib", "max_slots", "mib")

    def __init__(self, mib: int, capacity_mib: Mapping[str, int], max_slots: int) -> None:
        if mib < 1:
            raise ValueError(f"expected at least 1 MiB, got {mib}")
        self.mib = mib
        #: By device; one that is missing has no room at all.
        self.capacity_mib = capacity_mib
        self.max_slots = max_slots


def take(place: Folder, devices: Iterable[str], note: Note, share: Share | None = None) -> list[Lease]:
    """Take all of `devices` or none, for ourselves or a share of each; raise `Refused` when one cannot be had."""
    taken: list[Lease] = []
    try:
        for device in sorted({holders.checked(device) for device in devices}):
            taken.append(_take(place, device, note, share))
    except BaseException:
        for lease in taken:
            lease.close()
        raise
    if taken:
        mark_served(place)
    return taken


def take_shared(place: Folder, device: str, mib: int, capacity_mib: int, max_slots: int, note: Note) -> Lease:
    """Take `mib` of a device beside others who share it; raise `Refused` when it is exclusive or has no room."""
    return take(place, [device], note, Share(mib, {device: capacity_mib}, max_slots))[0]


def _take(place: Folder, device: str, note: Note, share: Share | None) -> Lease:
    """Try until file and socket agree, at most for the pauses in `SETTLE_S`."""
    if drains.reason(place, device) is not None:
        raise Refused(device, "drained", None)
    got = _try(place, device, note, share)
    for pause_s in SETTLE_S:
        if got != "split":
            break
        select.select((), (), (), pause_s)
        got = _try(place, device, note, share)
    if isinstance(got, Lease):
        return got
    found = holders.survey(place, [device])[device]
    raise Refused(device, got, found[0] if found else None)


def _try(place: Folder, device: str, note: Note, share: Share | None) -> Lease | str:
    """Try once, under the gate; return why not if it is refused."""
    gate = _pass_gate(place, device)
    if gate is None:
        return "gate"
    file_fd = lease = None
    try:
        file_fd = locks.lock(place, holders.file(place, device), fcntl.LOCK_SH if share else fcntl.LOCK_EX)
        others = holders.sockets(place, [device])
        if file_fd is None:
            return "leased" if others else "split"
        slot = _slot(share, device, others, file_fd)
        if isinstance(slot, str):
            return slot
        socket_fd = locks.bind(holders.socket_name(place, device, f".{slot}.{share.mib}" if share else ""))
        if socket_fd is None:
            return "split"
        lease = Lease(device, file_fd, socket_fd)
        holders.write_note(file_fd, slot, note, is_alone=not others)
        return lease
    finally:
        if file_fd is not None and lease is None:
            os.close(file_fd)
        _leave_gate(gate)


def _slot(share: Share | None, device: str, others: list[holders.Socket], file_fd: int) -> int | str:
    """Return the slot for one more holder beside `others`, or why there is none."""
    if share is None:
        return "split" if others else 0
    # A sharer whose slot we cannot see has MiB that we cannot count. (One of the locks is ours.)
    unseen = len(locks.flocked().get(locks.key(os.fstat(file_fd)), ())) - 1 - len(others)
    if unseen > 0 or any(other.mib is None for other in others):
        return "split"
    taken_mib = sum(other.mib or 0 for other in others)
    # Counted, and not only the slots below the limit: somebody else's limit may be higher.
    if len(others) >= share.max_slots or taken_mib + share.mib > share.capacity_mib.get(device, 0):
        return "full"
    return min(set(range(share.max_slots)) - {other.slot for other in others})


def _pass_gate(place: Folder, device: str) -> int | None:
    """Hold the device's gate, so that nobody else looks and takes meanwhile; None when it is stuck."""
    path = place.file(f".dibs-gate-{device}")
    until = time.monotonic() + GATE_S
    while True:
        fd = locks.lock(place, path, fcntl.LOCK_EX)
        if fd is not None or time.monotonic() >= until:
            return fd
        select.select((), (), (), GATE_PAUSE_S)


def _leave_gate(fd: int) -> None:
    # Unlocked by name, not only closed: a thread that forks just now would carry a copy of the gate away.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def mark_served(place: Folder) -> None:
    """Record that the caller's user has just been given a device."""
    uid = os.geteuid()
    path = place.file(f"{SERVED}{uid}")
    try:
        # Always the same length and written in place, so that no reader ever sees half of it beside half of the last.
        line = f"{processes.boot_id()} {locks.boot_ns():0{BOOT_NS_DIGITS}d}\n".encode("ascii")
        try:
            fd = os.open(path, os.O_WRONLY | locks.OPEN_FLAGS)
        except FileNotFoundError:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | locks.OPEN_FLAGS, 0o600)
            os.fchmod(fd, 0o644)
        try:
            status = os.fstat(fd)
            # A second name or another owner: planted, perhaps to have us write into a file that is dear to us.
            if (status.st_uid, status.st_nlink) == (uid, 1):
                os.pwrite(fd, line, 0)
        finally:
            os.close(fd)
    except OSError:
        # A full disk or a planted file costs this user the memory of one turn; it must not cost the device.
        return


def served_of(place: Folder, uids: Iterable[int]) -> dict[int, int]:
    """Return when each of these users was last given a device, in boot-time ns; who is missing never was since then."""
    boot_id = processes.boot_id()
    found = {}
    for uid in uids:
        record = locks.read_small(place.file(f"{SERVED}{uid}"))
        words = record[1].partition("\n")[0].split() if record and record[0].st_uid == uid else []
        if len(words) == 2 and words[0] == boot_id and words[1].isdecimal() and len(words[1]) == BOOT_NS_DIGITS:
            found[uid] = int(words[1])
    return found
