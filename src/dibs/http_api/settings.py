"""How this dibs is set, and how it is: the settings of the daemon, and what `dibs doctor` finds."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from aiohttp import web

from dibs.http_api import exchange
from dibs.system import settings
from dibs.version import __version__

#: What a daemon that answers need not ask of itself.
NEEDLESS = ("daemon",)


async def get_settings(request: web.Request) -> web.Response:
    """Return every setting of the daemon with its value, where that comes from, and what it means."""
    daemon = request.app[exchange.DAEMON]
    values = daemon.settings
    told = [
        {
            "name": setting.name,
            "value": settings.written(getattr(values, setting.name)),
            "default": setting.default,
            "source": values.sources[setting.name],
            "variable": setting.variable,
            "help": setting.meaning,
        }
        for setting in settings.SETTINGS
    ]
    python = ".".join(str(part) for part in sys.version_info[:3])
    return exchange.json(
        {"settings": told, "version": __version__, "python": python, "home": str(daemon.identity.home)}
    )


async def get_doctor(request: web.Request) -> web.Response:
    """Return what `dibs doctor` finds on this machine: each check with its state, and what would help."""
    return exchange.json({"checks": await asyncio.to_thread(_checks, dict(os.environ))})


def _checks(environ: dict[str, str]) -> list[dict[str, Any]]:
    # Only for this, and it brings the whole command line.
    from dibs.client import doctor

    states = {doctor.OK: "ok", doctor.WARNING: "warn", doctor.PROBLEM: "bad"}
    found = doctor.run(environ, but_for=NEEDLESS)
    return [{"name": each.check, "state": states[each.level], "text": each.text, "hint": each.fix} for each in found]
