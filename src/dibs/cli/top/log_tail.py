"""Reads the end of a job's log, and what is appended to it.

Apart: It needs no Textual.
"""

from __future__ import annotations

import os
import re

from dibs.client.safe_text import clean

#: Bytes of a log that are shown when it is opened, and read at a time.
MOST_BYTES = 256 * 1024
COLOURS = re.compile("\x1b\\[[0-9;:]*m")


class LogTail:
    """The log of one job, read from its end on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._at: int | None = None
        #: The beginning of a line that is not complete.
        self._rest = b""

    def read(self) -> list[str]:
        """Return the complete lines that are new; of a long log at first only the last ones. Raise OSError."""
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            is_cut = self._at is None and size > MOST_BYTES
            if self._at is None or size < self._at:
                # It was opened, or emptied by the job.
                self._at, self._rest = max(0, size - MOST_BYTES), b""
            file.seek(self._at)
            data = file.read(MOST_BYTES)
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if is_cut:
            lines = lines[1:]
        return [shown(line) for line in lines]


def shown(line: bytes) -> str:
    """Return a line as a terminal would show it: of a progress bar the last state, without control characters."""
    text = line.decode(errors="replace").rstrip("\r")
    return clean(COLOURS.sub("", text.rsplit("\r", 1)[-1]).expandtabs())
