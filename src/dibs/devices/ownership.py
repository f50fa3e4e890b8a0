"""Belonging: which processes on a device are of nobody's share, as the tree of processes tells.

Whoever has a device alone may use it with whatever processes. A share is for what was started with it: what the same
person runs beside it on that device was declared by nobody. Where the tree cannot be seen nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dibs.leases import holders, keeper
from dibs.leases.holders import Holder
from dibs.model.devices import Device
from dibs.system import processes
from dibs.system.locks import Folder


def outside(place: Folder, device: Device, found: Sequence[Holder]) -> frozenset[int]:
    """Return the pids on a device that were started with none of its leases; none unless all of these are shares."""
    pids = [holder.pid for holder in found if holder.mib is not None and holder.pid is not None]
    if not pids or len(pids) < len(found):
        return frozenset()
    roots = {root for pid in pids for root in _roots(pid)}
    lease = holders.file(place, device.id)
    owned = [process.pid for process in device.processes if process.user is not None]
    return frozenset(pid for pid in owned if _is_outside(pid, roots, lease))


def _roots(pid: int) -> tuple[int, ...]:
    """Return the processes below which a lease is used: its holder and, where that keeps it for another, its owner."""
    kept = keeper.read(processes.words(pid))
    return (pid,) if kept is None else (pid, kept[0])


def _is_outside(pid: int, roots: Collection[int], lease: str) -> bool:
    line = processes.lineage(pid)
    if line[-1] > 1 or not line[:-1] or any(parent in roots for parent in line):
        # One that ended meanwhile, or is hidden from us, may have been anybody's child.
        return False
    # What a runner that was killed left behind has inherited the lease.
    return not any(lease in holders.open_files(parent) for parent in line if parent > 1)
