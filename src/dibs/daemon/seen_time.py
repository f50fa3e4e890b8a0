"""How long ago something happened, in time during which a daemon saw this machine run.

The wall clock may be set a year ahead for a minute; what is deleted then stays deleted. So ages are counted in seconds
of daemons' lives, and jobs are compared with the number of the last event at some moments, never with a time of day.

Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

#: Moments that are remembered within the longest age that matters: an age is exact to this part of it.
MARKS = 16
#: Most seconds of a daemon's life that a crash may leave uncounted.
LONGEST_S = 300.0


@dataclass(frozen=True, slots=True)
class SeenTime:
    """Seconds that daemons ran so far, and moments: each with the number of the last event before it."""

    seconds: float
    moments: tuple[tuple[float, int], ...]


def read(text: str | None, last_event: int) -> SeenTime:
    """Return what the store knows; at first, all that happened so far counts as new."""
    if not text:
        return SeenTime(0.0, ((0.0, last_event),))
    seconds, moments = json.loads(text)
    return SeenTime(seconds, tuple((at, event) for at, event in moments))


def written(seen: SeenTime) -> str:
    """Return it as the store keeps it."""
    return json.dumps([seen.seconds, seen.moments])


def is_worth_a_note(passed_s: float, longest_s: float) -> bool:
    """Tell whether enough time passed to store it."""
    return passed_s >= min(longest_s / MARKS, LONGEST_S)


def later(seen: SeenTime, passed_s: float, last_event: int, longest_s: float) -> SeenTime:
    """Return the seen time after `passed_s` more; forget moments that are older than ages up to `longest_s` need."""
    now = seen.seconds + passed_s
    moments = list(seen.moments)
    if now - moments[-1][0] >= longest_s / MARKS:
        moments.append((now, last_event))
    while len(moments) > 1 and now - moments[1][0] >= longest_s:
        del moments[0]
    return SeenTime(now, tuple(moments))


def event_before(seen: SeenTime, age_s: float) -> int:
    """Return the number of the last event that is at least `age_s` old; 0 if none is known to be."""
    return max((event for at, event in seen.moments if seen.seconds - at >= age_s), default=0)
