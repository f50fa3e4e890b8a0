"""Answer questions about the queue from its database, for a client whose daemon is stopped or hangs.

It is a process of its own, with a listening socket as descriptor 3, that ends with the client. It has the parts of a
daemon, but its connection to the database is read-only and its queue thread never runs. Only the requests of the status
socket are answered: none of them changes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

from dibs.daemon import assembly
from dibs.errors import DibsError
from dibs.store import database
from dibs.store.writer import Store
from dibs.system import paths, processes, settings

#: Seconds that the driver may take: without an answer, jobs are shown as if there were no GPUs.
DRIVER_FOR_S = 1.5
#: The descriptor of the listening socket.
SOCKET_FD = 3


async def serve(home: Path, values: settings.Settings, pid: int, listening: socket.socket) -> None:
    """Answer on a socket until the process is killed. `pid` is that of the daemon that cannot answer."""
    from dibs.http_api import server

    path = paths.database(home)
    store = Store(database.open_current(path), path)
    daemon = assembly.assemble(home, values, None, store, pid).daemon
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(daemon.probe_now(), DRIVER_FOR_S)
    # Nothing changes here: requests that wait for a change, or for metrics to be read, are answered at once.
    daemon.stopping.set()
    async with server.answering(daemon, values, listening):
        await asyncio.Event().wait()


def main() -> None:
    """Run as a process; errors are reported by hanging up, and the client then tells what it knew before."""
    processes.die_with(int(sys.argv[2]), signal.SIGKILL)
    os.umask(0o077)
    with contextlib.suppress(DibsError, OSError, database.DatabaseError):
        home = paths.home(os.environ).path
        asyncio.run(serve(home, settings.load(os.environ), int(sys.argv[1]), socket.socket(fileno=SOCKET_FD)))
    os._exit(1)


if __name__ == "__main__":
    main()
