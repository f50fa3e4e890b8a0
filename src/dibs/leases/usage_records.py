"""How long each user had devices, per day: what the processes of a user record, and what others saw of it.

    .dibs-usage-UID   0644  what the user's processes hold, and held on each day
    .dibs-seen-UID    0600  what this user saw of others on each day; its lock guards both files

Only files that their user alone can have written count. Of another user the larger of both numbers counts, so that it
does not help to record too little while somebody looks. Of ourselves the recorded number counts, as all others see it:
two users who each took the other for the one with less would wait for each other.

A device counts from its lease on. A share of a device counts as the part of its memory.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
import zlib

from dibs.leases import served_records
from dibs.model import units
from dibs.system import locks, processes
from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dibs.system.locks import Folder

#: Prefixes of the names; the uid follows.
USAGE, SEEN = ".dibs-usage-", ".dibs-seen-"
#: Bytes of a file that are read, days that are kept, and leases that are counted at once.
MOST_BYTES, MOST_DAYS, MOST_HOLDS = 65536, 62, 256
#: Days for which others are remembered, and users on each of them.
DAYS_SEEN, MOST_PEOPLE = 14, 64
#: A whole device, in thousandths.
WHOLE = 1000
DAY_S = 86400
#: Seconds to wait for our own lock, and between attempts. Only a stopped process holds it for longer than the first.
LOCK_S, PAUSES_S, PAUSE_S = 1.0, (0.00005, 0.0001, 0.0002), 0.0005
#: The most milliseconds of one day that count: nobody has more devices than leases are counted.
MOST_DAY_MS = MOST_HOLDS * DAY_S * 1000.0
#: Nanoseconds by which a table of the kernel may be older than we think.
SLACK_NS = 10**9
#: Attempts to read a file that its user may be writing, and what fills it up to a multiple of `BLOCK`: in this way its
#: length hardly ever changes, and one write changes all of it.
TRIES, PADDING, BLOCK = 40, " ", 4096
#: Nanoseconds of short leases that are written together. So much of a runner's device time a crash may lose.
TOGETHER_NS = 20 * 10**6
#: Seconds after its last change in which a file may still be half written.
WRITTEN_S = 0.1


@record
class Hold:
    """A lease that lasts: its device, from when on it is not in a day's sum yet, and which part of the device it is."""

    device: str
    since_ns: int
    part: int = WHOLE


class Ledger:
    """The content of a file: milliseconds of device time per day, and leases that last, by inode of their socket."""

    def __init__(self) -> None:
        #: By number of the day since 1970, in UTC.
        self.days: dict[int, float] = {}
        self.holds: dict[int, Hold] = {}

    def add(self, now_ns: int, wall_s: float, since_ns: int, part: int) -> None:
        """Add the time from `since_ns` until now to the days on which it was."""
        left_s = max(0, now_ns - since_ns) / 1e9
        until_s = wall_s
        while left_s > 0:
            # A moment at midnight ends the day before.
            day = -int(-until_s // DAY_S) - 1
            here_s = min(left_s, until_s - day * DAY_S)
            self.days[day] = self.days.get(day, 0.0) + here_s * part
            left_s, until_s = left_s - here_s, until_s - here_s

    def now(self, now_ns: int, wall_s: float, listening: Collection[int]) -> dict[int, float]:
        """Return the days with what is held now; a lease whose socket is gone has ended at an unknown time.

        Days that are too old or to come are left out: any user may write any record of their own.
        """
        today = int(wall_s // DAY_S)
        whole = Ledger()
        whole.days = {
            day: min(ms, MOST_DAY_MS) for day, ms in self.days.items() if today - MOST_DAYS <= day <= today + 1
        }
        for inode, hold in self.holds.items():
            if inode in listening:
                whole.add(now_ns, wall_s, hold.since_ns, hold.part)
        return whole.days

    def text(self) -> str:
        """Return it as it is written, after a checksum; times of days in microseconds."""
        kept = sorted(self.days)[-MOST_DAYS:]
        rows = [f"day {day} {self.days[day] * 1000:.0f}" for day in kept]
        rows += [f"hold {inode} {h.device} {h.since_ns} {h.part}" for inode, h in [*self.holds.items()][-MOST_HOLDS:]]
        body = f"{processes.boot_id()}\n" + "".join(f"{row}\n" for row in rows)
        return f"{zlib.crc32(body.encode()):08x}\n{body}"


def parse(text: str) -> Ledger | None:
    """Return what a file says; None if it is not whole. Leases from before the last boot have ended."""
    checksum, _, body = text.partition("\n")
    if checksum != f"{zlib.crc32(body.encode('utf-8', 'replace')):08x}":
        return None
    boot_id, *rows = body.splitlines()
    found = Ledger()
    for words in map(str.split, rows):
        numbers = [int(word) for word in words[1:] if units.is_whole(word)]
        if words[:1] == ["day"] and len(words) == len(numbers) + 1 == 3:
            found.days[numbers[0]] = numbers[1] / 1000
        elif words[:1] == ["hold"] and len(words) == 5 and len(numbers) == 3 and boot_id == processes.boot_id():
            if len(found.holds) == MOST_HOLDS:
                break
            found.holds[numbers[0]] = Hold(words[2], numbers[1], min(numbers[2], WHOLE))
    return found


# -- reading ----------------------------------------------------------------------------------------------------------


def read(place: Folder, uid: int) -> Ledger:
    """Return what the processes of a user recorded; nothing if there is no file that counts."""
    for _ in range(TRIES):
        found = locks.read_small(place.line_file(f"{USAGE}{uid}"), size=MOST_BYTES)
        if found is None or served_records.flaw(found[0], uid) is not None:
            break
        ledger = parse(found[1].rstrip(PADDING))
        if ledger is not None:
            return ledger
        if time.time() - found[0].st_ctime > WRITTEN_S:
            break
        # It is just being written. With nothing recorded, this user would look like a newcomer.
        select.select((), (), (), PAUSE_S)
    return Ledger()


def recorded_users(place: Folder) -> list[int]:
    """Return the users who have a record."""
    names = ((name, name[len(USAGE) :]) for name in locks.names(place, USAGE))
    found = ((name, int(uid)) for name, uid in names if units.is_whole(uid))
    return [uid for name, uid in found if served_records.is_sound(place.line_file(name), uid)]


def known_users(place: Folder) -> set[int]:
    """Return the users who have a record, or of whom we saw something."""
    return {*recorded_users(place), *(uid for people in _read_seen(place).values() for uid in people)}


def days_of_users(place: Folder, uids: Iterable[int], wall_s: float | None = None) -> dict[int, dict[int, float]]:
    """Return the milliseconds of device time of each user on each day, up to now."""
    now_ns, wall_s = locks.boot_ns(), time.time() if wall_s is None else wall_s
    listening = {inode for inodes in locks.bound(place, "gpu").values() for inode in inodes}
    me, seen = os.geteuid(), _read_seen(place)
    found = {}
    for uid in uids:
        days = read(place, uid).now(now_ns, wall_s, listening)
        for day, people in seen.items() if uid != me else ():
            if people.get(uid, 0.0) > days.get(day, 0.0):
                days[day] = people[uid]
        found[uid] = days
    return found


def decayed_s(days: Mapping[int, float], half_life_s: float, wall_s: float) -> float:
    """Return seconds of device time of which older ones count less: after `half_life_s` half."""
    today = int(wall_s // DAY_S)
    total = 0.0
    for day, ms in days.items():
        total += ms * 2.0 ** (-max(0, today - day) * DAY_S / half_life_s)
    return total / 1000


def in_week_s(days: Mapping[int, float], wall_s: float) -> float:
    """Return seconds of device time of today and the six days before."""
    today = int(wall_s // DAY_S)
    return sum(ms for day, ms in days.items() if today - 7 < day <= today) / 1000


def _read_seen(place: Folder) -> dict[int, dict[int, float]]:
    """Return what we saw of others: milliseconds by day and uid."""
    uid = os.geteuid()
    found = locks.read_small(place.line_file(f"{SEEN}{uid}"), size=MOST_BYTES)
    if found is None or served_records.flaw(found[0], uid) is not None:
        return {}
    return _parse_seen(found[1])


def _parse_seen(text: str) -> dict[int, dict[int, float]]:
    seen: dict[int, dict[int, float]] = {}
    for words in map(str.split, text.splitlines()):
        if len(words) == 3 and all(map(units.is_whole, words)):
            seen.setdefault(int(words[0]), {})[int(words[1])] = float(words[2])
    return seen


# -- writing ----------------------------------------------------------------------------------------------------------


class OwnRecord:
    """Our own files, locked from `with` on. Without the lock (a planted file, a full disk) nothing is recorded."""

    def __init__(self, place: Folder) -> None:
        self._place = place
        self._fd: int | None = None
        #: The file with our time, if it was there.
        self._file: int | None = None
        self._ledger = Ledger()
        self._is_changed = False

    @property
    def is_locked(self) -> bool:
        """Return whether no other process of ours can write them now."""
        return self._fd is not None

    def __enter__(self) -> OwnRecord:
        self._fd = _lock(self._place.line_file(f"{SEEN}{os.geteuid()}"))
        if self._fd is not None:
            self._file = _open_own(self._path)
            if self._file is not None:
                # Nobody writes it now: what is not whole stays so.
                text = os.pread(self._file, MOST_BYTES, 0).decode("utf-8", "replace")
                self._ledger = parse(text.rstrip(PADDING)) or Ledger()
        return self

    @property
    def _path(self) -> str:
        return self._place.line_file(f"{USAGE}{os.geteuid()}")

    def __exit__(self, *error: object) -> None:
        if self._fd is None:
            return
        try:
            if self._is_changed and self._file is None:
                self._file = _make_own(self._path, 0o644)
            if self._is_changed and self._file is not None:
                _replace(self._file, self._ledger.text())
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            # Unlock explicitly before closing: a thread that forks now would take a copy with it.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = None

    def began(self, leases: Mapping[int, str], part: int = WHOLE, since_ns: int | None = None) -> None:
        """Record new leases: the inodes of their sockets, each with its device."""
        since_ns = locks.boot_ns() if since_ns is None else since_ns
        for inode, device in leases.items():
            self._ledger.holds[inode] = Hold(device, since_ns, part)
        self._is_changed = True

    def lasted(self, since_ns: int, part: int) -> None:
        """Record a lease that ends now and whose beginning was not recorded."""
        self._ledger.add(locks.boot_ns(), time.time(), since_ns, part)
        self._is_changed = True

    def ended(self, inodes: Iterable[int]) -> None:
        """Record that leases end now."""
        now_ns, wall_s = locks.boot_ns(), time.time()
        for inode in inodes:
            hold = self._ledger.holds.pop(inode, None)
            if hold is not None:
                self._ledger.add(now_ns, wall_s, hold.since_ns, hold.part)
                self._is_changed = True

    def settle(self, listening: Collection[int], looked_ns: int) -> None:
        """Add what is held until now to the days, so that a crash loses little; forget leases that are gone.

        `listening` was read at `looked_ns`: newer leases cannot be in it.
        """
        now_ns, wall_s = locks.boot_ns(), time.time()
        for inode, hold in [*self._ledger.holds.items()]:
            if inode in listening:
                self._ledger.add(now_ns, wall_s, hold.since_ns, hold.part)
                hold.since_ns = now_ns
                self._is_changed = True
            elif hold.since_ns < looked_ns - SLACK_NS:
                del self._ledger.holds[inode]
                self._is_changed = True

    def restore(self, days: Mapping[int, float]) -> None:
        """Take days from an older record that a reboot removed."""
        for day, ms in days.items():
            if ms > self._ledger.days.get(day, 0.0):
                self._ledger.days[day] = ms
                self._is_changed = True

    def see(self, people: Mapping[int, float], wall_s: float) -> None:
        """Add milliseconds of device time of other users to today."""
        if self._fd is None or not people:
            return
        today = int(wall_s // DAY_S)
        seen = _read_seen(self._place)
        here = seen.setdefault(today, {})
        for uid, ms in people.items():
            if uid in here or len(here) < MOST_PEOPLE:
                here[uid] = here.get(uid, 0.0) + ms
        rows = [f"{day} {uid} {ms:.0f}\n" for day in sorted(seen)[-DAYS_SEEN:] for uid, ms in sorted(seen[day].items())]
        _replace(self._fd, "".join(rows))


class ShortLeases:
    """The time of leases that ended before their beginning was recorded, until it is worth a write.

    Between two short jobs the record would be a sixth of the work of a runner.
    """

    __slots__ = ("_spent_ns", "_together_ns")

    def __init__(self, together_ns: int = TOGETHER_NS) -> None:
        self._together_ns = together_ns
        #: Of whole devices.
        self._spent_ns = 0

    def add(self, since_ns: int, part: int) -> None:
        """Add a lease that ends now."""
        self._spent_ns += max(0, locks.boot_ns() - since_ns) * part // WHOLE

    @property
    def are_many(self) -> bool:
        """Return whether they must be written now: those who wait decide by our record whose turn it is."""
        return self._spent_ns >= self._together_ns

    def __bool__(self) -> bool:
        return self._spent_ns > 0

    def move_to(self, own: OwnRecord) -> None:
        """Record them."""
        if self._spent_ns:
            own.lasted(locks.boot_ns() - self._spent_ns, WHOLE)
            self._spent_ns = 0

    def record(self, place: Folder) -> None:
        """Record them now, if there are any."""
        if self._spent_ns:
            with OwnRecord(place) as own:
                self.move_to(own)


def _lock(path: str) -> int | None:
    """Return our locked file, made if it is missing; None if that fails."""
    fd = _open_own(path, os.O_CREAT)
    until = time.monotonic() + LOCK_S
    pauses_s = iter(PAUSES_S)
    while fd is not None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() >= until:
                os.close(fd)
                return None
            select.select((), (), (), next(pauses_s, PAUSE_S))
    return fd


def _open_own(path: str, flags: int = 0) -> int | None:
    """Return our file; None if there is none, or a planted one: then nothing is read or written."""
    try:
        fd = os.open(path, os.O_RDWR | flags | locks.OPEN_FLAGS, 0o600)
    except OSError:
        return None
    if served_records.flaw(os.fstat(fd), os.geteuid()) is None:
        return fd
    os.close(fd)
    return None


def _make_own(path: str, mode: int) -> int | None:
    """Make our file; None on a full disk, or beside a planted one: the device must still be given."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | locks.OPEN_FLAGS, 0o600)
        os.fchmod(fd, mode)
        return fd
    except OSError:
        return None


def _replace(fd: int, text: str) -> None:
    """Write a file in place; a reader that sees a mix finds a wrong checksum and reads again."""
    data = text.encode("ascii", "replace")
    data = data.ljust(-(-len(data) // BLOCK) * BLOCK, PADDING.encode())
    try:
        os.pwrite(fd, data, 0)
        if os.fstat(fd).st_size != len(data):
            os.ftruncate(fd, len(data))
    except OSError:
        return
