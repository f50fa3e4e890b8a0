"""The HTTP door: `/v1` over the daemon's unix socket. Translation only: JSON in, a verb or a question, JSON out.

Here is the socket; the addresses are the table in `routes`. Every request passes `guarding.guard` before routing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from dibs.daemon import Daemon
from dibs.http_api import exchanges, guarding
from dibs.http_api.routes import ROUTES

#: Bytes of one request line: the ids that a `wait` without selector waits for may lie scattered.
LONGEST_LINE = 4 * 1024 * 1024


@contextlib.asynccontextmanager
async def serving(daemon: Daemon) -> AsyncIterator[None]:
    """Answer on the daemon's socket while inside."""
    app = web.Application(middlewares=[guarding.guard], client_max_size=exchanges.LARGEST_BODY)
    app[exchanges.DAEMON] = daemon
    app.add_routes(route.definition() for route in ROUTES)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0, max_line_size=LONGEST_LINE)
    await runner.setup()
    try:
        await _listen(runner, daemon.identity.socket)
        daemon.reopen = lambda: _listen(runner, daemon.identity.socket)
        yield
    finally:
        daemon.identity.socket.unlink(missing_ok=True)
        await runner.cleanup()


async def _listen(runner: web.AppRunner, path: Path) -> None:
    """Open the socket anew; a file of that name, dead or alive, goes: the daemon's lock says whose it is."""
    path.unlink(missing_ok=True)
    await web.UnixSite(runner, path).start()
    path.chmod(0o600)
