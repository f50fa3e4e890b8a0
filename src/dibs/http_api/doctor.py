"""`GET /v1/doctor`: the checks of `dibs doctor`, run by the daemon."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from aiohttp import web

from dibs.http_api import exchange

#: Checks that a daemon which answers need not run.
NEEDLESS = ("daemon",)


async def get_doctor(request: web.Request) -> web.Response:
    """Return what `dibs doctor` finds on this machine: each check with its state, and what would help."""
    return exchange.json({"checks": await asyncio.to_thread(_checks, dict(os.environ))})


def _checks(environ: dict[str, str]) -> list[dict[str, Any]]:
    # Only for this, and it brings the whole command line.
    from dibs.client import doctor

    states = {doctor.OK: "ok", doctor.WARNING: "warn", doctor.PROBLEM: "bad"}
    found = doctor.run(environ, but_for=NEEDLESS)
    return [{"name": each.check, "state": states[each.level], "text": each.text, "hint": each.fix} for each in found]
