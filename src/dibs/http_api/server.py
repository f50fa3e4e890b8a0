"""The HTTP server: `/v1` over the daemon's unix socket, and for browsers over TCP.

Opens the socket and builds the application; the addresses are the table in `routes`. Every request passes
`admission_guard.Guard` before it is routed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.http_api import add, admission_guard, connections, exchange
from dibs.http_api.admission import Endpoint
from dibs.http_api.admission_guard import Guard
from dibs.http_api.connections import Connection
from dibs.http_api.event_stream import Channel
from dibs.http_api.jobs import Texts
from dibs.http_api.routes import ROUTES
from dibs.http_api.static_pages import Pages
from dibs.http_api.sweep_curves import CurveCache
from dibs.http_api.tokens import Tokens
from dibs.http_api.web_port import Browsers
from dibs.system import paths
from dibs.system.settings import Settings

log = logging.getLogger("dibs.http")


@contextlib.asynccontextmanager
async def serving(daemon: Daemon, values: Settings) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Serve on the daemon's socket inside the context, and on the TCP port that the last daemon had open.

    Yields a function that reopens the socket after its file was deleted.
    """
    async with _application(daemon, values) as (runner, browsers):
        sockets: list[asyncio.Server] = []

        async def reopen() -> None:
            # Any file at the path is removed: the daemon's lock proves that we own it.
            daemon.identity.socket.unlink(missing_ok=True)
            own = Endpoint(is_tcp=False, uid=os.geteuid())
            sockets.append(await connections.listen(runner, own, daemon.identity.socket))

        try:
            await reopen()
            await browsers.open_again()
            async with socket_for_status(runner, values.status_socket):
                yield reopen
        finally:
            daemon.identity.socket.unlink(missing_ok=True)
            for each in sockets:
                each.close()


@contextlib.asynccontextmanager
async def answering(daemon: Daemon, values: Settings, sock: socket.socket) -> AsyncIterator[None]:
    """Answer the requests of the status socket on a socket that is already bound."""
    endpoint = Endpoint(is_tcp=False, uid=os.geteuid(), is_status=True)
    async with _application(daemon, values) as (runner, _):
        loop = asyncio.get_running_loop()
        async with await loop.create_unix_server(lambda: Connection(runner, endpoint, None), sock=sock):
            yield


@contextlib.asynccontextmanager
async def _application(daemon: Daemon, values: Settings) -> AsyncIterator[tuple[web.AppRunner, Browsers]]:
    """Build the application, with the guard before its router."""
    app = web.Application(middlewares=[admission_guard.errors], client_max_size=exchange.LARGEST_BODY)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0)
    guard = Guard(Tokens(paths.web_file(daemon.identity.home)))
    browsers = Browsers(runner, values, guard.tokens)
    channel = Channel(daemon)
    readers = ThreadPoolExecutor(add.MOST_READERS, "add")
    parts = (daemon, guard, browsers, channel, readers, Pages(), Texts(), CurveCache())
    app[exchange.PARTS] = {type(part): part for part in parts}
    app.on_response_prepare.append(admission_guard.protect)
    app.on_shutdown.append(lambda app: channel.close())
    app.add_routes(route.definition() for route in ROUTES)
    await runner.setup()
    assert runner.server is not None
    # Not a middleware: middlewares run after the router and after the response to `Expect`.
    runner.server.request_handler = guard.before(runner.server.request_handler)
    try:
        yield runner, browsers
    finally:
        await browsers.close()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def socket_for_status(runner: web.AppRunner, path: Path | None) -> AsyncIterator[None]:
    """Serve on the read-only status socket inside the context, if one is configured.

    It is for a container, a monitor or a CI job that must not control the queue: access to the daemon's own socket is
    access to the account. If it cannot be opened, that is logged and nothing else fails.
    """
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
        raise FileExistsError(0, "another file is in its place", str(path))
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(0, "another daemon uses it", str(path))
