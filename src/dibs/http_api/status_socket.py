"""The read-only status socket: for a container, a monitor or a CI job that must not control the queue.

Access to the daemon's own socket is access to the account. If the status socket cannot be opened, that is logged and
nothing else fails. `admission` decides which requests are allowed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from dibs.http_api import connections
from dibs.http_api.admission import Endpoint

log = logging.getLogger("dibs.http")


@contextlib.asynccontextmanager
async def socket_for_status(runner: web.AppRunner, path: Path | None) -> AsyncIterator[None]:
    """Serve on the status socket inside the context, if one is configured."""
    if path is None:
        yield
        return
    try:
        remove_dead(path)
        listening = await connections.listen(runner, Endpoint(is_tcp=False, uid=os.geteuid(), is_status=True), path)
    except OSError as error:
        # An error of Python itself has no `strerror`, such as for a path that is too long for a socket.
        log.warning("status_socket %s cannot be opened: %s", path, error.strerror or error)
        yield
        return
    try:
        yield
    finally:
        listening.close()
        path.unlink(missing_ok=True)


def remove_dead(path: Path) -> None:
    """Remove our own socket if no process listens on it; raise FileExistsError for anything else at the path."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise FileExistsError(0, "something else is there", str(path))
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(0, "another daemon has it", str(path))
