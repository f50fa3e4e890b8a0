"""Reservations: devices that are kept for a user for a time. Small files that all users can read.

    .dibs-reserve-UID-ID   0644  made by the user who reserves; only root reserves for another user

Those of root are in a folder of root, too, which a reboot does not empty (`reservation_copies`).

Only a file that its user alone can have written counts, within bounds, and of two for the same device and time the one
of root or the earlier one. Until a reservation begins, everybody may use its devices for what ends before that; then
only its user may take them. Devices that stay unused are released. Nothing that runs is ended.

Reservations follow the clock on the wall, as people do.
"""

from __future__ import annotations

import os
import time

from dibs.leases import holders, rules_file, served_records
from dibs.model import lab_rules, units
from dibs.system import locks, users
from dibs.system.lean import closing_fd, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dibs.system.locks import Folder

#: Prefix of a file's name; uid and number follow.
RESERVE = ".dibs-reserve-"
#: Bytes of a file that are read, devices of it that count, and reservations of one user that count; root has no such
#: bound.
MOST_BYTES, MOST_DEVICES, MOST_OF_USER = 8192, 128, 8
#: Seconds: the longest reservation of a user, how long before it begins it counts, and how long it may be repeated.
LONGEST_S, AHEAD_S, REPEATED_S = 86400.0, 7 * 86400.0, 35 * 86400.0
#: Days after which a reservation is repeated, by the word for it.
PERIODS = {"day": 1, "week": 7}
#: Characters of a name.
LONGEST_NAME = 60
#: Readable for all. The sticky bit keeps systemd-tmpfiles from deleting it.
MODE = 0o1644
#: Root's folder, below / or below the folder in which the lease folder was prepared.
ROOTS_FOLDER = "/var/lib/dibs"


@record
class Reservation:
    """Devices that are kept for a user. Times are seconds since 1970."""

    number: int
    #: Who made it, and for whom.
    owner: int
    uid: int
    devices: tuple[str, ...]
    from_s: float
    for_s: float
    #: "day" or "week", or empty: once.
    every: str = ""
    name: str = ""
    #: When it was made; when its file was, which nobody can set and which is later after a reboot.
    made_s: float = 0.0
    filed_s: float = 0.0

    @property
    def user(self) -> str:
        """Return the name of the user it is for. The lookup may take time."""
        return users.name(self.uid)

    def window(self, now_s: float) -> tuple[float, float] | None:
        """Return the present time that it is for, or the next; None if there is none any more."""
        start = self.from_s
        if self.every and now_s >= start + self.for_s:
            days = PERIODS[self.every]
            past = int((now_s - start - self.for_s) // (days * 86400))
            # The same time of the day, also after the clocks were changed; that may be an hour more or less.
            start = next(
                moment for n in range(max(0, past - 1), past + 4)
                if (moment := _days_later(self.from_s, n * days)) + self.for_s > now_s
            )  # fmt: skip
            if self.owner != 0 and start > self.made_s + REPEATED_S:
                return None
        return (start, start + self.for_s) if start + self.for_s > now_s else None


def _days_later(moment_s: float, days: int) -> float:
    whole = time.localtime(moment_s)
    later = (whole.tm_year, whole.tm_mon, whole.tm_mday + days, whole.tm_hour, whole.tm_min, whole.tm_sec, 0, 0, -1)
    return time.mktime(later) + moment_s % 1


@record
class Closure:
    """When a device is closed to a user, until when, and for whom it is kept then."""

    at_s: float
    until_s: float
    reservation: Reservation


# -- reading ----------------------------------------------------------------------------------------------------------


def read_all(place: Folder, now_s: float) -> list[Reservation]:
    """Return the reservations that count, the next one first."""
    found: list[tuple[float, int, Reservation]] = []
    counts: dict[int, int] = {}
    for owner, number in sorted(_numbers(place)):
        # Before counting: anybody can plant files in the name of another.
        if not any(served_records.is_sound(path, owner) for path in _paths(place, owner, number)):
            continue
        counts[owner] = counts.get(owner, 0) + 1
        if counts[owner] > MOST_OF_USER and owner != 0:
            continue
        one = _read(place, owner, number)
        if one is not None and (window := one.window(now_s)) is not None and _is_near(one, window, now_s):
            found.append((window[0], one.number, one))
    return [one for _, _, one in sorted(found, key=lambda each: each[:2])]


def _numbers(place: Folder) -> set[tuple[int, int]]:
    """Return the owners and numbers in the names of all files."""
    words = [name[len(RESERVE) :].split("-") for name in (*locks.names(place, RESERVE), *_names_of_root(place))]
    return {(int(two[0]), int(two[1])) for two in words if len(two) == 2 and all(map(units.is_whole, two))}


def roots_folder(place: Folder) -> str | None:
    """Return root's folder for a lease folder; None: root has none beside a folder of tests."""
    tree = lab_rules.tree_of(place.path)
    return None if tree is None else tree + ROOTS_FOLDER


def _names_of_root(place: Folder) -> list[str]:
    """Return the names of the files of root that a reboot leaves."""
    folder = roots_folder(place)
    try:
        names = os.listdir(folder) if folder else []
    except OSError:
        return []
    return [name for name in names if name.startswith(f"{RESERVE}0-")]


def _paths(place: Folder, owner: int, number: int) -> list[str]:
    """Return where the file of a reservation may be."""
    folder = roots_folder(place) if owner == 0 else None
    paths = [path_of(place, owner, number)]
    return [*paths, f"{folder}/{RESERVE}{owner}-{number}"] if folder else paths


def _is_near(one: Reservation, window: tuple[float, float], now_s: float) -> bool:
    """Return whether it counts already. What a user makes for later counts when it is near enough."""
    return one.owner == 0 or window[0] <= now_s + AHEAD_S


def _read(place: Folder, owner: int, number: int) -> Reservation | None:
    for path in _paths(place, owner, number):
        found = locks.read_small(path, size=MOST_BYTES)
        if found is not None and served_records.flaw(found[0], owner) is None:
            one = parse(found[1], owner, number)
            if one is not None:
                one.filed_s = found[0].st_ctime
                # Who says an earlier time only ends a repetition sooner.
                one.made_s = min(one.made_s or one.filed_s, one.filed_s)
                return one
    return None


def parse(text: str, owner: int, number: int) -> Reservation | None:
    """Return what a file of this owner says; None if it says nothing that counts."""
    import json

    try:
        said = json.loads(text)
        devices = tuple([holders.checked(device) for device in said["devices"]])[:MOST_DEVICES]
        uid = int(said["uid"]) if owner == 0 else owner
        times = float(said["from"]), float(said["for"])
        # It is shown to others, on terminals too.
        name = "".join(char if char.isprintable() else "?" for char in str(said["name"])[:LONGEST_NAME])
        # Earlier releases did not write when it was made.
        made_s = float(said.get("made", 0.0))
        one = Reservation(number, owner, uid, devices, *times, str(said["every"]), name, made_s)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    is_sane = devices and 0 < one.from_s < 1e11 and 0 < one.for_s < 1e9 and one.every in ("", *PERIODS)
    return one if is_sane and 0 <= made_s < 1e11 and (owner == 0 or one.for_s <= LONGEST_S) else None


def kept(
    place: Folder, found: Iterable[Reservation], devices: Iterable[str], now_s: float, unused_for_s: float
) -> list[tuple[str, Closure]]:
    """Return those of `devices` that are reserved, each with the time; without those that stayed unused."""
    wanted = {*devices}
    all_times: list[tuple[str, Closure]] = []
    # Dibs makes no two for the same device and time; who writes a file by hand is served last.
    for one in sorted(found, key=lambda one: (one.owner != 0, one.filed_s, one.number)):
        window = one.window(now_s)
        if window is not None:
            new = Closure(*window, one)
            all_times += [(name, new) for name in one.devices if name in wanted and not _is_taken(all_times, name, new)]
    begun = {(device, one.at_s) for device, one in all_times if one.at_s <= now_s}
    unused = _unused(place, begun, now_s, unused_for_s)
    return [(device, one) for device, one in all_times if (device, one.at_s) not in unused]


def _is_taken(earlier: Iterable[tuple[str, Closure]], device: str, new: Closure) -> bool:
    """Return whether another user has reserved a device for a part of the same time."""
    return any(
        name == device and one.at_s < new.until_s and new.at_s < one.until_s
        for name, one in earlier
        if one.reservation.uid != new.reservation.uid
    )


def _unused(
    place: Folder, begun: Collection[tuple[str, float]], now_s: float, unused_for_s: float
) -> set[tuple[str, float]]:
    """Return those devices and begins of reservations since which the device was free for too long."""
    # Taking and releasing a device sets the time of its file. A boot ends all use, and removes the file.
    used_s = holders.used_at(place, {device for device, _ in begun})
    boot_s = time.time() - locks.boot_ns() / 1e9
    idle = {
        (device, start_s) for device, start_s in begun if now_s - max(start_s, used_s[device], boot_s) >= unused_for_s
    }
    held = holders.held(place, sorted({device for device, _ in idle}))
    return {(device, start_s) for device, start_s in idle if device not in held}


def closures(kept: Iterable[tuple[str, Closure]], uid: int, now_s: float) -> dict[str, Closure]:
    """Return when each reserved device is closed to a user: now, or from a later time on."""
    closed: dict[str, Closure] = {}
    for device, one in kept:
        if one.reservation.uid == uid:
            if one.at_s <= now_s:
                continue
            # From then on it is ours.
            one = Closure(one.at_s, one.at_s, one.reservation)
        if device not in closed or one.at_s < closed[device].at_s:
            closed[device] = one
    return closed


def closed_to_us(
    place: Folder, devices: Iterable[str], rules: rules_file.RulesFile | None = None
) -> dict[str, Closure]:
    """Return those of `devices` that a reservation keeps from this user now."""
    now_s = time.time()
    try:
        found = read_all(place, now_s)
    except locks.Broken:
        # The user of the folder reports that.
        return {}
    if not found:
        return {}
    unused_for_s = (rules or rules_file.rules_of_folder(place)).now().unused_for_s
    closed = closures(kept(place, found, devices, now_s, unused_for_s), os.geteuid(), now_s)
    return {device: one for device, one in closed.items() if one.at_s <= now_s}


def text(closure: Closure) -> str:
    """Return for whom and until or from when a device is reserved."""
    one, now_s = closure.reservation, time.time()
    word, moment_s = ("until", closure.until_s) if closure.at_s <= now_s else ("from", closure.at_s)
    whose = "you" if one.uid == os.geteuid() else one.user
    return f"reserved for {whose} {word} {moment(moment_s)}{f' ({one.name})' if one.name else ''}"


def moment(at_s: float) -> str:
    """Return a time as people write it in their time zone."""
    return time.strftime("%a %Y-%m-%d %H:%M", time.localtime(at_s))


def next_change_s(found: Iterable[Reservation], now_s: float, unused_for_s: float) -> float | None:
    """Return when a reservation begins, ends or may be released next; None: never."""
    moments: list[float] = []
    for one in found:
        window = one.window(now_s)
        if window is not None:
            moments += [window[0], window[0] + unused_for_s, window[1]]
    return min((moment for moment in moments if moment > now_s), default=None)


# -- making -----------------------------------------------------------------------------------------------------------


def make(place: Folder, wanted: Reservation) -> int:
    """Write a reservation of this user; return its number."""
    remove_ended(place, time.time())
    number = free_number(place)
    try:
        write(path_of(place, os.geteuid(), number), wanted)
    except OSError as error:
        raise locks.unusable(place, "keep a reservation in", error) from error
    return number


def free_number(place: Folder) -> int:
    """Return the lowest number that no reservation has."""
    used = used_numbers(place)
    return next(number for number in range(1, len(used) + 2) if number not in used)


def used_numbers(place: Folder) -> set[int]:
    """Return the numbers of all reservations."""
    return {number for _, number in _numbers(place)}


def remove_ended(place: Folder, now_s: float) -> None:
    """Remove this user's reservations that are over: they would count among those that a user may have."""
    me = os.geteuid()
    for owner, number in _numbers(place):
        one = _read(place, owner, number) if owner == me else None
        if one is not None and one.window(now_s) is None:
            cancel(place, one)


def write(path: str, one: Reservation) -> None:
    """Write a reservation as a file that all users can read, at once and as a whole; raise OSError if we cannot."""
    import json

    said = {
        "uid": one.uid, "from": one.from_s, "for": one.for_s, "every": one.every, "name": one.name,
        "devices": list(one.devices), "made": one.made_s,
    }  # fmt: skip
    temporary = f"{os.path.dirname(path)}/.dibs-new-{os.urandom(8).hex()}"
    with closing_fd(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | locks.OPEN_FLAGS, 0o600)) as fd:
        try:
            os.pwrite(fd, json.dumps(said).encode("ascii"), 0)
            os.fchmod(fd, MODE)
            os.fsync(fd)
            os.rename(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


def path_of(place: Folder, owner: int, number: int) -> str:
    """Return the path of a reservation in the lease folder."""
    return place.line_file(f"{RESERVE}{owner}-{number}")


def cancel(place: Folder, one: Reservation) -> None:
    """Remove a reservation; raise OSError if we may not."""
    for path in _paths(place, one.owner, one.number):
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
