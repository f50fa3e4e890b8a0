"""When to look at the files of the starts on an engine: what they say needs no call of the engine.

Looks are frequent after news, and then become rare: with few starts two a second, with hundreds one in five seconds.
They never take more than a small share of the time, however slow the shared folder is.

Apart: It reads no files, and its tests need no cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from dibs.engines.remote_starts import Tracked

#: Seconds between two looks: after news; and at most, for few starts and for many.
FIRST_S, LATEST_S, SLOWEST_S = 0.1, 0.5, 5.0
SLOWER = 1.2
#: Files that are read in a second, at most, until looks are `SLOWEST_S` apart. Those of starts that wait in the engine
#: are read only if all are fewer.
READS_PER_S = 100
#: How much longer than a look the pause after it is.
PAUSE_SHARE = 8


@dataclass(slots=True)
class RecordWatch:
    """The looks at the starts of one engine; times are of the monotonic clock."""

    due_at: float = 0.0
    _pause_s: float = FIRST_S

    def hurry(self) -> None:
        """Look soon and often: something has just happened."""
        self._pause_s = FIRST_S
        self.due_at = min(self.due_at, time.monotonic() + FIRST_S)

    def choose(self, starts: Iterable[Tracked]) -> list[Tracked]:
        """Return the starts whose files may have news."""
        sent = [own for own in starts if own.ref is not None]
        return sent if len(sent) <= READS_PER_S else [own for own in sent if own.seen.phase != "waiting"]

    def rest(self, began_at: float, reads: int, *, has_news: bool) -> None:
        """Plan the next look after one that read `reads` files."""
        now = time.monotonic()
        self._pause_s = pause_after(self._pause_s, reads, has_news=has_news)
        self.due_at = now + max(self._pause_s, PAUSE_SHARE * (now - began_at))


def pause_after(before_s: float, reads: int, *, has_news: bool) -> float:
    """Return the pause after a look, from the number of files that it read and whether it had news. Pure."""
    latest_s = min(SLOWEST_S, max(LATEST_S, reads / READS_PER_S))
    grown_s = FIRST_S if has_news else min(latest_s, before_s * SLOWER)
    return min(latest_s, max(grown_s, reads / READS_PER_S))
