"""Decide how many trials a search needs now, or why it takes no more. Optuna chooses their points.

Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.logs import reports
from dibs.model.jobs import WAITING, Cause, Outcome, State
from dibs.sweeps import values
from dibs.sweeps.records import Run, Search

SAMPLERS = ("tpe", "cmaes", "random")
#: For this many trials that can run at a time, one more waits in the queue, so that no GPU is idle between two
#: trials. More would be chosen without the results of those that run.
AHEAD_PART = 4
#: Runs that may end without a value of the metric before the search gives up.
MOST_SILENT = 3


@dataclass(frozen=True, slots=True)
class Need:
    """What a search needs: trials, or to end because of `ended`."""

    trials: int = 0
    ended: str = ""


def ahead(slots: int, at_once: int | None) -> int:
    """Return how many trials should wait in the queue, for this many that can run at once."""
    return max(1, math.ceil(min(slots, at_once or slots) / AHEAD_PART))


def need(search: Search, runs: Sequence[Run], metric: str, waiting: int) -> Need:
    """Decide what a search needs; `waiting` trials should be in the queue."""
    if search.ended or len(runs) >= search.trials:
        return Need()
    words = Counter(run.word for run in runs)
    if words[State.HELD.value]:
        # A user or a rule holds runs: more would not be welcome.
        return Need()
    done = [run for run in runs if run.word == Outcome.DONE.value and run.numbers is not None]
    if len(done) >= MOST_SILENT and not any(metric in (run.numbers or {}) for run in runs):
        names = ", ".join(dict.fromkeys(name for run in done for name in run.numbers or {}))
        return Need(
            ended=f"{len(done)} runs are done and none reported {metric}" + (f", only {names}" if names else "")
        )
    queued = sum(words[state.value] for state in WAITING)
    return Need(max(0, min(waiting - queued, search.trials - len(runs))))


def told(run: Run, metric: str) -> dict[str, Any]:
    """Return a run as a study hears of it: waiting, done, stopped with its last value, or failed."""
    numbers: Mapping[str, float | None] = run.numbers or {}
    value = numbers.get(metric)
    about: dict[str, Any] = {"point": values.identity(run.params), "params": run.params}
    is_stopped = run.word == Outcome.CANCELLED.value and run.cause == Cause.EARLY.value
    if run.word not in {outcome.value for outcome in Outcome} or run.numbers is None:
        return about | {"state": "waiting"}
    if value is None or not (is_stopped or run.word == Outcome.DONE.value):
        return about | {"state": "failed"}
    if not is_stopped:
        return about | {"state": "done", "value": value}
    steps = [numbers[word] for word in reports.STEPS if numbers.get(word) is not None]
    count = run.summaries[metric][3] if metric in run.summaries else 1
    return about | {"state": "stopped", "value": value, "step": int(steps[0] or 0) if steps else count}
