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
from dibs.leases import (
    allowances,
    drains,
    evictable_marks,
    holders,
    reservations,
    rules_file,
    served_records,
    usage_records,
)
from dibs.leases.holders import Holder as Holder
from dibs.leases.holders import Note as Note
from dibs.leases.holders import own_note as own_note
from dibs.system import locks, processes
from dibs.system.lean import record
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


@record
class Lease:
    """A lease this process holds. Children that inherit both descriptors hold it too, even after `close`."""

    device: str
    file_fd: int
    socket_fd: int
    #: Since when we have it, and which part of the device, until that is recorded; 0: it was, or it does not count.
    since_ns: int = 0
    part: int = 0

    @property
    def inode(self) -> int:
        """Return the inode of its socket, which names the lease in the tables of the kernel."""
        return os.fstat(self.socket_fd).st_ino

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
    """A device could not be taken. `why` is one of `REFUSALS`."""

    def __init__(self, device: str, why: str, holder: Holder | None, quota: str = "") -> None:
        message = f"device {device} cannot be taken: {quota or REFUSALS[why]}"
        if holder is not None:
            message += f"; held by {holder.user or 'somebody'} (pid {holder.pid}, job {holder.job or '?'})"
        super().__init__(f"{message}.", "dibs gpus shows who holds what.")
        self.device = device
        self.why = why
        self.holder = holder
        #: The quota or the reservation that does not allow it, in words.
        self.quota = quota


class Unusable(Broken):
    """The gate or lease file of `device` cannot be used, which says nothing about other devices."""

    def __init__(self, device: str, error: Broken) -> None:
        super().__init__(error.message, error.hint)
        self.device = device
        self.why = error.message.rstrip(".")


REFUSALS = {
    "leased": "it is leased",
    "full": "it has no room for another job that shares it",
    "split": "its lease file and its socket disagree (a deleted file, or a container with its own network)",
    "drained": "root has drained it",
    "gate": "a suspended process keeps it locked",
    "quota": "a quota does not allow it",
    "reserved": "it is reserved",
    "lent": "an evictable job that borrowed it has not released it yet",
    "no loan": "lending idle GPUs is off (idle_gpus)",
    "not held": "its holder has released it, so it cannot be borrowed",
}


@record
class Share:
    """The amount a shared take needs of each device, and the limits that apply."""

    mib: int
    #: By device; a missing device has no room at all.
    capacity_mib: Mapping[str, int]
    max_slots: int


def take(
    place: Folder, devices: Iterable[str], note: Note, share: Share | None = None, *, is_recorded: bool = True
) -> list[Lease]:
    """Take all of `devices` or none, exclusively or a share of each; raise `Refused` if one is not available.

    If not `is_recorded`, the caller records the leases later, unless they end soon: `release` records what is missing.
    """
    if share is not None and share.mib < 1:
        raise ValueError(f"expected at least 1 MiB, got {share.mib}")
    wanted = sorted({holders.checked(device) for device in devices})
    rules = rules_file.rules_of_folder(place)
    if note.is_evictable:
        # It is given up as soon as somebody with a right to it waits, so it counts as nobody's share.
        return _take_open(place, wanted, note, share, rules)
    if rules.now().has_quotas:
        # One take of this user at a time: two that each see one device left would both take it.
        with usage_records.OwnRecord(place) as own:
            why = allowances.refusal(place, wanted, rules) if wanted else None
            if why is not None:
                raise Refused(wanted[0], "quota", None, why)
            taken = _take_open(place, wanted, note, share, rules)
            _record(own, taken, share)
    elif taken := _take_open(place, wanted, note, share, rules):
        for lease in taken:
            lease.since_ns, lease.part = locks.boot_ns(), _part(share, lease.device)
        if is_recorded:
            record_beginning(place, taken)
    if taken:
        served_records.mark(place)
    return taken


def _record(own: usage_records.OwnRecord, taken: Iterable[Lease], share: Share | None) -> None:
    for lease in taken:
        own.began({lease.inode: lease.device}, _part(share, lease.device))


def record_beginning(place: Folder, leases: Iterable[Lease]) -> None:
    """Record since when we have leases, unless that was done."""
    new = [lease for lease in leases if lease.since_ns]
    if not new:
        return
    with usage_records.OwnRecord(place) as own:
        for lease in new:
            own.began({lease.inode: lease.device}, lease.part, lease.since_ns)
            lease.since_ns = 0


def _take_open(
    place: Folder, devices: list[str], note: Note, share: Share | None, rules: rules_file.RulesFile
) -> list[Lease]:
    """Take all of `devices` or none, unless one is reserved for somebody else."""
    for device, closure in reservations.closed_to_us(place, devices, rules).items():
        raise Refused(device, "reserved", None, reservations.text(closure))
    return _take_all(place, devices, note, share)


def _take_all(place: Folder, devices: Iterable[str], note: Note, share: Share | None) -> list[Lease]:
    taken: list[Lease] = []
    try:
        for device in devices:
            taken.append(_take(place, device, note, share))
    except BaseException:
        for lease in taken:
            lease.close()
        raise
    return taken


def _part(share: Share | None, device: str) -> int:
    """Return which part of a device a lease takes, in thousandths."""
    if share is None:
        return usage_records.WHOLE
    capacity_mib = max(share.mib, share.capacity_mib.get(device, 0))
    return max(1, share.mib * usage_records.WHOLE // capacity_mib)


def release(place: Folder, leases: Iterable[Lease], short: usage_records.ShortLeases | None = None) -> None:
    """Release leases that no other process has inherited, and record for how long we had them.

    Those that were not recorded until now are added to `short`, if the caller records many of them together.
    """
    held = [lease for lease in leases if lease.socket_fd >= 0]
    if not held:
        return
    short = usage_records.ShortLeases(together_ns=0) if short is None else short
    for lease in held:
        if lease.since_ns:
            short.add(lease.since_ns, lease.part)
    recorded = [lease.inode for lease in held if not lease.since_ns]
    # Before the sockets hang up: those who wait decide by our record whose turn it is.
    if recorded or short.are_many:
        with usage_records.OwnRecord(place) as own:
            short.move_to(own)
            own.ended(recorded)
    for lease in held:
        _touch(lease.file_fd)
        lease.close()


def _touch(fd: int) -> None:
    """Set the time of a lease file: a reservation whose devices are unused is released."""
    try:
        os.utime(fd)
    except OSError:
        # Not allowed where a file belongs to somebody else and its mode was changed; then it counts from its taking.
        return


def take_shared(place: Folder, device: str, mib: int, capacity_mib: int, max_slots: int, note: Note) -> Lease:
    """Take `mib` of a shared device; raise `Refused` if it is held exclusively or has no room."""
    return take(place, [device], note, Share(mib, {device: capacity_mib}, max_slots))[0]


def _take(place: Folder, device: str, note: Note, share: Share | None) -> Lease:
    """Try until file and socket agree, at most for the pauses in `SETTLE_S`."""
    lent = evictable_marks.lent_device(device)
    real = lent or device
    if drains.reason(place, real) is not None:
        raise Refused(real, "drained", None)
    if lent is not None and not (note.is_evictable and rules_file.rules_of_folder(place).now().lends_idle):
        raise Refused(real, "no loan", None)
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
    found = holders.survey(place, [real])[real]
    raise Refused(real, got, found[0] if found else None)


def _try(place: Folder, device: str, note: Note, share: Share | None) -> Lease | str:
    """Try once, under the gate; return the reason if the device is refused."""
    lent = evictable_marks.lent_device(device)
    gate = _pass_gate(place, lent or device)
    if gate is None:
        return "gate"
    file_fd = lease = None
    try:
        if lent is not None and not holders.held(place, [lent]):
            return "not held"
        file_fd = locks.lock(place, holders.file(place, device), fcntl.LOCK_SH if share else fcntl.LOCK_EX)
        others = holders.sockets(place, [device])
        if file_fd is None:
            return "leased" if others else "split"
        if any(other.is_loan for other in others):
            return "lent"
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
