"""What we see of other users' leases while we run: for how long each has devices, as the kernel names them."""

from __future__ import annotations

import os
import time

from dibs.leases import evictable_marks, holders, usage_records
from dibs.system import locks, socket_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.system.locks import Folder

#: Nanoseconds between two writes of what was seen.
WRITE_NS = 10 * 10**9


class LeaseObserver:
    """Counts the time between two looks for every lease that was there at both."""

    def __init__(self, place: Folder) -> None:
        self._place = place
        #: The user and the device of each lease, by the inode of its socket.
        self._known: dict[int, tuple[int, str]] = {}
        #: Milliseconds of device time of other users that are not written yet.
        self.people: dict[int, float] = {}
        self._looked_ns = self._written_ns = locks.boot_ns()

    def look(self, table: bytes | None = None, now_ns: int | None = None) -> bool:
        """Count who holds what, from the kernel's table of sockets; return whether it was written down."""
        now_ns = locks.boot_ns() if now_ns is None else now_ns
        present = self._present(table)
        sharers: dict[str, int] = {}
        for _, device in present.values():
            sharers[device] = sharers.get(device, 0) + 1
        passed_ms = max(0, now_ns - self._looked_ns) / 1e6
        for inode, (uid, device) in present.items():
            if inode in self._known and uid != os.geteuid():
                self.people[uid] = self.people.get(uid, 0.0) + passed_ms / sharers[device]
        self._known, self._looked_ns = present, now_ns
        if now_ns - self._written_ns < WRITE_NS:
            return False
        self._write(now_ns)
        return True

    def _present(self, table: bytes | None) -> dict[int, tuple[int, str]]:
        table = locks.table() if table is None else table
        sockets = holders.all_sockets(self._place, table)
        # What an evictable job has counts as nobody's share, as in the record of its user.
        marks = evictable_marks.marked(self._place, {socket.device for socket in sockets}, table)
        found: dict[int, tuple[int, str]] = {}
        for socket in sockets:
            for inode in socket.inodes:
                known = self._known.get(inode)
                uid = known[0] if known else socket_owners.listener_uid(socket.name, [inode])
                if uid is not None and (socket.mib is not None or marks.get(socket.device) != uid):
                    found[inode] = uid, socket.device
        return found

    def _write(self, now_ns: int) -> None:
        """Write what was seen of others, and settle what we hold ourselves."""
        self._written_ns = now_ns
        me = os.geteuid()
        if not self.people and all(uid != me for uid, _ in self._known.values()):
            # Nothing to write; leases of ours that have ended are forgotten with the next one.
            return
        with usage_records.OwnRecord(self._place) as own:
            own.settle(self._known, self._looked_ns)
            own.see(self.people, time.time())
        self.people = {}
