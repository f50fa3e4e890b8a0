"""Who goes first: the core, whose turns start jobs. Whoever only answers questions gives way to it.

All threads of the daemon share one interpreter. A turn lets go of it with every query and every call of the system,
and each time has to wait until another thread that computes lets it in again.
"""

from __future__ import annotations

import threading
import time

#: Seconds from the beginning of a turn for which others give way. A turn that starts jobs takes a few milliseconds;
#: one that takes longer queues thousands, and must not keep those waiting who look.
LONGEST_S = 0.02


class Way:
    """Taken by one thread, given by all others."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._free = threading.Event()
        self._free.set()
        self._taken_at = 0.0

    @property
    def is_taken(self) -> bool:
        """Tell whether others are to give way."""
        return not self._free.is_set()

    def take(self) -> None:
        """Have others give way from now on."""
        if not self.is_taken:
            self._taken_at = time.monotonic()
            self._free.clear()

    def leave(self) -> None:
        """Let others go on."""
        self._free.set()

    def give(self) -> None:
        """Wait while the way is taken, within bounds; costs next to nothing while it is free."""
        if self.is_taken:
            self._free.wait(max(0.0, self._taken_at + self._longest_s - time.monotonic()))
