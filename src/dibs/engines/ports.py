"""TCP ports at which the processes of a job meet: free, and not those of another job that runs.

The kernel's own choice would be from the ephemeral range, where it may give the port to any connection before the job
uses it, and to the next job as well. These ports are from a fixed range below it, and follow from the number of the
job alone, so a restarted daemon repeats none either.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import zlib
from collections.abc import Iterator

#: The range: below are well-known services, above are ephemeral ports. The end is the default of Linux.
FIRST, END = 20_000, 32_768
#: Fewer ports than this are not worth a shorter range.
FEWEST = 4096
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"


def free(owner: str, number: int, attempt: int = 1) -> int:
    """Return a port for a job of `owner` that nobody uses now; thousands of consecutive numbers get different ones."""
    order = candidates(owner, number, attempt, _end())
    return next(filter(_is_free, order), FIRST)


def candidates(owner: str, number: int, attempt: int, end: int) -> Iterator[int]:
    """Yield every port of the range once, in the order in which a job tries them.

    Each job has one place in both halves of the range. A retry begins in the other half, and so does a job whose first
    port is taken; the next port would be that of the next job.
    """
    half = (end - FIRST) // 2
    place = zlib.crc32(owner.encode(errors="surrogateescape")) + number
    for step in range(half):
        for turn in (attempt, attempt + 1):
            yield FIRST + turn % 2 * half + (place + step) % half


def _end() -> int:
    """Return the end of the range; an administrator may have enlarged the ephemeral one to nearly all ports."""
    with contextlib.suppress(OSError, ValueError), open(EPHEMERAL) as file:
        low = int(file.read().split()[0])
        if low - FIRST >= FEWEST:
            return low
    return END


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(("", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
