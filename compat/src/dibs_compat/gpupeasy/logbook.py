"""The server's log: lines in the old server's format, in local time."""

from __future__ import annotations

import os
import sys
import threading
from datetime import datetime
from pathlib import Path

from dibs.client import safe_text

NAME = "logs.out"


class Logbook:
    """A file that grows by one line for each thing that happened; with `is_loud` stderr shows them too."""

    def __init__(self, folder: Path, *, is_loud: bool = False) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / NAME
        self._is_loud = is_loud
        self._lock = threading.Lock()

    def write(self, kind: str, text: str) -> None:
        """Add a line; `kind` is Info, Success, Warning or Error."""
        # People look at it in a terminal, and names may be made of orders to one.
        line = f"[{datetime.now():%d/%b/%Y %H:%M:%S}] [{kind:<8}]:  {safe_text.clean(text)}"
        with self._lock:
            # Another user who can write into that folder must not choose the file that we append to.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o600)
            with open(fd, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(line + "\n")
        if self._is_loud:
            print(line, file=sys.stderr, flush=True)
