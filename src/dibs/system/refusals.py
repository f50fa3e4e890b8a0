"""Whose trouble a refused start is: the machine's, one device's, or one job's.

One table of error numbers decides. What the machine refuses is never the job's failure: the start is given up and the
job stays in the queue. The scope of a refusal says what waits until the next try.

Lean.
"""

from __future__ import annotations

import errno
import os

from dibs.system.lean import record

#: What waits after a refusal: all starts, those on one device, or those of one job.
QUEUE, DEVICE, JOB = "queue", "device", "job"
#: Another process holds the device: only that device is avoided for a short time.
LEASE = "lease"

#: Resources of the machine or account: processes, memory, descriptors.
SCARCE = frozenset((errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
#: Trouble of a disk, a file system or its server.
STORAGE = frozenset((errno.EDQUOT, errno.EHOSTDOWN, errno.EIO, errno.ENOLCK, errno.ENOSPC, errno.ENOTCONN)) | {
    errno.EREMOTEIO,
    errno.EROFS,
    errno.ESTALE,
    errno.ETIMEDOUT,
}

#: The message of a runner, or of the launcher, about a start that was refused before anything was recorded.
HEAD = b"refused"
#: Bytes of such a message, at most.
LONGEST_BYTES = 1024


@record
class Refusal:
    """Why a start was refused, and what waits until the next try."""

    scope: str
    why: str
    device: str = ""


def of_own(error: OSError, what: str | bytes = "") -> Refusal:
    """Return the refusal for an error at files or processes of dibs, which are never the job's own."""
    is_everywhere = error.errno in SCARCE or error.errno in STORAGE
    return Refusal(QUEUE if is_everywhere else JOB, describe(error, what))


def of_users(error: OSError, what: str | bytes) -> Refusal | None:
    """Return the refusal for an error at a path that the user chose; None if it is the job's own failure."""
    if error.errno in SCARCE:
        return Refusal(QUEUE, describe(error, what))
    # Other jobs may use other disks.
    return Refusal(JOB, describe(error, what)) if error.errno in STORAGE else None


def describe(error: OSError, what: str | bytes = "") -> str:
    """Return an error as text: `No space left on device (/data/log)`."""
    where = what or error.filename
    text = error.strerror or str(error)
    return f"{text} ({readable(where)})" if isinstance(where, (str, bytes)) and where else text


def readable(path: str | bytes) -> str:
    """Return a path as text, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "replace")


def pack(refusal: Refusal) -> bytes:
    """Encode a refusal as a message to the daemon."""
    return b"\0".join((HEAD, refusal.scope.encode(), refusal.why.encode("utf-8", "replace")))[:LONGEST_BYTES]


def unpack(message: bytes) -> Refusal | None:
    """Return the refusal in a message; None if it is another message."""
    head, *rest = message.split(b"\0", 2)
    if head != HEAD or len(rest) != 2:
        return None
    return Refusal(rest[0].decode("ascii", "replace"), rest[1].decode("utf-8", "replace"))
