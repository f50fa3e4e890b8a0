"""One forecast for all who ask: made for a state of the queue, and used until that has changed or a moment has passed.

What a forecast costs does not depend on how many look at the queue. Nothing here knows what a state is made of.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from dibs.scheduling.forecasts import Foreseen

#: Milliseconds for which a forecast holds where nothing changes: time goes on, and what runs may take longer.
HOLDS_FOR_MS = 1000


class Foreseeing:
    """The latest forecast. For any thread, and one at a time: whoever comes second finds the days lived already."""

    def __init__(self, holds_for_ms: int = HOLDS_FOR_MS) -> None:
        self._holds_for_ms = holds_for_ms
        self._lock = threading.Lock()
        self._state: object = None
        self._made_at = 0
        self._foreseen: Foreseen | None = None

    @contextlib.contextmanager
    def of(self, state: object, now: int, make: Callable[[], Foreseen]) -> Iterator[Foreseen]:
        """Give the forecast for a state, made only if it is another than before; it is ours until we leave."""
        with self._lock:
            # A clock that was set back makes what was made before no younger.
            is_old = not 0 <= now - self._made_at < self._holds_for_ms
            if self._foreseen is None or is_old or state != self._state:
                self._foreseen = make()
                self._state, self._made_at = state, now
            yield self._foreseen
