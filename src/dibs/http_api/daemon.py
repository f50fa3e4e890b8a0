"""`/v1/daemon`: describe the daemon and stop it."""

from __future__ import annotations

from dibs.daemon.service import Daemon
from dibs.http_api.schemas import actions, machine_answers, wire
from dibs.model import serialization
from dibs.version import __version__


async def get_daemon(daemon: Daemon) -> machine_answers.Daemon:
    """Describe the daemon: process, socket, version, user and devices."""
    who = daemon.identity
    told = {"started_at": serialization.moment(who.started_at), "home": str(who.home), "socket": str(who.socket)}
    return wire.fill(machine_answers.Daemon, who, running=True, version=__version__, **told)


async def post_stop(daemon: Daemon, body: actions.StopIn) -> machine_answers.DaemonStop:
    """Stop the daemon after this answer; jobs keep running. With `drain`, start nothing new and stop when idle."""
    if body.drain is None:
        daemon.events.loop.call_soon(daemon.stopping.set)
    else:
        daemon.close_when_idle(body.drain)
    return machine_answers.DaemonStop(daemon.identity.pid)
