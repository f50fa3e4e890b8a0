"""Who keeps a device from everybody without holding it, and what ends that.

Two ways: to keep the device's gate locked, and to bind the name of one of its sockets without listening on it.
An honest process does either for microseconds, so only what is still there at a second look counts. The kernel names
the process (/proc/locks) or the owner of the socket; nothing that anybody wrote is believed.
"""

from __future__ import annotations

import os
import select

from dibs.leases import holders
from dibs.system import locks, processes, socket_owners, users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dibs.system.locks import Folder

GATE = "keeps the lock of the GPU without a lease"
SOCKET = "occupies the name of its socket"

#: First and longest time in seconds for which a device is avoided; it doubles with each refusal in a row. Longer
#: than an honest process keeps a gate or needs to listen on a socket.
SHORTEST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0

#: Seconds between the two looks.
SECOND_LOOK_S = 0.05


class Blocker:
    """Who blocks a device, and how. None means that we cannot see it."""

    def __init__(self, device: str, how: str, uid: int | None, pid: int | None) -> None:
        self.device = device
        #: `GATE` or `SOCKET`.
        self.how = how
        self.uid = uid
        self.pid = pid
        self.user = None if uid is None else users.name(uid)

    @property
    def text(self) -> str:
        """Say who blocks the device and how."""
        pid = f" (pid {self.pid})" if self.pid is not None else ""
        return f"blocked by {self.user or 'somebody'}{pid}, who {self.how}"

    @property
    def cure(self) -> str:
        """Say what the owner of the machine can do."""
        if self.pid is None:
            return "`sudo dibs doctor` names the process; root can end it."
        return f"`sudo kill {self.pid}` ends it."


def find(
    place: Folder, devices: Iterable[str], table: bytes | None = None, locked: locks.LockTable | None = None
) -> dict[str, Blocker]:
    """Return who blocks which of `devices`; `table` and `locked` are the tables of the first look, if already read."""
    wanted = list(devices)
    gates = gate_pids(place, wanted, locked)
    sockets = _deaf_inodes(place, wanted, table)
    if not gates and not sockets:
        return {}
    select.select((), (), (), SECOND_LOOK_S)
    gates_now, sockets_now = gate_pids(place, wanted), _deaf_inodes(place, wanted)
    found = {}
    for device in wanted:
        for pid in gates_now.get(device, ()):
            if pid in gates.get(device, ()):
                found[device] = _at_gate(place, device, pid)
        for name, inode in sockets_now.get(device, ()):
            if (name, inode) in sockets.get(device, ()) and device not in found:
                found[device] = _at_socket(device, name, inode)
    return found


def gate_pids(place: Folder, devices: Iterable[str], locked: locks.LockTable | None = None) -> dict[str, list[int]]:
    """Return the processes that have the gates of these devices locked at this moment."""
    locked = locked or locks.LockTable()
    found = {device: locked.pids(holders.gate_file(place, device)) for device in devices}
    return {device: pids for device, pids in found.items() if pids}


def deaf_devices(place: Folder, devices: Collection[str], table: bytes | None = None) -> set[str]:
    """Return those of `devices` with a socket name that is bound, but not listened on, at this moment."""
    return set(_deaf_inodes(place, devices, table))


def _deaf_inodes(
    place: Folder, devices: Collection[str], table: bytes | None = None
) -> dict[str, list[tuple[bytes, int]]]:
    found: dict[str, list[tuple[bytes, int]]] = {}
    for socket in holders.genuine(place, locks.deaf(place, "gpu", table), devices):
        found.setdefault(socket.device, []).extend((socket.name, inode) for inode in socket.inodes)
    return found


def _at_gate(place: Folder, device: str, pid: int) -> Blocker:
    """Name the process at a gate. The one that locked it may have ended while a child of it keeps the lock."""
    path = holders.gate_file(place, device)
    opened = processes.open_files(pid)
    if processes.look(pid) is None or (opened and path not in opened):
        heir = processes.oldest_with_open(path)
        return Blocker(device, GATE, None if heir is None else locks.uid_of(heir), heir)
    return Blocker(device, GATE, locks.uid_of(pid), pid)


def _at_socket(device: str, name: bytes, inode: int) -> Blocker:
    known = socket_owners.confirmed(name, [inode])
    pid = processes.oldest_with_open(f"socket:[{inode}]")
    uid = known.uid if known is not None else None
    return Blocker(device, SOCKET, locks.uid_of(pid) if uid is None and pid is not None else uid, pid)


def all_devices(place: Folder) -> list[str]:
    """Return the devices that have a gate in this folder, or a socket that nobody listens on."""
    start = locks.GATE
    try:
        gates = {name[len(start) :] for name in os.listdir(place.path) if name.startswith(start)}
    except OSError:
        gates = set()
    sockets = (holders.read_socket(place, rest, inodes) for rest, inodes in locks.deaf(place, "gpu").items())
    return sorted(gates | {socket.device for socket in sockets if socket is not None})


class RefusedDevices:
    """Devices that were refused although no holder is visible, and until when each is avoided.

    Usually the holder has just left: a short job of another user took the device and ended before we looked. Then
    nothing is in the way, and the device is tried again at once. Otherwise something holds it that cannot be watched,
    such as a lease in another network namespace or a locked gate, and only time tells when that ends. All times are
    those of `time.monotonic`.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._until: dict[str, float] = {}
        #: The last pause of each device, and until when another refusal counts as one in a row.
        self._last: dict[str, tuple[float, float]] = {}

    def refuse(self, device: str, now: float) -> float:
        """Note a refusal; return for how many seconds to leave the device alone, 0 if it may be tried at once."""
        if not self._is_in_a_row(device, now) and not self._is_blocked(device):
            self._last[device] = SHORTEST_PAUSE_S / 2, now + LONGEST_PAUSE_S
            return 0.0
        self.avoid([device], now)
        return self._until[device] - now

    def avoid(self, devices: Iterable[str], now: float) -> None:
        """Avoid devices, each for twice as long as before; those that are avoided already stay so."""
        for device in devices:
            if self._until.get(device, now) > now:
                continue
            pause_s = SHORTEST_PAUSE_S
            if self._is_in_a_row(device, now):
                pause_s = min(2 * self._last[device][0], LONGEST_PAUSE_S)
            self._until[device] = now + pause_s
            self._last[device] = pause_s, now + pause_s + LONGEST_PAUSE_S

    def now(self, now: float) -> Collection[str]:
        """Return the devices that are avoided; those whose gate is still locked are avoided for longer."""
        over = [device for device, until in self._until.items() if until <= now]
        if over:
            self.avoid(gate_pids(self._folder, over), now)
            self._until = {device: until for device, until in self._until.items() if until > now}
            self._last = {device: last for device, last in self._last.items() if last[1] > now}
        return self._until.keys()

    @property
    def retry_at(self) -> float | None:
        """Return when the next device may be tried again; None if none is avoided."""
        return min(self._until.values(), default=None)

    def _is_in_a_row(self, device: str, now: float) -> bool:
        return device in self._last and self._last[device][1] > now

    def _is_blocked(self, device: str) -> bool:
        """Tell whether the kernel shows a lock of the device or of its gate."""
        return bool(holders.held(self._folder, [device]) or gate_pids(self._folder, [device]))
