"""Hints where people go wrong: said on stderr, to people, and the same one not again and again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dibs.cli import screen
from dibs.system import logout_policy
from dibs.version import __version__

if TYPE_CHECKING:
    from dibs.client.answers import Jobs

DAY_S = 86400.0
#: Said by a daemon from before it told its version.
OLD = "an older version"


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
