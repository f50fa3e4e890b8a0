"""Hints where people go wrong: said on stderr, to people, and the same one not again and again."""

from __future__ import annotations

import os
import sys
import time
from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dibs.cli import screen
from dibs.model import environment_names
from dibs.submission import device_variables
from dibs.system import commands, logout_policy
from dibs.version import __version__

if TYPE_CHECKING:
    from dibs.client.answers import Jobs

#: What was last said about devices, in the state folder; the fast path looks at it too.
DEVICES_TOLD = "told.devices"
DAY_S = 86400.0
#: Said by a daemon from before it told its version.
OLD = "an older version"


def about_devices(home: Path, environ: Mapping[str, str]) -> None:
    """Say that a job does not see what the shell says about devices; once for each thing that it says."""
    chosen = environment_names.chosen(environ)
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


def about_assignment(body: Mapping[str, object]) -> None:
    """Say that a job chooses its devices itself, where its command, its script or its Python file shows that."""
    jobs, defaults = body.get("jobs"), body.get("defaults")
    # Of many different commands nobody wants to hear one by one.
    job = jobs[0] if isinstance(jobs, list) and len(jobs) == 1 else {}
    body = {**(defaults if isinstance(defaults, dict) else {}), **job}
    command, argv, script = body.get("command"), body.get("argv"), body.get("script")
    words = [command] if isinstance(command, str) else argv if isinstance(argv, list) else []
    cwd = str(body.get("cwd") or ".")
    texts = {"the command": " ".join(words)}
    if isinstance(script, str):
        texts = {"the script": a2b_base64(script).decode(errors="replace")}
    elif path := commands.python_file(texts["the command"].split(), cwd):
        texts[path] = commands.beginning(path).decode(errors="replace")
    for where, text in texts.items():
        if name := device_variables.assigned(text):
            screen.say(device_variables.warning(where, name))


def about_submission(answer: Mapping[str, Any]) -> None:
    """Say what the daemon has to say about a submission: notes to everybody, hints to people."""
    tell(answer["notes"])
    if sys.stderr.isatty():
        # A daemon that is older than this gives none.
        tell(answer.get("hints", ()))


def tell(texts: Iterable[str]) -> None:
    """Say hints."""
    for text in texts:
        screen.say(text)


def on_skew(answer: Jobs) -> list[str]:
    """Return what to say when the daemon is not of the version that asks it."""
    theirs = answer["daemon"]["version"] if "daemon" in answer else OLD
    if theirs == __version__:
        return []
    return [f"the daemon is {theirs}, this is dibs {__version__}: `dibs daemon restart`; running jobs go on."]


def on_status(answer: Jobs, home: Path) -> list[str]:
    """Return what is worth saying below the picture of a terminal."""
    why = logout_policy.logout_kills(answer["daemon"]["pid"]) if "daemon" in answer else None
    return [*on_skew(answer), *on_logout(why, home)]


def on_logout(why: str | None, home: Path) -> list[str]:
    """Return that a logout would end jobs, if it would and nobody said so today."""
    return [f"{why}. {logout_policy.REMEDY}"] if why and is_due(home / "told-logout", time.time()) else []


def is_due(stamp: Path, now: float) -> bool:
    """Tell whether a hint was not given for a day, and note that it is given now."""
    try:
        if 0 <= now - stamp.stat().st_mtime < DAY_S:
            return False
    except OSError:
        pass
    try:
        fd = os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.utime(fd, (now, now))
        os.close(fd)
    except OSError:
        # Where nothing can be noted it would be said every time.
        return False
    return True
