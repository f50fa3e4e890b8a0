"""The limit on open files: the daemon raises its own, gives its children the old one, and divides what it has.

The usual soft limit of 1024 is meant for programs that use select(), such as jobs may be. The daemon does not, and
needs descriptors for every job, connection and stream.

Lean.
"""

from __future__ import annotations

import os
import resource

#: Where the daemon keeps the limit that it was started with, for the processes that it starts.
VARIABLE = "DIBS_OPEN_FILES"
#: No more than this: some systems have a hard limit of a billion, and libraries that close every possible descriptor.
MOST = 1 << 20
#: Descriptors of the daemon itself: the database, its sockets, its children, logs that are being read.
OWN = 64


def raise_limit() -> None:
    """Raise the soft limit of this process to the hard one, and remember the old one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        os.environ[VARIABLE] = str(soft)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def original() -> int | None:
    """Return the soft limit that this process was started with; None if it was not raised."""
    word = os.environ.get(VARIABLE, "")
    return int(word) if word.isdecimal() else None


def restore(soft: int) -> None:
    """Give this process, and what it starts, the soft limit that the daemon was started with."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.environ.pop(VARIABLE, None)


def connections(limit: int | None = None) -> int:
    """Return how many connections may be open at a time: half of the descriptors, so that jobs keep the other half."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    return MOST if soft == resource.RLIM_INFINITY else max(8, (soft - OWN) // 2)
