"""`GET /v1/doctor`: the checks of `dibs doctor`, run by the daemon."""

from __future__ import annotations

import asyncio
import os

from dibs.http_api.schemas.machine_answers import Check, Doctor

#: Checks that are pointless here: the daemon is answering.
NEEDLESS = ("daemon",)


async def get_doctor() -> Doctor:
    """Return the result of every `dibs doctor` check: its state and a suggested fix."""
    return Doctor(await asyncio.to_thread(_checks, dict(os.environ)))


def _checks(environ: dict[str, str]) -> list[Check]:
    # Imported late: only this handler needs it, and it loads much of the command line.
    from dibs.client import doctor
    from dibs.client.checks import findings

    states = {findings.OK: "ok", findings.WARNING: "warn", findings.PROBLEM: "bad"}
    found = doctor.run(environ, but_for=NEEDLESS)
    return [Check(each.check, states[each.level], each.text, each.fix) for each in found]
