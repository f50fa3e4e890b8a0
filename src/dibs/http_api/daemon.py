"""`/v1/daemon`: describe the daemon and stop it."""

from __future__ import annotations

from aiohttp import web

from dibs.http_api import exchange, wire
from dibs.http_api.schemas import actions, machine_answers
from dibs.model import serialization
from dibs.version import __version__


async def get_daemon(request: web.Request) -> web.Response:
    """Describe the daemon: process, socket, version, user and devices."""
    who = request.app[exchange.DAEMON].identity
    return exchange.json(
        machine_answers.Daemon(
            running=True,
            pid=who.pid,
            socket=str(who.socket),
            version=__version__,
            started_at=serialization.moment(who.started_at),
            home=str(who.home),
            user=who.user,
            devices=who.devices,
        )
    )


async def post_stop(request: web.Request) -> web.Response:
    """Stop the daemon after this answer; jobs keep running. With `drain`, start nothing new and stop when idle."""
    daemon = request.app[exchange.DAEMON]
    body = await exchange.body(request) if request.can_read_body else {}
    drain = wire.convert(body, actions.StopIn).drain
    if drain is None:
        daemon.events.loop.call_soon(daemon.stopping.set)
    else:
        daemon.close_when_idle(drain)
    return exchange.json(machine_answers.DaemonStop(daemon.identity.pid))
