"""The runs of a sweep in a temporary file: fetched from the daemon in parts, then read repeatedly in any order.

There may be a million runs. Memory holds only their offsets in the file and the number that ranks them.
"""

from __future__ import annotations

import json
import math
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dibs.client import connection, queries
from dibs.model.jobs import BAD, Cause, Outcome
from dibs.sweeps import ranking
from dibs.sweeps.ranking import Run

#: A run as the daemon sent it.
SentRun = dict[str, Any]
#: The states of runs that come after the others, whatever they reported.
BAD_STATES = frozenset(outcome.value for outcome in BAD | {Outcome.CANCELLED})


class Spool:
    """All runs of a sweep, until the end of a `with` block."""

    def __init__(self, metric: str | None, goal: str) -> None:
        self._metric = metric or ""
        self._goal = goal
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._offsets = array("Q")
        self._indices = array("Q")
        self._keys = array("d")
        self._least = math.inf
        #: The index of the best run that is done; None if none has the metric.
        self.winner: int | None = None
        #: The names of all metrics, in order of first appearance.
        self.names: dict[str, None] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fetch(self, queue: connection.Client, sweep_id: int) -> None:
        """Fetch all runs of a sweep from the daemon."""
        for run in queries.runs(queue, sweep_id):
            self.add(run)

    def add(self, run: SentRun) -> None:
        """Store one run."""
        self._offsets.append(self._file.tell())
        self._indices.append(run["index"])
        # What a run reported before it failed is shown, but does not make it the best.
        is_bad = run["state"] in BAD_STATES and run.get("cause") != Cause.EARLY.value
        key = math.inf if is_bad else ranking.key(run["numbers"].get(self._metric), self._goal)
        self._keys.append(key)
        if run["state"] == "done" and key < self._least:
            self._least, self.winner = key, run["index"]
        self.names.update(dict.fromkeys(run["numbers"]))
        self._file.write(json.dumps(run).encode() + b"\n")

    def best(self, most: int | None) -> SelectedRuns:
        """Return the runs, the best first, at most `most`."""
        return SelectedRuns(self, ranking.best(self._keys, self._indices, most))

    def by_point(self) -> SelectedRuns:
        """Return all runs in the order of their points."""
        return SelectedRuns(self, sorted(range(len(self._indices)), key=self._indices.__getitem__))

    def read(self, numbers: Sequence[int]) -> Iterator[SentRun]:
        """Yield the runs with these numbers, which count them in the order of their arrival."""
        for number in numbers:
            self._file.seek(self._offsets[number])
            yield json.loads(self._file.readline())


@dataclass(frozen=True)
class SelectedRuns:
    """Some runs of a spool in a fixed order; each iteration reads them from the file again."""

    spool: Spool
    numbers: Sequence[int]

    def as_sent(self) -> Iterator[SentRun]:
        """Yield the runs as the daemon sent them."""
        return self.spool.read(self.numbers)

    def __iter__(self) -> Iterator[Run]:
        for run in self.as_sent():
            yield Run(run["params"], run["state"], run["numbers"], run["job"], run["index"], run.get("cause"))
