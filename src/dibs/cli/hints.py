"""Hints for the user on stderr; the same hint is not repeated every time."""

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
#: For daemons that do not report a version.
OLD = "an older version"


def about_submission(answer: Mapping[str, Any]) -> None:
    """Print the daemon's notes about a submission; on a terminal also its hints."""
    tell(answer["notes"])
    if sys.stderr.isatty():
        # An older daemon sends no hints.
        tell(answer.get("hints", ()))


def tell(texts: Iterable[str]) -> None:
    for text in texts:
        screen.say(text)


def on_skew(answer: Jobs) -> list[str]:
    """Return a hint if the daemon's version differs from ours."""
    theirs = answer["daemon"]["version"] if "daemon" in answer else OLD
    if theirs == __version__:
        return []
    return [f"the daemon is {theirs}, this is dibs {__version__}: `dibs daemon restart`; running jobs go on."]


def on_status(answer: Jobs, home: Path) -> list[str]:
    """Return the hints below `dibs status` on a terminal."""
    why = logout_policy.logout_kills(answer["daemon"]["pid"]) if "daemon" in answer else None
    return [*on_skew(answer), *on_logout(why, home)]


def on_logout(why: str | None, home: Path) -> list[str]:
    """Return a hint that a logout would end jobs, at most once a day."""
    return [f"{why}. {logout_policy.REMEDY}"] if why and is_due(home / "told-logout", time.time()) else []


def is_due(stamp: Path, now: float) -> bool:
    """Return whether a hint was not given in the last 24 hours, and record that it is given now."""
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
        # Without a record the hint would appear every time.
        return False
    return True
