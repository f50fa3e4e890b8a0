"""Parse the times that users type after `--begin`, in their time zone, and format times for output.

Also formats the range of an expected start.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, time, timedelta

from dibs.errors import UserError
from dibs.model import units

#: The text for a start expected within a second.
NOW = "now"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
EXAMPLE = "a future time such as 22:00, fri 18:00, now+2h or 2026-11-16T08:00"


def parse(text: str, now: datetime) -> datetime:
    """Parse `text` relative to `now`, a local time without a zone.

    A clock time that has passed today means tomorrow.
    """
    word = text.strip()
    if word.startswith("now+"):
        span = timedelta(seconds=units.parse_duration(word.removeprefix("now+")))
        return (now.astimezone() + span).astimezone().replace(microsecond=0)
    if (clock := _clock(word)) is not None:
        today = datetime.combine(now, clock)
        # By calendar and not 24 hours later: a day may have 23 or 25 hours.
        return (today if today > now else datetime.combine(now + timedelta(days=1), clock)).astimezone()
    if (day := _named_day(word, now)) is not None:
        return day
    moment = _written(word)
    if moment is None and word[-1:].isalpha() and word[:1].isdigit():
        # pueue's --delay 2h.
        with contextlib.suppress(UserError):
            return parse(f"now+{word}", now)
    if moment is None:
        raise UserError(f'expected {EXAMPLE}, got "{text}".')
    if moment <= now.astimezone():
        raise UserError(f'expected {EXAMPLE}, got "{text}", which is in the past.')
    return moment


def _named_day(word: str, now: datetime) -> datetime | None:
    """Parse `fri 18:00`, `tomorrow 9:00` or `today 18:00`; a weekday is the next one whose time is in the future."""
    name, _, rest = word.lower().partition(" ")
    clock = _clock(rest.strip())
    days = next((number for number, day in enumerate(DAYS) if len(name) >= 2 and day.startswith(name)), None)
    if clock is None or (days is None and name not in ("today", "tomorrow")):
        return None
    ahead = int(name == "tomorrow") if days is None else (days - now.weekday()) % 7
    found = datetime.combine(now + timedelta(days=ahead), clock)
    if found <= now and days is not None:
        found = datetime.combine(now + timedelta(days=7), clock)
    return found.astimezone() if found > now else None


def past(text: str, now: datetime) -> datetime:
    """Parse a past time relative to `now`, a local time without a zone: `2d` ago, today at 8:00, or a date."""
    word = text.strip()
    if (clock := _clock(word)) is not None:
        return datetime.combine(now, clock).astimezone()
    if (moment := _written(word)) is not None:
        return moment
    try:
        return now.astimezone() - timedelta(seconds=units.parse_duration(word))
    except UserError:
        raise UserError(f'expected a time such as 2d, 08:00 or 2026-11-16T08:00, got "{text[:80]}".') from None


def _clock(word: str) -> time | None:
    """Parse 22:00 or 22:00:30; a bare 22 or 2200 is ambiguous."""
    parts = word.rjust(5, "0").split(":")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) == 2 for part in parts):
        return None
    hour, minute, second = (int(part) for part in [*parts, "0"][:3])
    try:
        return time(hour, minute, second)
    except ValueError:
        return None


def _written(word: str) -> datetime | None:
    """Parse a date, with or without time and zone; without dashes it would look like a bare number."""
    if word[4:5] != "-":
        return None
    try:
        return datetime.fromisoformat(word).astimezone()
    except (ValueError, OverflowError):
        return None


def shown(moment: datetime) -> str:
    """Return a time in local notation: `Mon 2026-11-16 08:00 CET`."""
    here = moment.astimezone()
    return f"{here:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00") + f" {here:%Z}"


def between(earliest: datetime, latest: datetime, now: datetime) -> str:
    """Describe when a start is expected: `between 14:05 and 15:30 (in 5m00s to 1h30m)`."""
    soonest_s, longest_s = ((moment - now).total_seconds() for moment in (earliest, latest))
    if longest_s < 1:
        return NOW
    last, away = _near(latest, now), units.format_duration(longest_s)
    if soonest_s < 1:
        return f"by {last} (within {away})"
    if longest_s - soonest_s < 1:
        return f"at {last} (in {away})"
    return f"between {_near(earliest, now)} and {last} (in {units.format_duration(soonest_s)} to {away})"


def _near(moment: datetime, now: datetime) -> str:
    """Return a future time with only as much of the date as is needed."""
    here, today = moment.astimezone(), now.astimezone().date()
    clock = f"{here:%H:%M}" if (moment - now).total_seconds() >= 600 else f"{here:%H:%M:%S}"
    days = (here.date() - today).days
    return clock if days == 0 else f"{here:%a} {clock}" if days < 7 else f"{here:%Y-%m-%d} {clock}"
