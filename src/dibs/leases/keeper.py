"""The process that holds leases for another: for a shell (`dibs lease --env`) or an adopted process (`--pid`).

It took the leases before it became this program, and only waits for the other process to end or for its time limit,
which a file may have moved (`lease_ends`). The kernel frees the devices when it ends, for any reason. Its command line
shows what it holds for which process. Runs under `python -I -S` as a plain file, so it imports only cheap modules, and
no module of dibs.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Longest single wait in seconds: poll(2) counts milliseconds in 31 bits.
LONGEST_S = 86400.0
NEVER, NO_END = "never", float("inf")
#: Seconds before its end at which the user of a lease is warned, and the largest part of its time.
WARN_S, WARN_PART = 600.0, 0.1
#: Bytes that are read of the file with the end of a lease.
MOST_BYTES = 256
#: The path of this file, and its path in release 0.1: keepers started then may still hold leases.
PROGRAMS = (__file__, f"{os.path.dirname(os.path.dirname(__file__))}/holding.py")


def command(
    owner: int, folder: str, devices: Sequence[str], limit_s: float | None, pidfd: int, end_file: str = ""
) -> list[str]:
    """Return the command line of a keeper; `pidfd` is that of the owner, `end_file` says when the lease ends."""
    limit = NEVER if limit_s is None else str(limit_s)
    words = [sys.executable, "-I", "-S", __file__, str(owner), folder, ",".join(devices), limit, str(pidfd)]
    return [*words, end_file] if end_file else words


def read(words: Sequence[str]) -> tuple[int, str, list[str]] | None:
    """Return owner, lease folder and devices from the command line of a keeper; None if it is not a keeper."""
    if len(words) not in (9, 10) or words[3] not in PROGRAMS or not words[4].isdecimal():
        return None
    return int(words[4]), words[5], words[6].split(",")


def warn_at(began_at: float, ends_at: float) -> float:
    """Return when the user of a lease is warned of its end."""
    return ends_at - min(WARN_S, (ends_at - began_at) * WARN_PART)


def wait(pidfd: int, limit_s: float | None, end_file: str = "", warn: Callable[[float], None] | None = None) -> None:
    """Return when the owner has ended or the time is over; call `warn` once before that, with the seconds left."""
    began = time.monotonic()
    until = NO_END if limit_s is None else began + limit_s
    is_warned = limit_s is None or warn is None
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    while True:
        wake_at = until if is_warned else warn_at(began, until)
        if poll.poll(max(0.0, min(wake_at - time.monotonic(), LONGEST_S)) * 1000):
            return
        now, before = time.monotonic(), until
        until = max(until, _end_in(end_file))
        # An extension brings a new warning.
        is_warned = is_warned and (until == before or warn is None)
        if now >= until:
            return
        if warn is not None and not is_warned and now >= warn_at(began, until):
            is_warned = True
            warn(until - now)


def _end_in(path: str) -> float:
    """Return the end that a file of ours names; 0 if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0.0
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return 0.0
        return float(os.read(fd, MOST_BYTES).split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    finally:
        os.close(fd)


def tell(owner: int, text: str) -> None:
    """Write a line to the terminal of a process, if it has one."""
    for stream in (2, 1, 0):
        try:
            path = os.readlink(f"/proc/{owner}/fd/{stream}")
            if not path.startswith(("/dev/pts/", "/dev/tty")):
                continue
            fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.write(fd, f"\r\ndibs: {text}\r\n".encode())
            return
        except OSError:
            continue
        finally:
            os.close(fd)


def main() -> None:
    """Hold the inherited leases."""
    owner, _, devices, limit, pidfd, *files = sys.argv[1:]

    def warn(left_s: float) -> None:
        minutes = f"{left_s / 60:.0f} min" if left_s >= 60 else f"{left_s:.0f} s"
        tell(int(owner), f"the lease of {devices} ends in {minutes}; dibs lease --extend 1h extends it")

    wait(int(pidfd), None if limit == NEVER else float(limit), files[0] if files else "", warn)
    for path in files:
        try:
            os.unlink(path)
        except OSError:
            pass  # somebody has removed it
    os._exit(0)


if __name__ == "__main__":
    main()
