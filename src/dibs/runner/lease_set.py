"""The leases of one start: all of them or none, marked if its job is evictable, released when it is over."""

from __future__ import annotations

import sys
import time

from dibs.runner import records
from dibs.system import refusals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.leases import device_lease, usage_records


class LeaseFolders:
    """The lease folders that a runner has used, and how long it had devices of them that is not recorded yet.

    Like the daemon, it looks once what kind of folder each is.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[device_lease.Folder, usage_records.ShortLeases]] = {}

    def at(self, path: str) -> tuple[device_lease.Folder, usage_records.ShortLeases]:
        """Return the folder at a path; an empty one stands for that of the machine."""
        if path not in self._known:
            from dibs.leases import device_lease, usage_records

            folder = device_lease.Folder(path) if path else device_lease.folder()
            self._known[path] = folder, usage_records.ShortLeases()
        return self._known[path]

    @property
    def are_recorded(self) -> bool:
        """Return whether the time of all leases is recorded."""
        return not any(short for _, short in self._known.values())

    def record(self) -> None:
        """Record what is not recorded yet."""
        for folder, short in self._known.values():
            try:
                short.record(folder)
            except OSError:
                # The disk fails: only the order between users is less exact.
                sys.excepthook(*sys.exc_info())


class LeaseSet:
    """A job without devices does not pay for the import of `leases`."""

    __slots__ = ("_folders", "_spec", "_taken")

    def __init__(self, spec: records.Spec, folders: LeaseFolders) -> None:
        self._spec = spec
        self._folders = folders
        self._taken: list[device_lease.Lease] = []

    def fds(self) -> list[int]:
        """Return the descriptors that the command inherits."""
        return [fd for lease in self._taken for fd in lease.fds()]

    def take(self) -> records.Final | None:
        """Take all leases or none; return the refusal, if there is one."""
        spec = self._spec
        if not spec.devices and not spec.shares:
            return None
        from dibs.leases import device_lease

        place = self._folder()
        note = device_lease.Note(spec.note_job, is_evictable=spec.evictable, evicted_by=spec.evicted_by)
        try:
            # Recorded when the command has run for a moment: of a shorter one only the whole is.
            self._taken += device_lease.take(place, spec.devices, note, is_recorded=False) if spec.devices else []
            for share in sorted(spec.shares):
                device, mib, capacity_mib, slots = share.split()
                lease = device_lease.take_shared(place, device, int(mib), int(capacity_mib), int(slots), note)
                self._taken.append(lease)
        except device_lease.Unusable as unusable:
            self.release()
            return refused(refusals.Refusal(refusals.DEVICE, unusable.why, unusable.device))
        except device_lease.Refused as refusal:
            self.release()
            holder = refusal.holder.pid if refusal.holder else None
            ended_at_ns = time.time_ns()
            return records.Final(
                "nolease", device=refusal.device, why=refusal.why, holder=holder or 0, ended_at_ns=ended_at_ns
            )
        return None

    def record(self) -> None:
        """Record since when we have the leases, for the order between users."""
        if self._taken:
            from dibs.leases import device_lease

            device_lease.record_beginning(self._folder(), self._taken)

    def put_marks(self) -> list[int]:
        """Mark the leases of an evictable job; the command does not inherit the marks, which end with us."""
        if not self._spec.devices:
            return []
        from dibs.leases import evictable_marks

        return evictable_marks.put(self._folder(), self._spec.devices)

    def release(self) -> None:
        """Release the leases, if there are any."""
        if self._taken:
            from dibs.leases import device_lease

            folder, short = self._folders.at(self._spec.lease_dir)
            device_lease.release(folder, self._taken, short)
            self._taken.clear()

    def _folder(self) -> device_lease.Folder:
        return self._folders.at(self._spec.lease_dir)[0]


def refused(refusal: refusals.Refusal) -> records.Final:
    """Return the final record of a start that the machine refused."""
    return records.Final(
        "refused", why=refusal.why, device=refusal.device, scope=refusal.scope, ended_at_ns=time.time_ns()
    )
