"""What the kernel says about the memory and the CPU time of a process and its children."""

from __future__ import annotations

import contextlib
from pathlib import Path


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Return the resident memory of a process; `VmHWM` is the most it ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """Return the time that all threads of a process and of its living children have run."""
    return sum(_run_ns(one) for one in (pid, *_children(pid))) / 1e9


def _run_ns(pid: int) -> int:
    total = 0
    # A thread may end while we look.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found
