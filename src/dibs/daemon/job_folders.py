"""Measure and remove the folders of jobs. `cleanup` decides which."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

#: Shared by all attempts of a job; removed only on request.
CHECKPOINT = "checkpoint"


def _parts(roots: Iterable[Path], job_id: int, with_checkpoint: bool) -> Iterator[os.DirEntry[str]]:
    for root in roots:
        try:
            entries = list(os.scandir(root / str(job_id)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield from (entry for entry in entries if with_checkpoint or entry.name != CHECKPOINT)


def size(roots: Sequence[Path], job_id: int, with_checkpoint: bool) -> int:
    """Return the bytes that `remove` would free."""
    return sum(_size(entry) for entry in _parts(roots, job_id, with_checkpoint))


def _size(entry: os.DirEntry[str]) -> int:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return entry.stat(follow_symlinks=False).st_size
        with os.scandir(entry.path) as inside:
            return sum(_size(one) for one in inside)
    except FileNotFoundError:
        # Another process removed it; it takes no space any more.
        return 0


def remove(roots: Sequence[Path], job_id: int, with_checkpoint: bool) -> int:
    """Remove the files of a job; return the number of freed bytes. Links are removed, never followed."""
    freed = 0
    for entry in _parts(roots, job_id, with_checkpoint):
        freed += _size(entry)
        try:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue
    for root in roots:
        _remove_empty(root / str(job_id))
    return freed


def _remove_empty(folder: Path) -> None:
    """Remove empty folders; a checkpoint with files keeps its folder."""
    for path in (folder / CHECKPOINT, folder):
        try:
            path.rmdir()
        except OSError:
            # Not empty, missing, or not a folder.
            continue
