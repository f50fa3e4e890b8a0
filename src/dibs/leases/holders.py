"""Who holds which device, read from the kernel's tables without blocking a process that takes one.

Also the names of a device's sockets and the note in its file, which `device_lease` writes.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from _json import encode_basestring_ascii as _quoted

from dibs.leases import evictable_marks
from dibs.model import units
from dibs.scheduling import choice
from dibs.system import locks, processes, socket_owners, users
from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dibs.scheduling.choice import Room, Terms
    from dibs.system.locks import Folder

#: Characters of a device id. `/` is excluded: it replaces `.` in socket names, where `.` separates the parts.
ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:")

#: Longest id: a socket name has 108 bytes, and prefix, slot and MiB need up to 40 of them. A MIG UUID has 40.
ID_LENGTH = 64

#: Bytes for the note of one slot; slot n is at n times this. Fits 148 characters that need 12 bytes each in JSON.
NOTE_BYTES = 2048

#: Maximum digits of a slot number and of its MiB. Larger numbers are invalid and exceed any file offset.
SHARE_DIGITS = 12

#: Leases that are examined where all devices count, also those that nobody knows.
MOST_LEASES = 256

#: Socket names of one device that are examined. Every user can bind any number of them, and each costs time.
MOST_NAMES = 64


class Note:
    """What a holder says about itself, for display; uid, pid and time are added when it is written."""

    def __init__(
        self, job: str = "", user: str = "", tool: str = "dibs", is_evictable: bool = False, evicted_by: str = ""
    ) -> None:
        self.job = job[:100]
        self.user = user[:32]
        self.tool = tool[:16]
        #: Whether its holder gives it up to ordinary jobs, and the user (uid) for whom it did so last.
        self.is_evictable = is_evictable
        self.evicted_by = evicted_by[:16]


def own_note(job: str, tool: str = "dibs") -> Note:
    """Return the note of a holder that runs as the current user."""
    return Note(job, users.own(), tool)


@record
class Socket:
    """A listening socket of a device, as /proc/net/unix shows it. An exclusive one has slot 0 and no MiB."""

    name: bytes
    inodes: list[int]
    device: str
    slot: int
    mib: int | None
    #: Whether it is a loan of the device, beside the lease of its idle holder.
    is_loan: bool = False

    @property
    def lease(self) -> str:
        """Return the name of its lease."""
        return evictable_marks.loan_of(self.device) if self.is_loan else self.device


class Holder:
    """Who holds a device. `mib` is None for an exclusive lease; any other None means unknown."""

    def __init__(self, device: str, pid: int | None, uid: int | None, mib: int | None, note: dict[str, object]) -> None:
        job, since, evicted_by = note.get("job"), note.get("since"), note.get("evicted_by")
        self.device = device
        #: Whether its user marked it as evictable; `survey` sets it.
        self.is_evictable = False
        #: Whether it only borrows the device from its idle holder.
        self.is_loan = False
        self.evicted_by = evicted_by if isinstance(evicted_by, str) and units.is_whole(evicted_by) else ""
        self.pid = pid
        self.uid = uid
        self.mib = mib
        self.user = None if uid is None else users.name(uid)
        # Any user may have written the note: replace what is not valid text, such as a lone surrogate.
        self.job = job.encode("utf-8", "replace").decode() if isinstance(job, str) and job else None
        #: Seconds since 1970.
        self.since = float(since) if isinstance(since, (int, float)) and 0 < since < 1e11 else None


def checked(device: str) -> str:
    """Return a device id that is valid in file and socket names; raise ValueError otherwise."""
    if not device or len(device) > ID_LENGTH or not ID_CHARS.issuperset(device):
        raise ValueError(f"expected a device id of up to {ID_LENGTH} letters, digits and -_.:, got {device!r}")
    return device


def file(place: Folder, device: str) -> str:
    """Return the path of the file whose lock is the lease of a device."""
    return _device_file(place, locks.LEASE, device)


def gate_file(place: Folder, device: str) -> str:
    """Return the path of the file that a process locks while it takes a device."""
    return _device_file(place, locks.GATE, device)


def _device_file(place: Folder, kind: str, device: str) -> str:
    """Return where a file of a device is: in a prepared folder, only root makes those of real devices."""
    path = place.file(f"{kind}{device}")
    if place.is_prepared and is_made_up(device) and not os.path.lexists(path):
        return place.line_file(f"{kind}{device}")
    return path


def is_made_up(device: str) -> bool:
    """Return whether an id belongs to no hardware: a pretend or unreadable GPU, a loan, or what an old tool leases."""
    return device.startswith(("FAKE-", "UNREADABLE-", "text-", evictable_marks.LOAN)) or device.isdecimal()


def socket_name(place: Folder, device: str, share: str = "") -> bytes:
    """Return the socket name of an exclusive lease, or with `share` (".<slot>.<MiB>") of a shared one."""
    return place.socket("gpu", device.replace(".", "/") + share)


def held(place: Folder, devices: Iterable[str]) -> set[str]:
    """Return those of `devices` that are held, exclusively or shared."""
    wanted = list(devices)
    if not wanted:
        return set()
    seen = {socket.device for socket in sockets(place, wanted)}
    locked = locks.flocked()
    return seen | {device for device in wanted if locks.key_of(file(place, device)) in locked}


def rooms(place: Folder, devices: Iterable[str], terms: Terms) -> dict[str, Room]:
    """Return the free room of those of `devices` that are not held exclusively."""
    wanted = list(devices)
    taken = held(place, wanted)
    shares: dict[str, list[int | None]] = {}
    for socket in sockets(place, taken):
        shares.setdefault(socket.device, []).append(socket.mib)
    found = {}
    for device in wanted:
        mibs = [mib for mib in shares.get(device, ()) if mib is not None]
        # Held without a visible share: exclusive, or the holder's socket is hidden from us.
        if device not in taken or (mibs and len(mibs) == len(shares[device])):
            found[device] = choice.room(terms.capacity_mib.get(device), terms.most, mibs)
    return found


def used_at(place: Folder, devices: Iterable[str]) -> dict[str, float]:
    """Return when each device was last taken, from the times of the lease files; 0: never."""
    found = {}
    for device in devices:
        try:
            found[device] = os.stat(file(place, device)).st_mtime
        except OSError:
            found[device] = 0.0
    return found


def survey(
    place: Folder, devices: Iterable[str], table: bytes | None = None, locked: locks.LockTable | None = None
) -> dict[str, tuple[Holder, ...]]:
    """Return the holders of each of `devices`, from the tables of sockets and of locks, or from the current ones."""
    wanted = list(devices)
    if not wanted:
        return {}
    seen = sorted(sockets(place, wanted, table), key=lambda socket: (socket.is_loan, socket.slot))
    locked = locked or locks.LockTable()
    found: dict[str, tuple[Holder, ...]] = {}
    for device in wanted:
        here = [socket for socket in seen if socket.device == device]
        named = [_holder(place, socket, locked) for socket in here]
        if not here:
            named = [_hidden_holder(place, device, pid) for pid in locked.pids(file(place, device))]
        found[device] = tuple(holder for holder in named if holder is not None)
    for lease, uid in evictable_marks.marked(place, [*wanted, *map(evictable_marks.loan_of, wanted)], table).items():
        lent = evictable_marks.lent_device(lease)
        for holder in found.get(lent or lease, ()):
            if holder.is_loan == (lent is not None):
                holder.is_evictable = holder.mib is None and holder.uid == uid
    return found


def _holder(place: Folder, socket: Socket, locked: locks.LockTable) -> Holder | None:
    """Return the holder behind a socket; None if it has released the device meanwhile.

    The note is trusted if the kernel names the same pid (as owner of the lock) and the same uid (of the process and of
    the socket). Otherwise we connect to the socket: that is always right, but each connection uses up a place in its
    backlog.
    """
    found = _read_holder(place, socket, locked)
    if found is not None:
        found.is_loan = socket.is_loan
    return found


def _read_holder(place: Folder, socket: Socket, locked: locks.LockTable) -> Holder | None:
    note = _read_note(place, socket.lease, socket.slot)
    pid, uid = note.get("pid"), note.get("uid")
    path = file(place, socket.lease)
    if (
        isinstance(pid, int)
        and isinstance(uid, int)
        and _is_confirmed(socket, pid, uid)
        and ((uid == os.geteuid() and locks.has_flocked(pid, path)) or pid in locked.pids(path))
    ):
        return Holder(socket.device, pid, uid, socket.mib, note)
    fd = locks.connect(socket.name)
    if fd is None:
        if socket.name not in watchable(place, [socket.device]):
            # Do not report an unknown holder: every process on the device would then count as legitimate.
            return None
        pids = locked.pids(path)
        return _hidden_holder(place, socket.device, pids[0] if len(pids) == 1 else None, socket)
    peer = _socket.socket(fileno=fd)
    try:
        raw = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    finally:
        peer.close()
    peer_pid, peer_uid = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in (0, 4))
    # The process that took the lease may be dead while its children still hold it.
    living = peer_pid if processes.look(peer_pid) else processes.oldest_with_open(path)
    return Holder(socket.device, living or peer_pid, peer_uid, socket.mib, note if pid == peer_pid else {})


def _is_confirmed(socket: Socket, pid: int, uid: int) -> bool:
    """Return whether the kernel says that a process and a socket belong to this user."""
    return locks.uid_of(pid) == uid and socket_owners.listener_uid(socket.name, socket.inodes) in (uid, None)


def _hidden_holder(place: Folder, device: str, pid: int | None, socket: Socket | None = None) -> Holder:
    """Return a holder whose socket does not answer (another network namespace, a full backlog), by its lock alone."""
    note = _read_note(place, device if socket is None else socket.lease, 0 if socket is None else socket.slot)
    if pid is None or note.get("pid") != pid:
        note = {}
    # Never the uid in the note: any user may have written it.
    uid = None if pid is None else locks.uid_of(pid)
    if uid is None and socket is not None:
        uid = socket_owners.listener_uid(socket.name, socket.inodes)
    return Holder(device, pid, uid, None if socket is None else socket.mib, note)


def watches(place: Folder, device: str) -> list[int]:
    """Return a descriptor for each holder that hangs up when the last copy of the holder's socket closes.

    A holder that cannot be watched (another network namespace, a full backlog) is left out. Keep a watch instead of
    reconnecting: each connection uses up a place in the holder's backlog until the holder ends.
    """
    return [fd for name in watchable(place, [device]) if (fd := locks.connect(name)) is not None]


def watchable(place: Folder, devices: Iterable[str]) -> dict[bytes, str]:
    """Return the socket names of all holders of `devices`, each with its device, for `locks.connect`."""
    return {socket.name: socket.device for socket in sockets(place, devices)}


def sockets(place: Folder, devices: Iterable[str], seen: bytes | None = None) -> list[Socket]:
    """Return the sockets of `devices` that are listening now, or that are in the kernel's table `seen`."""
    return genuine(place, locks.bound(place, "gpu", seen), devices)


def all_sockets(place: Folder, table: bytes | None = None) -> list[Socket]:
    """Return the listening sockets of all devices, up to a bound; the kernel has not been asked whether they are real.

    Every user can bind any number of names.
    """
    found: list[Socket] = []
    for rest, inodes in locks.bound(place, "gpu", table).items():
        socket = read_socket(place, rest, inodes)
        if socket is not None:
            found.append(socket)
        if len(found) == MOST_LEASES:
            break
    return found


def genuine(place: Folder, names: Mapping[str, list[int]], devices: Iterable[str]) -> list[Socket]:
    """Return the sockets of `devices` among these names, without forged ones.

    A device with too many names has one more, which is not examined and counts as exclusive. A loan of a device counts
    among its leases.
    """
    counts = dict.fromkeys(devices, 0)
    found = []
    for rest, inodes in names.items():
        socket = read_socket(place, rest, inodes)
        if socket is None:
            continue
        lent = evictable_marks.lent_device(socket.device)
        if lent in counts:
            socket = Socket(socket.name, inodes, lent, socket.slot, socket.mib, True)
        if socket.device not in counts:
            continue
        counts[socket.device] += 1
        if counts[socket.device] == MOST_NAMES + 1:
            found.append(Socket(socket.name, inodes, socket.device, 0, None))
        elif counts[socket.device] <= MOST_NAMES and not socket_owners.is_forged(socket.name, inodes):
            found.append(socket)
    return found


def read_socket(place: Folder, rest: str, inodes: list[int]) -> Socket | None:
    """Return the socket of a device from the part of its name after the kind; None if it is not one."""
    device, *share = rest.split(".")
    device = device.replace("/", ".")
    if not share:
        return Socket(place.socket("gpu", rest), inodes, device, 0, None)
    if len(share) == 2 and all(word.isdecimal() and len(word) <= SHARE_DIGITS for word in share):
        return Socket(place.socket("gpu", rest), inodes, device, int(share[0]), int(share[1]))
    return None


def write_note(fd: int, slot: int, note: Note, is_alone: bool) -> None:
    """Write the note of a slot; the only holder also removes the notes of former holders."""
    text = (
        f'{{"uid": {os.geteuid()}, "user": {_quoted(note.user)}, "pid": {os.getpid()}, "job": {_quoted(note.job)}, '
        f'"since": {time.time():.3f}, "tool": {_quoted(note.tool)}, "evicted_by": {_quoted(note.evicted_by)}}}'
    )
    try:
        # Overwrite the full length instead of truncating to zero, which would make ext4 flush it to disk at the next
        # close.
        os.pwrite(fd, text.encode("ascii").ljust(NOTE_BYTES - 1) + b"\n", slot * NOTE_BYTES)
        if is_alone and os.fstat(fd).st_size > (slot + 1) * NOTE_BYTES:
            os.ftruncate(fd, (slot + 1) * NOTE_BYTES)
    except OSError:
        # On a full disk the lease is still valid: the note is for display, the lock decides.
        return


def _read_note(place: Folder, device: str, slot: int) -> dict[str, object]:
    """Return the note of a slot, which any user may have written; empty if there is none."""
    import json

    record = locks.read_small(file(place, device), slot * NOTE_BYTES, NOTE_BYTES)
    try:
        note = json.loads(record[1]) if record else {}
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}
