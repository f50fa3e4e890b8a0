"""Threads that query the store without delaying its writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dibs.errors import MachineError
from dibs.store import writer

T = TypeVar("T")

#: Number of threads; each has its own connection.
READERS = 2
#: Seconds after which a query is examined, and between examinations: it may only be long.
PATIENCE_S = 2.0
LOOK_EVERY_S = 0.4


class Readers:
    """A pool of threads that read the store. Each calls `pause` first, to yield to the writer."""

    def __init__(self, database: Path, pause: Callable[[], None]) -> None:
        #: Queries that wait or run.
        self.pending = 0
        self._database = database
        self._pause = pause
        self._local = threading.local()
        # Opened and used now: they continue to read even if the file is deleted later.
        self._opened = [_open(database) for _ in range(READERS)]
        self._free = list(self._opened)
        #: The kernel's ids of the threads.
        self._ids: list[int] = []
        self._threads = ThreadPoolExecutor(READERS, "reader", self._begin)
        # Start all of them now: later the account may have no process left, and questions must still be answered.
        all_started = threading.Barrier(READERS)
        for _ in range(READERS):
            self._threads.submit(all_started.wait)

    def _begin(self) -> None:
        self._ids.append(threading.get_native_id())
        reader = self._local.reader = self._free.pop()
        reader.pause = self._pause

    async def ask(self, question: Callable[[writer.Reader], T]) -> T:
        """Run a query in one of the threads; raise if the disk does not answer."""
        self.pending += 1
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)
            await asyncio.wait([answer], timeout=PATIENCE_S)
            while not answer.done():
                await self._look(answer)
            return answer.result()
        finally:
            self.pending -= 1

    async def _look(self, answer: asyncio.Future[T]) -> None:
        """Wait a little longer for an answer; raise if all threads hang in the kernel meanwhile."""
        before = self._stuck()
        await asyncio.wait([answer], timeout=LOOK_EVERY_S)
        if not answer.done() and before and before == self._stuck():
            # A query that has not begun is dropped.
            answer.cancel()
            raise MachineError(
                f"the disk of {self._database.parent} does not answer.", "Is it frozen, failing or a lost device?"
            )

    def _stuck(self) -> list[tuple[str, str]]:
        """Return the threads that a disk keeps waiting, with how often they waited; nothing if one of them works."""
        tasks = [progress(number) for number in self._ids]
        return [task for task in tasks if task[0] == "D"] if all(task[0] in "DS" for task in tasks) else []

    def _answer(self, question: Callable[[writer.Reader], T]) -> T:
        reader: writer.Reader = self._local.reader
        reader.pause()
        return question(reader)

    def close(self) -> None:
        """Finish the running queries and close the connections."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for reader in self._opened:
            reader.close()


def _open(database: Path) -> writer.Reader:
    reader = writer.Reader.open(database)
    reader.last_event()
    return reader


def progress(number: int) -> tuple[str, str]:
    """Return the state of a thread, D while the kernel waits for a disk, and how often it has waited for anything.

    Each read of a slow disk counts, though it takes hardly any processor time.
    """
    lines = Path(f"/proc/self/task/{number}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return fields["State"].split()[0], fields["voluntary_ctxt_switches"].strip()
