"""A file system for the sandboxes, made for this run where that is allowed: old files of others must not count.

ext4 without a journal leaves the inode of a deleted file alone for some minutes, and looks at each of these whenever a
file is made. On a disk where somebody (the run before this one, say) has just deleted some ten thousand files, making a
file costs several times as much, and the numbers of a tool that keeps logs and results mean nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: On many machines /tmp is memory, where a flush costs nothing.
ABOVE = Path("/var/tmp")
#: Bytes that the file system may come to hold. Until it does, its file takes next to nothing.
ROOM = 32 << 30


@contextlib.contextmanager
def opened() -> Iterator[tuple[Path, str]]:
    """Make the folder of all sandboxes, and return it with words on what it lies on; at the end it is gone."""
    work = Path(tempfile.mkdtemp(prefix="dibs-bench-", dir=ABOVE))
    image = work.with_suffix(".ext4")
    try:
        trouble = _mounted(image, work)
        try:
            yield work, f"shared with others ({trouble})" if trouble else "made for this run"
        finally:
            if not trouble:
                _run("umount", "--lazy", work)
    finally:
        image.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)


def _mounted(image: Path, work: Path) -> str:
    """Put an empty file system on `work`; returns why not, or nothing."""
    if os.geteuid() != 0:
        return "only root can mount"
    with open(image, "wb") as file:
        file.truncate(ROOM)
    return _run("mkfs.ext4", "-q", "-F", image) or _run("mount", "-o", "loop", image, work)


def _run(*words: str | Path) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        return f"no {words[0]} here"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return said[0] if said else f"{words[0]} exited {done.returncode}"
