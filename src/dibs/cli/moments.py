"""Moments as people write them after `--begin`, in the time zone of the one who types, and as they are told back."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from dibs import units
from dibs.errors import UserError

EXAMPLE = "a moment to come such as 22:00, now+2h or 2026-11-16T08:00"


def parse(text: str, now: datetime) -> datetime:
    """Return the moment that `text` means at `now`, which is local time and has no zone.

    A clock time that has passed today is tomorrow's.
    """
    word = text.strip()
    if word.startswith("now+"):
        span = timedelta(seconds=units.parse_duration(word.removeprefix("now+")))
        return (now.astimezone() + span).astimezone().replace(microsecond=0)
    if (clock := _clock(word)) is not None:
        today = datetime.combine(now, clock)
        # By the calendar and not 24 hours later: the night may have 23 or 25 of them.
        return (today if today > now else datetime.combine(now + timedelta(days=1), clock)).astimezone()
    moment = _written(word)
    if moment is None:
        raise UserError(f'expected {EXAMPLE}, got "{text}".')
    if moment <= now.astimezone():
        raise UserError(f'expected {EXAMPLE}, got "{text}", which is past.')
    return moment


def _clock(word: str) -> time | None:
    """Read 22:00 or 22:00:30; a bare 22 or 2200 may mean anything."""
    parts = word.rjust(5, "0").split(":")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) == 2 for part in parts):
        return None
    hour, minute, second = (int(part) for part in [*parts, "0"][:3])
    try:
        return time(hour, minute, second)
    except ValueError:
        return None


def _written(word: str) -> datetime | None:
    """Read a date, with or without time and zone; one without dashes looks like a bare number."""
    if word[4:5] != "-":
        return None
    try:
        return datetime.fromisoformat(word).astimezone()
    except (ValueError, OverflowError):
        return None


def shown(moment: datetime) -> str:
    """Return a moment as people here read it: `Mon 2026-11-16 08:00 CET`."""
    here = moment.astimezone()
    return f"{here:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00") + f" {here:%Z}"
