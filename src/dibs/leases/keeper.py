"""The process that holds leases for another: for a shell (`dibs lease --env`) or an adopted process (`--pid`).

It took the leases before it became this program, and only waits for the other process to end or for its time limit. The
kernel frees the devices when it ends, for any reason. Its command line shows what it holds for which process. Runs
under `python -I -S` as a plain file, so it imports only cheap modules, and no module of dibs.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Longest single wait in seconds: poll(2) counts milliseconds in 31 bits.
LONGEST_S = 86400.0
NEVER = "never"
#: The path of this file, and its path in release 0.1: keepers started then may still hold leases.
PROGRAMS = (__file__, f"{os.path.dirname(os.path.dirname(__file__))}/holding.py")


def command(owner: int, folder: str, devices: Sequence[str], limit_s: float | None, pidfd: int) -> list[str]:
    """Return the command line of a keeper; `pidfd` is that of the owner."""
    limit = NEVER if limit_s is None else str(limit_s)
    return [sys.executable, "-I", "-S", __file__, str(owner), folder, ",".join(devices), limit, str(pidfd)]


def read(words: Sequence[str]) -> tuple[int, str, list[str]] | None:
    """Return owner, lease folder and devices from the command line of a keeper; None if it is not a keeper."""
    if len(words) != 9 or words[3] not in PROGRAMS or not words[4].isdecimal():
        return None
    return int(words[4]), words[5], words[6].split(",")


def wait(pidfd: int, limit_s: float | None) -> None:
    """Return when the owner has ended or the time is over."""
    until = None if limit_s is None else time.monotonic() + limit_s
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    while True:
        left_s = LONGEST_S if until is None else until - time.monotonic()
        if left_s <= 0 or poll.poll(min(left_s, LONGEST_S) * 1000):
            return


def main() -> None:
    """Hold the inherited leases."""
    limit, pidfd = sys.argv[4:6]
    wait(int(pidfd), None if limit == NEVER else float(limit))
    os._exit(0)


if __name__ == "__main__":
    main()
