"""Who holds which device, read from the kernel's tables without blocking a process that takes one.

Also the names of a device's sockets and the note in its file, which `device_lease` writes.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from _json import encode_basestring_ascii as _quoted

from dibs.scheduling import choice
from dibs.system import locks, processes, socket_owners, users

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

#: Socket names of one device that are examined. Every user can bind any number of them, and each costs time.
MOST_NAMES = 64


class Note:
    """What a holder says about itself, for display; uid, pid and time are added when it is written."""

    __slots__ = ("job", "tool", "user")

    def __init__(self, job: str = "", user: str = "", tool: str = "dibs") -> None:
        self.job = job[:100]
        self.user = user[:32]
        self.tool = tool[:16]


def own_note(job: str, tool: str = "dibs") -> Note:
    """Return the note of a holder that runs as the current user."""
    return Note(job, users.own(), tool)


class Socket:
    """A listening socket of a device, as /proc/net/unix shows it. An exclusive one has slot 0 and no MiB."""

    __slots__ = ("device", "inodes", "mib", "name", "slot")

    def __init__(self, name: bytes, inodes: list[int], device: str, slot: int, mib: int | None) -> None:
        self.name = name
        self.inodes = inodes
        self.device = device
        self.slot = slot
        self.mib = mib


class Holder:
    """Who holds a device. `mib` is None for an exclusive lease; any other None means unknown."""

    __slots__ = ("device", "job", "mib", "pid", "since", "uid", "user")

    def __init__(self, device: str, pid: int | None, uid: int | None, mib: int | None, note: dict[str, object]) -> None:
        job, since = note.get("job"), note.get("since")
        self.device = device
        self.pid = pid
        self.uid = uid
        self.mib = mib
        self.user = None if uid is None else users.name(uid)
        # Any user may have written the note: replace what is not valid text, such as a lone surrogate.
        self.job = job.encode("utf-8", "replace").decode() if isinstance(job, str) and job else None
        #: Seconds since 1970.
        self.since = float(since) if isinstance(since, int | float) and 0 < since < 1e11 else None


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
    """Return whether an id belongs to no hardware: a pretend or unreadable GPU, or what an old tool leases."""
    return device.startswith(("FAKE-", "UNREADABLE-", "text-")) or device.isdecimal()


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
    place: Folder, devices: Iterable[str], table: bytes | None = None, locked: Mapping[str, list[int]] | None = None
) -> dict[str, tuple[Holder, ...]]:
    """Return the holders of each of `devices`, from the tables of sockets and of locks, or from the current ones."""
    wanted = list(devices)
    if not wanted:
        return {}
    seen = sorted(sockets(place, wanted, table), key=lambda socket: socket.slot)
    locked = locks.flocked() if locked is None else locked
    found: dict[str, tuple[Holder, ...]] = {}
    for device in wanted:
        pids = locked.get(locks.key_of(file(place, device)) or "", [])
        here = [socket for socket in seen if socket.device == device]
        named = [_holder(place, socket, pids) for socket in here]
        if not here:
            named = [_hidden_holder(place, device, pid) for pid in pids]
        found[device] = tuple(holder for holder in named if holder is not None)
    return found


def _holder(place: Folder, socket: Socket, pids: list[int]) -> Holder | None:
    """Return the holder behind a socket; None if it has released the device meanwhile.

    The note is trusted if the kernel names the same pid (in /proc/locks) and the same uid (of the process and of the
    socket). Otherwise we connect to the socket: that is always right, but each connection uses up a place in its
    backlog.
    """
    note = _read_note(place, socket.device, socket.slot)
    pid, uid = note.get("pid"), note.get("uid")
    if isinstance(pid, int) and isinstance(uid, int) and pid in pids and _is_confirmed(socket, pid, uid):
        return Holder(socket.device, pid, uid, socket.mib, note)
    fd = locks.connect(socket.name)
    if fd is None:
        if socket.name not in watchable(place, [socket.device]):
            # Do not report an unknown holder: every process on the device would then count as legitimate.
            return None
        return _hidden_holder(place, socket.device, pids[0] if len(pids) == 1 else None, socket)
    peer = _socket.socket(fileno=fd)
    try:
        raw = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    finally:
        peer.close()
    peer_pid, peer_uid = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in (0, 4))
    # The process that took the lease may be dead while its children still hold it.
    living = peer_pid if processes.look(peer_pid) else processes.oldest_with_open(file(place, socket.device))
    return Holder(socket.device, living or peer_pid, peer_uid, socket.mib, note if pid == peer_pid else {})


def _is_confirmed(socket: Socket, pid: int, uid: int) -> bool:
    """Return whether the kernel says that a process and a socket belong to this user."""
    return locks.uid_of(pid) == uid and socket_owners.listener_uid(socket.name, socket.inodes) in (uid, None)


def _hidden_holder(place: Folder, device: str, pid: int | None, socket: Socket | None = None) -> Holder:
    """Return a holder whose socket does not answer (another network namespace, a full backlog), by its lock alone."""
    note = _read_note(place, device, 0 if socket is None else socket.slot)
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


def genuine(place: Folder, names: Mapping[str, list[int]], devices: Iterable[str]) -> list[Socket]:
    """Return the sockets of `devices` among these names, without forged ones.

    A device with too many names has one more, which is not examined and counts as exclusive.
    """
    counts = dict.fromkeys(devices, 0)
    found = []
    for rest, inodes in names.items():
        socket = read_socket(place, rest, inodes)
        if socket is None or socket.device not in counts:
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
        f'"since": {time.time():.3f}, "tool": {_quoted(note.tool)}}}'
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
