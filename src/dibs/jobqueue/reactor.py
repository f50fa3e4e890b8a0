"""What one thread waits for: descriptors, timers, and work that other threads hand it.

The core thread hears of its runners itself: a hop through another thread would cost more than all it has to do.
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

from dibs.jobqueue.read_priority import Way

T = TypeVar("T")


class Waits(Generic[T]):
    """Everything but `post` belongs to the thread that calls `wait`."""

    def __init__(self) -> None:
        #: Taken while the thread is awake.
        self.way = Way()
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._posted: deque[T] = deque()
        self._lock = threading.Lock()
        self._then: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Return how much was posted and not taken yet. From any thread."""
        return len(self._posted)

    def post(self, work: T) -> None:
        """Hand over work, from any thread."""
        # The bell is rung under the lock: whoever finds work finds it rung, and can silence it.
        with self._lock:
            self._posted.append(work)
            if len(self._posted) == 1:
                os.eventfd_write(self._bell, 1)

    def watch(self, fd: int, then: Callable[[], None]) -> None:
        """Call `then` once, when `fd` becomes readable; it is for `then` to close it."""
        self._then[fd] = then
        self._epoll.register(fd, select.EPOLLIN)

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after so many seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), then))

    def wait(self, *, is_idle: bool = True) -> list[T]:
        """Sleep, if idle, until something is there; call what was watched for or timed, and return what was posted."""
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
        """Let go of everything that is still watched."""
        self._epoll.close()
        os.close(self._bell)
