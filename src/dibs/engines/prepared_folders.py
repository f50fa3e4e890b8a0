"""Folders of jobs to come, created in a thread while no job starts, so that a burst of starts finds them ready.

Creating the files of a job is a fifth of the work of its runner, and several times that on an ext4 without a journal
where thousands of files were just deleted. See `spares` for what a folder contains and how a job gets it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dibs.runner import spares
from dibs.system import disk

log = logging.getLogger("dibs.engines.prepared_folders")

#: Seconds without a start until folders are created: the disk and the processor are the runners' until then.
REST_S = 0.5


class PreparedFolders:
    """At most `most` folders. `give_way` is called between two of them, so that the queue thread need not wait."""

    def __init__(self, home: str, most: int, give_way: Callable[[], None]) -> None:
        self._home = home
        self._most = most
        self._give_way = give_way
        self._ready: deque[str] = deque()
        self._taken_at = 0.0
        self._is_wanted = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="folders", daemon=True)

    def start(self) -> None:
        """Remove what dead processes left, and create folders after each burst of starts."""
        self._thread.start()

    def take(self) -> str:
        """Return the path of a folder for a start, or an empty text if none is ready. Only from the queue thread."""
        self._taken_at = time.monotonic()
        self._is_wanted.set()
        return self._ready.popleft() if self._ready else ""

    def put_back(self, path: str) -> None:
        """Take back a folder that its start did not use. Only from the queue thread."""
        if path:
            self._ready.append(path)

    def close(self) -> None:
        """End the thread, and remove the folders that no job got."""
        self._is_over.set()
        self._is_wanted.set()
        if self._thread.is_alive():
            self._thread.join()
        while self._ready:
            spares.remove(self._ready.popleft())

    def _run(self) -> None:
        spares.remove_dead(self._home)
        while self._is_wanted.wait() and not self._is_over.is_set():
            self._is_wanted.clear()
            while (rest_s := self._taken_at + REST_S - time.monotonic()) > 0:
                if self._is_over.wait(rest_s):
                    return
            self._fill()

    def _fill(self) -> None:
        """Create folders until there are enough, or a job starts. The last space of a disk is for those that do."""
        home, process = Path(self._home), spares.process_name(os.getpid())
        try:
            if disk.warning(home, disk.room(home)) is not None:
                return
            while len(self._ready) < self._most and not self._is_wanted.is_set():
                self._give_way()
                self._ready.append(spares.create(f"{home}/{spares.FOLDER}", process))
        except OSError as error:
            # A start that needs a folder creates it, and reports the trouble. The next one makes us try again.
            log.warning("no folder can be created in advance: %s", error)
