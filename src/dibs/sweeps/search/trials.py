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
from dibs.model.jobs import Cause, Outcome, State
from dibs.sweeps import values
from dibs.sweeps.records import Run, Search

RANDOM = "random"
SAMPLERS = ("tpe", "cmaes", RANDOM)
#: One trial in this many waits in the queue, at least one, while GPUs are taken by others: it keeps the place of the
#: search in the line. More would be chosen long before they start.
WAITING_PART = 4
#: Runs that may end without a value of the metric before the search gives up.
MOST_SILENT = 3
ENDED = frozenset(outcome.value for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Need:
    """What a search needs: trials, or to end because of `ended`."""

    trials: int = 0
    ended: str = ""


def need(search: Search, runs: Sequence[Run], metric: str, slots: int | None) -> Need:
    """Decide what a search needs, if `slots` trials can run at once; None: unknown.

    A point is chosen as late as possible: when a trial can start, and the results of those that ended are known. So a
    search chooses as a program would that starts the next trial when one returns.
    """
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
    waiting = words[State.QUEUED.value]
    wanted = math.ceil((slots or 1) / WAITING_PART) - waiting
    if slots is not None:
        wanted = min(wanted, slots - waiting - sum(_occupies(run) for run in runs))
    return Need(max(0, min(wanted, search.trials - len(runs))))


def _occupies(run: Run) -> bool:
    """Tell whether a trial runs, or has ended and its numbers are still being read."""
    # A paused trial may have given up its GPUs.
    is_running = run.word in {State.STARTING.value, State.RUNNING.value, State.STOPPING.value}
    return is_running or (run.word in ENDED and run.numbers is None)


def told(run: Run, metric: str) -> dict[str, Any]:
    """Return a run as a study hears of it: waiting, done, stopped with its last value, or failed."""
    numbers: Mapping[str, float | None] = run.numbers or {}
    value = numbers.get(metric)
    about: dict[str, Any] = {"point": values.identity(run.params), "params": run.params}
    is_stopped = run.word == Outcome.CANCELLED.value and run.cause == Cause.EARLY.value
    if run.word not in ENDED or run.numbers is None:
        return about | {"state": "waiting"}
    if value is None or not (is_stopped or run.word == Outcome.DONE.value):
        return about | {"state": "failed"}
    if not is_stopped:
        return about | {"state": "done", "value": value}
    steps = [numbers[word] for word in reports.STEPS if numbers.get(word) is not None]
    count = run.summaries[metric][3] if metric in run.summaries else 1
    return about | {"state": "stopped", "value": value, "step": int(steps[0] or 0) if steps else count}
