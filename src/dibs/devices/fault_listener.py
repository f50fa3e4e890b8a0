"""Receives the faults (Xids) that the driver reports, through a long-lived child process.

A thread reads the child's lines. When the child is no longer needed, it is killed and not waited for.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

log = logging.getLogger("dibs.devices.fault_listener")

#: Seconds until a new child replaces one that stopped listening: a card may have come back.
AGAIN_S = 60.0


class Listener:
    """Listens while it is wanted. A thread calls `heard` with the card's id and the Xid."""

    def __init__(self, command: Sequence[str], heard: Callable[[str, int], None]) -> None:
        self._command = tuple(command)
        self._heard = heard
        self._child: subprocess.Popen[bytes] | None = None
        self._began_at = float("-inf")

    def want(self, is_wanted: bool) -> None:
        """Start or stop listening; `AGAIN_S` after a child ended, start a new one."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        if is_wanted and self._child is None and time.monotonic() - self._began_at >= AGAIN_S:
            self._begin()
        elif not is_wanted and self._child is not None:
            self._child.kill()
            self._child = None
            self._began_at = float("-inf")

    def _begin(self) -> None:
        self._began_at = time.monotonic()
        try:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            log.error("GPU faults are not watched: %s", error)
            return
        self._child = child
        threading.Thread(target=self._take_in, args=(child,), name="listening", daemon=True).start()

    def _take_in(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with child.stdout:
            for raw in child.stdout:
                try:
                    line = json.loads(raw)
                except ValueError:
                    log.error("unexpected line from the process that watches for GPU faults: %r", raw[:60])
                    continue
                if "xid" in line:
                    self._heard(str(line["id"]), int(line["xid"]))
                elif "deaf" in line:
                    log.warning("GPU faults are not watched: %s", line["deaf"])
        child.wait()
