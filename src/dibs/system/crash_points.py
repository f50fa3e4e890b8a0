"""Named places at which tests make a process die or wait.

Lean.
"""

from __future__ import annotations

import os
import time

_ARMED = "DIBS_CRASH" in os.environ or "DIBS_DELAY" in os.environ


def crash_point(name: str) -> None:
    """Die by SIGKILL, or wait, if the environment requests it at this point.

    `DIBS_CRASH=name` dies at the first pass, `name:3` at the third. `DIBS_DELAY=name:250` waits 250 ms at each pass.
    """
    if not _ARMED:
        return
    delayed, _, ms = os.environ.get("DIBS_DELAY", "").rpartition(":")
    if delayed == name:
        time.sleep(int(ms) / 1000)
    wanted = os.environ.get("DIBS_CRASH", "")
    if wanted in (name, f"{name}:1"):
        os.kill(os.getpid(), 9)
    if wanted.rpartition(":")[0] == name:
        os.environ["DIBS_CRASH"] = f"{name}:{int(wanted.rpartition(':')[2]) - 1}"
