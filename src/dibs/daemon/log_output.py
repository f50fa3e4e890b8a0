"""The daemon's log, written by a thread of its own: the disk of the log may hang, and the daemon must not."""

from __future__ import annotations

import logging
import queue
import sys
import threading

FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"
#: Seconds at the end of the process for what is not written yet.
FLUSH_FOR_S = 2.0


class LogOutput(logging.Handler):
    """Writes records to stderr in the background; a critical one at once, because the process ends after it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        line = f"{self.format(record)}\n"
        if record.levelno >= logging.CRITICAL:
            sys.stderr.write(line)
        else:
            self._lines.put(line)

    def close(self) -> None:
        """Write the rest, unless the disk hangs."""
        self._lines.put(None)
        self._thread.join(FLUSH_FOR_S)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                sys.stderr.write(line)
                sys.stderr.flush()
            except OSError:
                # The disk is full: the daemon continues without this line.
                continue


def begin() -> None:
    """Send the log of this process to stderr."""
    logging.basicConfig(level=logging.INFO, handlers=[LogOutput()])
