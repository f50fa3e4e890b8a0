"""When interactive leases with a time limit end: one small file per lease, so that `--extend` can move its end.

The process that holds the lease reads the file when its time comes (`leases.keeper` does so without this module). The
file lies beside the tickets, and only one that belongs to us counts. Times are those of the monotonic clock, which is
the same for all processes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dibs.errors import MachineError
from dibs.leases import keeper, served_records, tickets
from dibs.model import units
from dibs.system import locks, processes

#: Prefix of the file's name; uid and pid of the holder follow.
END = ".dibs-end-"
#: Bytes of such a file that are read.
MOST_BYTES = 256


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """When a lease ends, and whose it is."""

    place: locks.Folder
    #: The process that holds the lease and its start time; and the one for which it does.
    holder: int
    starttime: int
    owner: int
    began_at: float
    at: float

    @property
    def path(self) -> str:
        """Return the path of its file."""
        return self.place.line_file(f"{END}{os.geteuid()}-{self.holder}")

    @property
    def warn_at(self) -> float:
        """Return when its user is warned."""
        return keeper.warn_at(self.began_at, self.at)

    def write(self) -> None:
        """Store it as a whole."""
        text = f"{self.at!r} {self.began_at!r} {self.starttime} {self.owner}\n"
        try:
            temporary, fd = locks.make_temporary(self.place, self.place.line_path)
            with open(fd, "w") as file:
                file.write(text)
            os.rename(temporary, self.path)
        except OSError as error:
            raise MachineError(f"the end of the lease cannot be stored: {error}.") from error

    def remove(self) -> None:
        """Remove its file, if it is there and we may."""
        tickets.unlink(self.path)

    def now(self) -> LeaseEnd:
        """Return it as it is now: it may have been extended."""
        return _read(self.place, self.holder) or self

    def extended(self, seconds: float) -> LeaseEnd:
        """Return it with a later end."""
        return replace(self, at=self.at + seconds)


class LeaseClock:
    """The end of a lease that this process holds, as it comes: its user is warned once before each end."""

    def __init__(self, end: LeaseEnd | None, say: Callable[[str], None]) -> None:
        self._end = end
        self._say = say
        self._warned_of: float | None = None

    @property
    def is_limited(self) -> bool:
        """Tell whether the lease has an end."""
        return self._end is not None

    @property
    def wake_at(self) -> float:
        """Return when to ask again whether it is over."""
        if self._end is None:
            return math.inf
        return self._end.at if self._warned_of == self._end.at else self._end.warn_at

    def is_over(self, now: float) -> bool:
        """Tell whether the lease ends now; warn the user before."""
        if self._end is None or now < self.wake_at:
            return False
        self._end = self._end.now()
        if now >= self._end.at:
            return True
        if now >= self._end.warn_at and self._warned_of != self._end.at:
            self._warned_of = self._end.at
            left = units.format_duration(max(1.0, self._end.at - now))
            self._say(f"the lease ends in {left}; dibs lease --extend 1h --pid {self._end.holder} extends it")
        return False


def begin(place: locks.Folder, limit_s: float, owner: int | None = None) -> LeaseEnd:
    """Store when a lease of this process ends, which it holds for `owner` or for itself."""
    pid, now = os.getpid(), time.monotonic()
    found = LeaseEnd(place, pid, processes.identity(pid) or 0, owner or pid, now, now + limit_s)
    found.write()
    return found


def find(place: locks.Folder, pids: Sequence[int]) -> list[LeaseEnd]:
    """Return the leases with a limit that the first of `pids` that has any holds or owns."""
    every = list(_living(place))
    for pid in pids:
        if own := [each for each in every if pid in (each.holder, each.owner)]:
            return own
    return []


def _living(place: locks.Folder) -> Iterable[LeaseEnd]:
    start = f"{END}{os.geteuid()}-"
    for name in locks.names(place, start):
        holder = name[len(start) :]
        found = _read(place, int(holder)) if holder.isdecimal() else None
        if found is not None and processes.identity(found.holder) == found.starttime:
            yield found
        elif found is not None:
            found.remove()


def _read(place: locks.Folder, holder: int) -> LeaseEnd | None:
    record = locks.read_small(place.line_file(f"{END}{os.geteuid()}-{holder}"), size=MOST_BYTES)
    if record is None or served_records.flaw(record[0], os.geteuid()) is not None:
        return None
    try:
        at, began_at, starttime, owner = record[1].split()
        return LeaseEnd(place, holder, int(starttime), int(owner), float(began_at), float(at))
    except ValueError:
        return None
