"""What is said once to people who are about to be surprised."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dibs import captured
from dibs.cli import screen

#: What was last said about devices, in the state folder; the fast path looks at it too.
DEVICES_TOLD = "told.devices"


def about_devices(home: Path, environ: Mapping[str, str]) -> None:
    """Say that a job does not see what the shell says about devices; once for each thing that it says."""
    chosen = captured.chosen(environ)
    # Inside a job or a lease it is dibs itself who set them.
    if not chosen or "DIBS_GPU_INDICES" in environ:
        return
    told = home / DEVICES_TOLD
    try:
        if told.read_bytes() == os.fsencode(chosen):
            return
    except FileNotFoundError:
        pass
    screen.say(f"{chosen} is set here, but jobs do not see it: dibs chooses their GPUs (--gpu-ids, --prefer)")
    try:
        told.write_bytes(os.fsencode(chosen))
    except OSError:
        # Nowhere to note it: it is said again next time.
        return
