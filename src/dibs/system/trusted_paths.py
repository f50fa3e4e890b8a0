"""Whether a path leads through folders that no other user can change.

Each step must belong to us or to root, links included, and must not be writable for all unless it is sticky. Otherwise
another user could replace a step by a link and choose where we write. Members of a folder's group count as trusted: its
owner chose them.

Lean.
"""

from __future__ import annotations

import os
import stat

#: Links on one path, as in the kernel.
MOST_LINKS = 40
#: The range of user ids in a namespace that has all of them.
ALL_IDS = 4294967295


def find_problem(path: str) -> str | None:
    """Return why a path cannot be trusted: the step and its owner; None if it can. Missing steps are no problem."""
    trusted = _trusted_uids()
    done, left = "/", [part for part in path.split("/") if part]
    if why := _problem(done, os.lstat(done), trusted):
        return why
    links = 0
    while left:
        step = os.path.normpath(os.path.join(done, left.pop(0)))
        try:
            status = os.lstat(step)
        except FileNotFoundError:
            return None
        if why := _problem(step, status, trusted):
            return why
        if not stat.S_ISLNK(status.st_mode):
            done = step
            continue
        links += 1
        if links > MOST_LINKS:
            return f"{path} has too many links"
        target = os.readlink(step)
        done = "/" if target.startswith("/") else done
        left = [part for part in target.split("/") if part] + left
    return None


def _problem(step: str, status: os.stat_result, trusted: frozenset[int]) -> str | None:
    if status.st_uid not in trusted:
        kind = (
            "the link" if stat.S_ISLNK(status.st_mode) else "the folder" if stat.S_ISDIR(status.st_mode) else "the file"
        )
        return f"{kind} {step} belongs to another user (uid {status.st_uid})"
    is_open = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    return f"every user can write to {step} ({stat.S_IMODE(status.st_mode):04o})" if is_open else None


def _trusted_uids() -> frozenset[int]:
    """Return root and us; in a user namespace, which cannot name the real root, also the id that stands for it."""
    try:
        with open("/proc/self/uid_map", "rb", buffering=0) as file:
            has_all = any(int(line.split()[2]) == ALL_IDS for line in file.read(4096).splitlines())
        with open("/proc/sys/kernel/overflowuid", "rb", buffering=0) as file:
            unnamed = int(file.read(32))
    except (OSError, ValueError, IndexError):
        return frozenset((0, os.geteuid()))
    return frozenset((0, os.geteuid())) if has_all else frozenset((0, os.geteuid(), unnamed))
