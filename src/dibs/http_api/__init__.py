"""The HTTP door: `/v1` over the daemon's unix socket. Translation only: JSON in, a verb or a question, JSON out.

Here are the table of routes and the socket. Every request passes `guarding.guard` before routing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from dibs.daemon import Daemon
from dibs.http_api import (
    acting,
    daemons,
    exchanges,
    explaining,
    guarding,
    machines,
    polling,
    queues,
    showing,
    submitting,
    sweeping,
)

#: Bytes of one request line: the ids that a `wait` without selector waits for may lie scattered.
LONGEST_LINE = 4 * 1024 * 1024

ROUTES = [
    web.get("/v1/jobs", showing.get_jobs),
    web.post("/v1/jobs", submitting.post_jobs),
    web.get("/v1/jobs/wait", polling.get_wait),
    web.get("/v1/jobs/changes", polling.get_changes),
    web.post("/v1/jobs/actions", acting.post_actions),
    web.get(r"/v1/jobs/{id:\d{1,18}}", showing.get_job),
    web.patch(r"/v1/jobs/{id:\d{1,18}}", acting.patch_job),
    web.get(r"/v1/jobs/{id:\d{1,18}}/events", showing.get_events),
    web.get(r"/v1/jobs/{id:\d{1,18}}/why", explaining.get_why),
    web.post(r"/v1/jobs/{id:\d{1,18}}/{verb:[a-z]+}", acting.post_verb),
    web.get("/v1/queue", queues.get_queue),
    web.post("/v1/queue", queues.post_queue),
    web.get("/v1/queue/starts", explaining.get_starts),
    web.get("/v1/sweeps", sweeping.get_sweeps),
    web.post("/v1/sweeps", sweeping.post_sweeps),
    web.post(r"/v1/sweeps/{id:\d{1,18}}/points", sweeping.post_points),
    web.get(r"/v1/sweeps/{id:\d{1,18}}/results", sweeping.get_results),
    web.get("/v1/gpus", machines.get_gpus),
    web.get("/v1/gpus/history", machines.get_history),
    web.get("/v1/words", showing.get_words),
    web.post("/v1/gpus/{id}/drain", machines.post_drain),
    web.post("/v1/gpus/{id}/undrain", machines.post_undrain),
    web.get("/v1/daemon", daemons.get_daemon),
    web.post("/v1/daemon/stop", daemons.post_stop),
]


@contextlib.asynccontextmanager
async def serving(daemon: Daemon) -> AsyncIterator[None]:
    """Answer on the daemon's socket while inside."""
    app = web.Application(middlewares=[guarding.guard], client_max_size=exchanges.LARGEST_BODY)
    app[exchanges.DAEMON] = daemon
    app.add_routes(ROUTES)
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
