"""The end of a file that a job writes: bounded, and never waited for.

Runs under `python -I -S`, so only modules that cost nothing are imported.

Lean.
"""

from __future__ import annotations

import os


def read(path: str | bytes, size: int) -> bytes:
    """Return at most the last `size` bytes; nothing if it cannot be read."""
    try:
        # Non-blocking: a job may have put a pipe in its place.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))
    except OSError:
        return b""
    finally:
        os.close(fd)
