"""Runs of a sweep in a file of our own: fetched from the daemon in parts, then read in any order, any number of times.

There may be a million of them. In memory are only their places in the file, and the number by which they are compared.
"""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from dibs.client import connection
from dibs.sweeps import ranking
from dibs.sweeps.ranking import Run

#: Runs in one answer of the daemon.
PART = 5000

#: A run as the daemon told of it.
Told = dict[str, Any]


class Spool:
    """All runs of a sweep, as they were told, until the end of a `with`."""

    def __init__(self, metric: str | None, goal: str) -> None:
        self._metric = metric or ""
        self._goal = goal
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._places = array("Q")
        self._indices = array("Q")
        self._keys = array("d")
        #: The names of all numbers, in the order in which they come up.
        self.names: dict[str, None] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fetch(self, queue: connection.Client, sweep_id: int) -> None:
        """Take all runs of a sweep from the daemon."""
        after: str | None = ""
        while after is not None:
            answer = queue.get(f"/v1/sweeps/{sweep_id}/results", [("most", str(PART)), ("after", after)])
            for run in answer["runs"]:
                self.add(run)
            after = answer["next"]

    def add(self, run: Told) -> None:
        """Keep one run."""
        self._places.append(self._file.tell())
        self._indices.append(run["index"])
        self._keys.append(ranking.key(run["numbers"].get(self._metric), self._goal))
        self.names.update(dict.fromkeys(run["numbers"]))
        self._file.write(json.dumps(run).encode() + b"\n")

    def best(self, most: int | None) -> Chosen:
        """Return the runs with the best first, or so many of them."""
        return Chosen(self, ranking.best(self._keys, self._indices, most))

    def by_point(self) -> Chosen:
        """Return all runs in the order of their points."""
        return Chosen(self, sorted(range(len(self._indices)), key=self._indices.__getitem__))

    def read(self, places: Sequence[int]) -> Iterator[Told]:
        """Return the runs at these places."""
        for place in places:
            self._file.seek(self._places[place])
            yield json.loads(self._file.readline())


class Chosen:
    """Some runs of a spool in an order; each time one goes through them they are read anew."""

    def __init__(self, spool: Spool, places: Sequence[int]) -> None:
        self._spool = spool
        self._places = places

    def told(self) -> Iterator[Told]:
        """Return the runs as the daemon told of them."""
        return self._spool.read(self._places)

    def __iter__(self) -> Iterator[Run]:
        for run in self.told():
            yield Run(run["params"], run["state"], run["numbers"], run["job"], run["index"])
