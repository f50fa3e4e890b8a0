"""The machine-wide right to use a device. The kernel keeps it as long as any holder lives.

A lease is a `flock` on the device's file and a listening abstract socket. Both are needed: a file can be deleted, and a
socket is not visible from another network namespace. Nothing here waits; `tickets` decides whose turn it is.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from dibs import errors
from dibs.leases import drains, holders, served_records
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

#: Seconds to wait for a gate. It is held for microseconds, so only a stopped process holds it longer.
GATE_S = 1.0

#: Seconds between attempts to lock a gate.
GATE_PAUSE_S = 0.0005

#: Seconds between attempts while file and socket disagree: a dying holder releases one just before the other.
SETTLE_S = (0.001, 0.004, 0.016, 0.064)


class Lease:
    """A lease this process holds. Children that inherit both descriptors hold it too, even after `close`."""

    __slots__ = ("device", "file_fd", "socket_fd")

    def __init__(self, device: str, file_fd: int, socket_fd: int) -> None:
        self.device = device
        self.file_fd = file_fd
        self.socket_fd = socket_fd

    def fds(self) -> tuple[int, int]:
        """Return the descriptors; a process that inherits them holds the lease too."""
        return self.file_fd, self.socket_fd

    def close(self) -> None:
        """Release the lease. Idempotent. The socket closes last, because its hang-up wakes the waiters."""
        for fd in self.fds():
            if fd >= 0:
                os.close(fd)
        self.file_fd = self.socket_fd = -1


def duplicate_fds(leases: Iterable[Lease]) -> list[int]:
    """Return copies of the descriptors of leases for a child to inherit, on numbers that programs do not use."""
    return [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, processes.FIRST_FD) for lease in leases for fd in lease.fds()]


class Refused(errors.Busy):
    """A device could not be taken. `why` is leased, full (no room to share), split, drained, or gate (stuck)."""

    def __init__(self, device: str, why: str, holder: Holder | None) -> None:
        message = f"device {device} cannot be taken: {REFUSALS[why]}"
        if holder is not None:
            message += f"; held by {holder.user or 'somebody'} (pid {holder.pid}, job {holder.job or '?'})"
        super().__init__(f"{message}.", "dibs gpus shows who holds what.")
        self.device = device
        self.why = why
        self.holder = holder


class Unusable(Broken):
    """The gate or lease file of `device` cannot be used, which says nothing about other devices."""

    def __init__(self, device: str, error: Broken) -> None:
        super().__init__(error.message, error.hint)
        self.device = device
        self.why = error.message.rstrip(".")


REFUSALS = {
    "leased": "it is leased",
    "full": "it has no room for one more to share it",
    "split": "its lease file and its socket disagree (a deleted file, or a container with its own network)",
    "drained": "root has drained it",
    "gate": "a process that was stopped keeps its gate closed",
}


class Share:
    """The amount a shared take needs of each device, and the limits that apply."""

    __slots__ = ("capacity_mib", "max_slots", "mib")

    def __init__(self, mib: int, capacity_mib: Mapping[str, int], max_slots: int) -> None:
        if mib < 1:
            raise ValueError(f"expected at least 1 MiB, got {mib}")
        self.mib = mib
        #: By device; a missing device has no room at all.
        self.capacity_mib = capacity_mib
        self.max_slots = max_slots


def take(place: Folder, devices: Iterable[str], note: Note, share: Share | None = None) -> list[Lease]:
    """Take all of `devices` or none, exclusively or a share of each; raise `Refused` if one is not available."""
    taken: list[Lease] = []
    try:
        for device in sorted({holders.checked(device) for device in devices}):
            taken.append(_take(place, device, note, share))
    except BaseException:
        for lease in taken:
            lease.close()
        raise
    if taken:
        served_records.mark(place)
    return taken


def take_shared(place: Folder, device: str, mib: int, capacity_mib: int, max_slots: int, note: Note) -> Lease:
    """Take `mib` of a shared device; raise `Refused` if it is held exclusively or has no room."""
    return take(place, [device], note, Share(mib, {device: capacity_mib}, max_slots))[0]


def _take(place: Folder, device: str, note: Note, share: Share | None) -> Lease:
    """Try until file and socket agree, at most for the pauses in `SETTLE_S`."""
    if drains.reason(place, device) is not None:
        raise Refused(device, "drained", None)
    try:
        got = _try(place, device, note, share)
        for pause_s in SETTLE_S:
            if got != "split":
                break
            select.select((), (), (), pause_s)
            got = _try(place, device, note, share)
    except Broken as error:
        raise Unusable(device, error) from error
    if isinstance(got, Lease):
        return got
    found = holders.survey(place, [device])[device]
    raise Refused(device, got, found[0] if found else None)


def _try(place: Folder, device: str, note: Note, share: Share | None) -> Lease | str:
    """Try once, under the gate; return the reason if the device is refused."""
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
    """Return the slot for one more holder besides `others`, or the reason why there is none."""
    if share is None:
        return "split" if others else 0
    # We cannot count the MiB of a sharer whose slot we cannot see. (One of the locks is ours.)
    unseen = len(locks.flocked().get(locks.key(os.fstat(file_fd)), ())) - 1 - len(others)
    if unseen > 0 or any(other.mib is None for other in others):
        return "split"
    taken_mib = sum(other.mib or 0 for other in others)
    # Count all slots, not only those below our limit: another user's limit may be higher.
    if len(others) >= share.max_slots or taken_mib + share.mib > share.capacity_mib.get(device, 0):
        return "full"
    return min(set(range(share.max_slots)) - {other.slot for other in others})


def _pass_gate(place: Folder, device: str) -> int | None:
    """Lock the device's gate, so that no other process takes it at the same time; return None if the gate is stuck."""
    path = holders.gate_file(place, device)
    until = time.monotonic() + GATE_S
    while True:
        fd = locks.lock(place, path, fcntl.LOCK_EX)
        if fd is not None or time.monotonic() >= until:
            return fd
        select.select((), (), (), GATE_PAUSE_S)


def unusable(place: Folder, devices: Iterable[str]) -> dict[str, str]:
    """Return the devices whose gate or lease file cannot be used, each with the reason; nothing is opened or made."""
    found = {}
    for device in devices:
        for path in (holders.gate_file(place, device), holders.file(place, device)):
            problem = locks.complaint(place, path)
            if problem is not None:
                found[device] = problem.message.rstrip(".")
    return found


def _leave_gate(fd: int) -> None:
    # Unlock explicitly before closing: a thread that forks now would take a copy of the gate with it.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
