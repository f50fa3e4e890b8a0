"""Open the file that a command's output goes to, and never block in that.

A FIFO without a reader blocks the process that opens it, and a device may do anything. So an output is a regular
file, a terminal, or one of /dev/null, /dev/zero and /dev/full.

Lean.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

#: From the kernel's list of device numbers: consoles, serial lines, /dev/tty, and pseudo-terminals.
TERMINAL_MAJORS = frozenset((4, 5, *range(136, 144)))
#: /dev/null, /dev/zero and /dev/full.
SINKS = frozenset(((1, 3), (1, 5), (1, 7)))
KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder", stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a device",
}  # fmt: skip


def refusal(status: os.stat_result) -> str | None:
    """Return why a file cannot take output; None if it can."""
    number = os.major(status.st_rdev), os.minor(status.st_rdev)
    is_device = stat.S_ISCHR(status.st_mode) and (number[0] in TERMINAL_MAJORS or number in SINKS)
    if stat.S_ISREG(status.st_mode) or is_device:
        return None
    return (
        f"expected a regular file or a terminal, but it is {KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}"
    )


def find_refusal(path: str | bytes) -> str | None:
    """Return why what is at a path now cannot take output; None if it can, or if nothing is there yet."""
    try:
        return refusal(os.stat(path))
    except OSError:
        return None


def open_to_append(path: bytes, file_mode: int, *, follows_links: bool) -> int:
    """Open a file to append to, and create it if needed; raise OSError(EINVAL) for what cannot take output."""
    more = 0 if follows_links else os.O_NOFOLLOW
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | more
    # Devices are not even opened: that alone can start something.
    _check(find_refusal(path) if follows_links else None, path)
    try:
        fd = os.open(path, flags, file_mode)
    except OSError as error:
        if error.errno == errno.ENXIO:
            # A FIFO without a reader, or a socket.
            _check(find_refusal(path), path)
        raise
    try:
        _check(refusal(os.fstat(fd)), path)
        # The command expects writes that wait.
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check(why: str | None, path: bytes) -> None:
    if why is not None:
        raise OSError(errno.EINVAL, why, path)
