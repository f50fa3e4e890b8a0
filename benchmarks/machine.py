"""What the numbers were taken on, as far as it matters for reading them."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    sqlite: str
    #: Kind of file system under the sandboxes.
    file_system: str
    #: Whether others have deleted files there, in words.
    disk: str
    #: Milliseconds of one flush to it, the median of some: what durability costs here.
    flush_ms: float


def describe(work: Path, disk: str) -> Machine:
    """Return this machine, with `work` as the folder of the sandboxes, and what is said of the disk below it."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages / 2**30, 1),
        kernel=platform.release().partition("-")[0],
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        file_system=_file_system(work),
        disk=disk,
        flush_ms=round(_flush_ms(work), 3),
    )


def load() -> float:
    """Return how many processes wanted to run during the last minute."""
    return os.getloadavg()[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, found, *_ = line.split()
        is_above = path == Path(folder) or Path(folder) in path.parents
        if is_above and len(folder) >= len(best):
            best, kind = folder, found
    return kind


def _flush_ms(work: Path) -> float:
    path = work / "flush"
    took = []
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(21):
            began = time.perf_counter_ns()
            os.pwrite(fd, b"x" * 4096, 0)
            os.fdatasync(fd)
            took.append((time.perf_counter_ns() - began) / 1e6)
    finally:
        os.close(fd)
        path.unlink()
    return sorted(took)[len(took) // 2]
