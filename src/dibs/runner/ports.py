"""TCP ports at which the processes of a job meet: free, and not those of another job that runs.

The kernel's own choice would be from the ephemeral range, where it may give the port to any connection before the job
uses it, and to the next job as well. These ports are from a fixed range below it, and follow from the number of the
job alone, so a restarted daemon repeats none either.
"""

from __future__ import annotations

import _socket
import errno
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: The range: below are well-known services, above are ephemeral ports. The end is the default of Linux.
FIRST, END = 20_000, 32_768
#: Fewer ports than this are not worth a shorter range.
FEWEST = 4096
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
#: Seconds for which the range of the kernel is taken to be as it was.
FRESH_S = 60.0

#: The end of our range, and until when it is used.
_known = END, 0.0


def free(owner: str, number: int, attempt: int = 1) -> int:
    """Return a port for a job of `owner` that nobody uses now; thousands of consecutive numbers get different ones."""
    global _known
    end, until = _known
    if time.monotonic() >= until:
        end = _end()
        _known = end, time.monotonic() + FRESH_S
    return next(filter(_is_free, candidates(owner, number, attempt, end)), FIRST)


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
    try:
        with open(EPHEMERAL) as file:
            low = int(file.read().split()[0])
    except (OSError, ValueError):
        return END
    return low if low - FIRST >= FEWEST else END


def _is_free(port: int) -> bool:
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        sock.bind(("", port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    finally:
        sock.close()
    return True
