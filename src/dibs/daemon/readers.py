"""Threads that query the store without delaying its writer."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dibs.errors import DibsError, MachineError
from dibs.store import writer
from dibs.store.database import DatabaseError

if TYPE_CHECKING:
    from dibs.jobqueue.thread import QueueThread

T = TypeVar("T")
log = logging.getLogger("dibs.daemon.readers")

#: Number of threads; each has its own connection.
READERS = 2
#: Seconds after which a query is examined, and between examinations: it may only be long.
PATIENCE_S = 2.0
LOOK_EVERY_S = 0.4
#: Seconds until a `StoreThread` tries again after an error, and that the daemon waits at its end for one.
AGAIN_S, END_WITHIN_S = 5.0, 2.0


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


class StoreThread:
    """A thread with a connection of its own that does slow work when it is called; turns of the queue store results.

    The store says what there is to do, so a crash loses nothing: the next daemon continues.
    """

    #: What it does, as the name of the thread.
    name = ""

    def __init__(self, database: Path) -> None:
        self._database = database
        #: Requests, True for a change, and False for the end.
        self._calls: queue.SimpleQueue[Callable[[], None] | bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._reader: writer.Reader
        self._queue: QueueThread

    def start(self, queue_thread: QueueThread) -> None:
        """Begin with what an earlier daemon left."""
        self._queue = queue_thread
        # A daemon thread: if it hangs on a disk, it is left until the process ends.
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Look at the store, because jobs have changed. From any thread."""
        self._calls.put(True)

    def stop(self) -> None:
        """End the thread after its current work. From any thread."""
        self._calls.put(False)

    def join(self) -> None:
        """Wait until the thread has closed its connection: SQLite removes its log with the last one."""
        if self._thread is not None:
            self._thread.join(END_WITHIN_S)

    def _run(self) -> None:
        self._reader = writer.Reader.open(self._database)
        timeout_s: float | None = None
        try:
            while self._is_called(timeout_s):
                try:
                    timeout_s = self._look()
                except (OSError, DatabaseError, DibsError):
                    log.exception("the thread for %s", self.name)
                    timeout_s = AGAIN_S
        finally:
            self._leave()
            self._reader.close()

    def _is_called(self, timeout_s: float | None) -> bool:
        """Wait for a call and run requests; tell whether the thread continues."""
        try:
            call = self._calls.get(timeout=timeout_s)
        except queue.Empty:
            return True
        while True:
            if call is False:
                return False
            if callable(call):
                call()
            if self._calls.empty():
                return True
            call = self._calls.get()

    def _look(self) -> float | None:
        """Do what is due; return the seconds until the next look, None: only when something changes."""
        return None

    def _leave(self) -> None:
        """Release what the thread holds."""


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
