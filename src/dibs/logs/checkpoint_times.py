"""When a job last wrote to its checkpoint folder, and what of its run time a checkpoint therefore keeps.

A checkpoint counts by the change time of its files; what is in them is the job's own business.
"""

from __future__ import annotations

import os

#: Files that are examined; a folder with more counts by those that were listed first.
MOST_FILES = 2000
#: Milliseconds between two checkpoints that count as two: one may have several files.
APART_MS = 1000


def newest(folder: str, until: int | None = None) -> int | None:
    """Return when a file below `folder` last changed, not after `until`, in wall-clock milliseconds; None: never."""
    found: int | None = None
    left = MOST_FILES
    for top, _, names in os.walk(folder):
        for name in names:
            left -= 1
            if left < 0:
                return found
            at = _changed_at(os.path.join(top, name))
            if at is not None and (until is None or at <= until) and (found is None or at > found):
                found = at
    return found


def _changed_at(path: str) -> int | None:
    try:
        return os.lstat(path).st_mtime_ns // 1_000_000
    except OSError:
        # Removed since it was listed.
        return None


def kept(started_at: int, ended_at: int, newest_at: int | None) -> tuple[int, int]:
    """Return how much of a run is kept by its last checkpoint, and how much is lost, in milliseconds."""
    saved = max(0, min(newest_at or started_at, ended_at) - started_at)
    return saved, max(0, ended_at - started_at - saved)


class Regularity:
    """Which running jobs write checkpoints regularly: at two different times since they started."""

    def __init__(self) -> None:
        #: The first checkpoint of each attempt that was seen.
        self._first: dict[tuple[int, int], int] = {}
        #: Attempts that are known to write them.
        self._known: set[tuple[int, int]] = set()

    def is_new(self, job: int, attempt: int) -> bool:
        """Note an attempt that writes them; tell whether that was not known."""
        is_new = (job, attempt) not in self._known
        self._known.add((job, attempt))
        return is_new

    def see(self, job: int, attempt: int, started_at: int, newest_at: int | None) -> bool:
        """Note the last checkpoint of an attempt; tell whether it is a second one."""
        if newest_at is None or newest_at < started_at:
            return False
        return newest_at - self._first.setdefault((job, attempt), newest_at) >= APART_MS

    def keep_only(self, attempts: set[tuple[int, int]]) -> None:
        """Forget all other attempts."""
        self._first = {key: at for key, at in self._first.items() if key in attempts}
        self._known &= attempts
