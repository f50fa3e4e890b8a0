"""Who made a unix socket, as the kernel says.

/proc/net/unix shows names as they are, so a name with a line break can forge a line of that table. The kernel's socket
diagnostics (netlink) cannot be forged. They answer every user, and use up no place in a socket's backlog.

Lean.
"""

from __future__ import annotations

import _socket
import os
import sys

from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Numbers from <linux/netlink.h>, <linux/sock_diag.h> and <linux/unix_diag.h>.
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
SHOW_NAME_AND_UID = 0x01 | 0x40
NAME, UID = 0, 7
LISTEN = 10
#: Sizes of the header of a message, and of header and answer before the attributes.
HEADER, FIXED = 16, 32
#: Longer than any answer about one socket.
ANSWER_BYTES = 4096


@record
class Known:
    """What the kernel knows about a socket; no uid before Linux 5.3."""

    name: bytes
    uid: int | None
    is_listening: bool


def look_up(inode: int) -> Known | None:
    """Return the unix socket with this inode; None if there is none, or if this kernel has no such diagnostics."""
    if inode >= 2**32:
        return None
    body = bytes((_socket.AF_UNIX, 0, 0, 0)) + b"".join(
        _word(number) for number in (0xFFFFFFFF, inode, SHOW_NAME_AND_UID, 0xFFFFFFFF, 0xFFFFFFFF)
    )
    head = _word(HEADER + len(body)) + _half(SOCK_DIAG_BY_FAMILY) + _half(NLM_F_REQUEST) + _word(1) + _word(0)
    try:
        link = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
    except OSError:
        return None
    try:
        link.send(head + body)
        answer = link.recv(ANSWER_BYTES, _socket.MSG_DONTWAIT)
    except OSError:
        return None
    finally:
        link.close()
    return _read(answer)


def _read(answer: bytes) -> Known | None:
    if len(answer) < FIXED or _number(answer[4:6]) != SOCK_DIAG_BY_FAMILY:
        return None
    found: dict[int, bytes] = {}
    at = FIXED
    while at + 4 <= len(answer) and (size := _number(answer[at : at + 2])) >= 4:
        found[_number(answer[at + 2 : at + 4])] = answer[at + 4 : at + size]
        at += (size + 3) & ~3
    uid = _number(found[UID]) if UID in found else None
    return Known(found.get(NAME, b""), uid, answer[HEADER + 2] == LISTEN)


def listener_uid(name: bytes, inodes: Iterable[int]) -> int | None:
    """Return the user whose socket listens on `name`; None if the kernel does not confirm that for one of `inodes`."""
    known = confirmed(name, inodes)
    return known.uid if known is not None and known.is_listening else None


def confirmed(name: bytes, inodes: Iterable[int]) -> Known | None:
    """Return the socket of this name, if it has one of these inodes."""
    return next((known for inode in inodes if (known := look_up(inode)) is not None and known.name == name), None)


def is_forged(name: bytes, inodes: Iterable[int]) -> bool:
    """Return whether the kernel denies that a socket with one of these inodes has this name."""
    return confirmed(name, inodes) is None and _is_available()


def _is_available() -> bool:
    """Return whether this kernel has the diagnostics: then it knows a socket that we have just made."""
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        return look_up(os.fstat(made.fileno()).st_ino) is not None
    finally:
        made.close()


def _word(number: int) -> bytes:
    return number.to_bytes(4, sys.byteorder)


def _half(number: int) -> bytes:
    return number.to_bytes(2, sys.byteorder)


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, sys.byteorder)
