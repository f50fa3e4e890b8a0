"""A daemon that went away while somebody waits for jobs: when to ask again, and when to give up."""

from __future__ import annotations

import time

from dibs.client.connection import Client
from dibs.errors import MachineError

#: Seconds in which it may come back by itself before asking starts it again: somebody may have stopped it on purpose,
#: to upgrade it, and an old one started in between would be in the way.
COME_BACK_FOR_S = 3.0
#: Seconds after which it is given up.
GIVE_UP_AFTER_S = 60.0


class Absence:
    """How long nobody has answered."""

    def __init__(self, queue: Client) -> None:
        self._queue = queue
        self._since: float | None = None

    def is_over(self) -> bool:
        """Tell whether to ask now: somebody listens, or nobody has for so long that asking may start one."""
        sock = self._queue.connect()
        if sock is not None:
            sock.close()
            return True
        return self._lasts_for() > COME_BACK_FOR_S

    def go_on(self, error: MachineError) -> None:
        """Take note that asking failed; raise when it has failed for too long."""
        if self._lasts_for() > GIVE_UP_AFTER_S:
            raise MachineError("lost touch with the daemon; jobs go on by themselves.", error.line()) from error

    def _lasts_for(self) -> float:
        now = time.monotonic()
        self._since = self._since or now
        return now - self._since
