"""Log lines of running tasks, on the console and in the scheduler's file, in the formats of the old tool."""

from __future__ import annotations

import logging
import os
import sys
from enum import Enum

CONSOLE = "%(asctime)s %(levelname)s %(message)s"
FILE = "%(asctime)s %(filename)s[line:%(lineno)d] %(levelname)s %(message)s"
FILE_MOMENT = "%a, %d %b %Y %H:%M:%S"


class TaskEvent(Enum):
    """The messages about a task on a GPU, each with the source line of the old tool that its log names."""

    RECEIVES = "receives task {}", 53
    SKIPS = "skips task {}", 56
    FINISHES = "finishes task {}", 93
    FINISHED = "finished", 46
    #: Not said by the old tool, to which every task had finished.
    FAILS = "fails task {}: {}", 93


class Journal:
    """Writes each line to the console and, unless there is none, at the end of a file."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else os.path.abspath(path)
        # Without a file the old tool shows moments on the console as it would in the file.
        self._console = logging.Formatter(CONSOLE, FILE_MOMENT if path is None else None)
        self._file = logging.Formatter(FILE, FILE_MOMENT)
        if self._path is not None:
            # Now, and not when the first task is through: a path that cannot be written is refused at once.
            open(self._path, "a").close()

    def tell(self, gpu: str, said: TaskEvent, *about: str) -> None:
        """Say something of a GPU, and of the task on it."""
        words, line = said.value
        level = logging.ERROR if said is TaskEvent.FAILS else logging.INFO
        text = f"{gpu} {words.format(*about)}"
        record = logging.LogRecord("", level, "gpu_task_scheduler.py", line, text, None, None)
        _print(self._console.format(record))
        if self._path is None:
            return
        try:
            with open(self._path, "a", errors="backslashreplace") as file:
                file.write(self._file.format(record) + "\n")
        except OSError as error:
            self.warn(f"cannot write {self._path}: {error.strerror}")

    def warn(self, text: str) -> None:
        """Say something that people should know, beside the log."""
        _print(f"gpu_task_scheduler: {text}")


def _print(text: str) -> None:
    try:
        print(text.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)
    except OSError:
        # A terminal that is gone; what runs is more important.
        return
