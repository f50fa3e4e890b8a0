"""The CPU time of everything a tool runs, also of processes that nobody waits for, through a control group.

The benchmark itself moves into the group, so that all it starts is born there, and subtracts its own time. Only root
can make a group; elsewhere the time of waited-for children is all that is known, which is right for foreground tools.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Gives the seconds used so far; None when they cannot be known for this kind of tool.
CpuClock = Callable[[], float | None]


@contextlib.contextmanager
def counted(is_server: bool) -> Iterator[CpuClock]:
    """Count the CPU time of all that is started inside."""
    root = _group_root()
    group = root / f"bench-{os.getpid()}-{time.monotonic_ns()}" if root else None
    if root is None or group is None or not _enter(group):
        yield (lambda: None) if is_server else _of_children
        return
    try:
        yield lambda: _used_s(group) - time.process_time()
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        # Something of the tool may still be dying.
        with contextlib.suppress(OSError):
            group.rmdir()


def _group_root() -> Path | None:
    """Return where this process's version 2 group is mounted."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        mounts = [line.split()[1] for line in lines if line.split()[2] == "cgroup2"]
        own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    except OSError:
        return None
    return Path(mounts[0] + own[0]) if mounts and own else None


def _enter(group: Path) -> bool:
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return False
    return True


def _used_s(group: Path) -> float:
    fields = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(fields["usage_usec"]) / 1e6


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
