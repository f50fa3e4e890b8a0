"""Threads that query the store without delaying its writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dibs.store import writer

T = TypeVar("T")

#: Number of threads; each has its own connection.
READERS = 2


class Readers:
    """A pool of threads that read the store. Each calls `pause` first, to yield to the writer."""

    def __init__(self, database: Path, pause: Callable[[], None]) -> None:
        #: Queries that wait or run.
        self.pending = 0
        self._database = database
        self._pause = pause
        self._local = threading.local()
        self._opened: list[writer.Reader] = []
        self._threads = ThreadPoolExecutor(READERS, "reader")

    async def ask(self, question: Callable[[writer.Reader], T]) -> T:
        """Run a query in one of the threads."""
        self.pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)
        finally:
            self.pending -= 1

    def _answer(self, question: Callable[[writer.Reader], T]) -> T:
        reader = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = writer.Reader.open(self._database)
            reader.pause = self._pause
            self._opened.append(reader)
        reader.pause()
        return question(reader)

    def close(self) -> None:
        """Finish the running queries and close the connections."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for reader in self._opened:
            reader.close()
