"""Assigns the processes on a device by the process tree: to a job, or to none of the device's leases.

The holder of an exclusive lease may use the device with any process. A share covers only the processes started under
it: other processes of the same user were not declared. Where the tree is not visible, no process counts as outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dibs.leases import evictable_marks, holders, keeper
from dibs.leases.holders import Holder
from dibs.model import units
from dibs.model.devices import Device, Inventory
from dibs.model.jobs import Job, JobId
from dibs.system import processes
from dibs.system.locks import Folder


def outside(place: Folder, device: Device, found: Sequence[Holder]) -> frozenset[int]:
    """Return the pids on a device that were started under none of its leases; empty unless all leases are shares."""
    pids = [holder.pid for holder in found if holder.mib is not None and holder.pid is not None]
    if not pids or len(pids) < len(found):
        return frozenset()
    return _started_elsewhere(device, pids, holders.file(place, device.id))


def beside_loan(place: Folder, device: Device, found: Sequence[Holder]) -> frozenset[int] | None:
    """Return the pids on a lent device that do not belong to the borrower; None: it is not lent."""
    pids = [holder.pid for holder in found if holder.is_loan and holder.pid is not None]
    if not pids:
        return None
    return _started_elsewhere(device, pids, holders.file(place, evictable_marks.loan_of(device.id)))


def _started_elsewhere(device: Device, pids: Collection[int], lease: str) -> frozenset[int]:
    """Return the pids on a device that were started under none of these holders of a lease."""
    roots = {root for pid in pids for root in _roots(pid)}
    owned = [process.pid for process in device.processes if process.user is not None]
    return frozenset(pid for pid in owned if _is_outside(pid, roots, lease))


def _roots(pid: int) -> tuple[int, ...]:
    """Return the processes whose children use a lease: its holder and, if that is a keeper, the keeper's owner."""
    kept = keeper.read(processes.words(pid))
    return (pid,) if kept is None else (pid, kept[0])


def _is_outside(pid: int, roots: Collection[int], lease: str) -> bool:
    line = processes.lineage(pid)
    if line[-1] > 1 or not line[:-1] or any(parent in roots for parent in line):
        # A process that has ended or is hidden from us may have been started under any lease.
        return False
    # Children of a killed runner have inherited the lease.
    return not any(lease in processes.open_files(parent) for parent in line if parent > 1)


def jobs_by_pid(
    raw: Inventory, held: Mapping[str, Sequence[Holder]], jobs: Sequence[Job], user: str
) -> dict[int, JobId]:
    """Return the job of each process of `user` on the devices, by the runner or command above it."""
    known = {job.id for job in jobs}
    roots = {job.pid: job.id for job in jobs if job.pid is not None}
    for holder in (holder for found in held.values() for holder in found):
        job_id = JobId(int(holder.job)) if holder.job and units.is_whole(holder.job) else None
        if holder.user == user and holder.pid is not None and job_id in known:
            roots[holder.pid] = job_id
    pids = {process.pid for device in raw.devices for process in device.processes if process.user == user}
    lines = {pid: processes.lineage(pid) for pid in pids} if roots else {}
    found = {pid: next((roots[parent] for parent in line if parent in roots), None) for pid, line in lines.items()}
    return {pid: job_id for pid, job_id in found.items() if job_id is not None}
