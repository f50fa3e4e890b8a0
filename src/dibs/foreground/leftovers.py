"""What commands leave running, seen by the process that all of it is below: whether there is any, and signals to it."""

from __future__ import annotations

import os

from dibs.system import processes


def is_left(group: int) -> bool:
    """Tell whether anything of an ended command's process group is our child: what it left running is."""
    try:
        os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def signal_group(group: int, number: int) -> None:
    """Signal a process group that has a child of ours in it, so that its number can be nobody else's."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # It ended this moment, or became another user's (sudo).
        return


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def living() -> list[processes.Proc]:
    """Return all processes below us that have not ended."""
    return [proc for proc in processes.descendants(os.getpid()) if not proc.is_dead]
