"""The second socket, which only tells how things stand: for a container, a monitor, a CI job that is not the owner.

Whoever is handed the daemon's own socket is handed the account. What hinders this one is logged, and hinders nothing
else. What may be asked here is decided in `admission`.
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
    """Answer on the second socket while inside, if there shall be one."""
    if path is None:
        yield
        return
    try:
        remove_dead(path)
        listening = await connections.listen(runner, Endpoint(is_tcp=False, uid=os.geteuid(), is_status=True), path)
    except OSError as error:
        # Its own text, where the system has none: a path may be too long for a socket.
        log.warning("status_socket %s cannot be opened: %s", path, error.strerror or error)
        yield
        return
    try:
        yield
    finally:
        listening.close()
        path.unlink(missing_ok=True)


def remove_dead(path: Path) -> None:
    """Remove a socket of ours on which nobody listens; whatever else is there is left alone, and is an error."""
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
