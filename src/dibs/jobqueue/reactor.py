"""The event loop of the queue thread: descriptors, timers, and work posted by other threads.

The queue thread receives runner messages directly: a hop through another thread would cost more than the work itself.
While it is awake, readers yield the interpreter to it.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

#: Seconds from the beginning of a turn for which readers yield. A turn that starts jobs takes a few milliseconds; one
#: that submits thousands of jobs takes longer, and must not block readers for all that time.
LONGEST_S = 0.02


class ReadPriority:
    """The writer claims priority; readers yield.

    All threads of the daemon share one interpreter. A turn releases it with every query and system call, and would have
    to wait each time until a computing reader releases it again.
    """

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._free = threading.Event()
        self._free.set()
        self._taken_at = 0.0

    @property
    def is_taken(self) -> bool:
        """Tell whether readers must yield."""
        return not self._free.is_set()

    def take(self) -> None:
        """Make readers yield from now on."""
        if not self.is_taken:
            self._taken_at = time.monotonic()
            self._free.clear()

    def leave(self) -> None:
        """Let readers continue."""
        self._free.set()

    def give(self) -> None:
        """Wait while the writer has priority, at most `longest_s`; costs almost nothing otherwise."""
        if self.is_taken:
            self._free.wait(max(0.0, self._taken_at + self._longest_s - time.monotonic()))


class Reactor(Generic[T]):
    """An event loop. Only `post` and `len` may be called from threads other than the one that calls `wait`."""

    def __init__(self) -> None:
        #: Claimed while the thread is awake.
        self.way = ReadPriority()
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._posted: deque[T] = deque()
        self._lock = threading.Lock()
        self._then: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Return the number of posted, pending items. From any thread."""
        return len(self._posted)

    def post(self, work: T) -> None:
        """Post work. From any thread."""
        # Ring the bell under the lock, so that `_take` never finds work without it.
        with self._lock:
            self._posted.append(work)
            if len(self._posted) == 1:
                os.eventfd_write(self._bell, 1)

    def watch(self, fd: int, then: Callable[[], None]) -> None:
        """Call `then` once, when `fd` becomes readable; `then` must close it."""
        self._then[fd] = then
        self._epoll.register(fd, select.EPOLLIN)

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after a delay."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), then))

    def wait(self, *, is_idle: bool = True) -> list[T]:
        """Sleep, if idle, until something happens; run due callbacks and return the posted work."""
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        if is_idle:
            self.way.leave()
        else:
            timeout = 0
        found = self._epoll.poll(timeout)
        self.way.take()
        for fd, _ in found:
            if fd != self._bell:
                self._epoll.unregister(fd)
                self._then.pop(fd)()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        return self._take()

    def _take(self) -> list[T]:
        with self._lock:
            if not self._posted:
                return []
            os.eventfd_read(self._bell)
            posted = list(self._posted)
            self._posted.clear()
        return posted

    def close(self) -> None:
        """Stop watching."""
        self._epoll.close()
        os.close(self._bell)
