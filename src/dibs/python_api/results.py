"""Results of a sweep: `dibs.results`, and the list of records that it returns."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, overload

from dibs.client import connection, queries
from dibs.client.answers import Run as Record
from dibs.client.connection import Client
from dibs.errors import MachineError, UserError
from dibs.python_api import display

if TYPE_CHECKING:
    # Optional: imported only by `to_frame`.
    import pandas
    import polars

#: What `to_frame` makes, in the order in which it looks for them.
LIBRARIES = ("pandas", "polars")


class Results(list[Record]):
    """One record per run of a sweep, in the order of the points; a notebook shows them as a table.

    >>> with dibs.Executor(gpus=0, sweep="squares") as pool:
    ...     values = list(pool.map(square, [2, 3]))
    >>> results = dibs.results("squares")
    >>> results[1]["params"], results[1]["numbers"]
    ({'x': 3}, {'result': 9})
    >>> results.to_frame()["result"].tolist()
    [4, 9]
    """

    #: The sweep they belong to.
    sweep: str = ""

    @overload
    def to_frame(self, library: Literal["pandas"]) -> pandas.DataFrame: ...
    @overload
    def to_frame(self, library: Literal["polars"]) -> polars.DataFrame: ...
    @overload
    def to_frame(self) -> Any: ...
    def to_frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Return a table of pandas or polars, whichever is installed: job, index, state, parameters and numbers."""
        if library not in (None, *LIBRARIES):
            raise UserError(f"to_frame expected pandas or polars, got {library!r}.")
        for name in LIBRARIES if library is None else (library,):
            try:
                module = __import__(name)
            except ImportError:
                continue
            rows = self.rows()
            # Runs of one sweep may have different parameters; polars reads the types of all rows only if told so.
            return module.DataFrame(rows) if name == "pandas" else module.DataFrame(rows, infer_schema_length=None)
        wanted = library or " or ".join(LIBRARIES)
        hint = f"pip install {library or LIBRARIES[0]}"
        raise MachineError(f"to_frame needs {wanted}, which is not installed.", hint)

    def rows(self) -> list[dict[str, Any]]:
        """Return flat rows, all with the same columns."""
        found = [flatten(record) for record in self]
        titles = dict.fromkeys(title for row in found for title in row)
        return [{title: row.get(title) for title in titles} for row in found]

    def _table(self) -> tuple[list[str], list[list[object]], str]:
        counts = Counter(record["state"] for record in self)
        rows = Results(self[: display.MOST_ROWS]).rows()
        left = len(self) - len(rows)
        caption = f"{self.sweep or 'results'}: {display.states(counts) or 'no runs'}"
        caption += f"; {left} more are not shown" if left else ""
        return list(rows[0]) if rows else [], [list(row.values()) for row in rows], caption

    def __repr__(self) -> str:
        titles, rows, caption = self._table()
        return f"<{caption}>" + (f"\n{display.text_table(titles, rows)}" if rows else "")

    def _repr_html_(self) -> str:
        return display.html_table(*self._table())


def results(sweep: str) -> Results:
    """Return the results of a sweep by its name: that of `dibs sweep`, `dibs.Sweep` or `Executor(sweep=...)`.

    `sweep` is "NAME" or "PROJECT/NAME". Runs that are not finished are included.

    >>> sweep = dibs.Sweep("echo {lr}", {"lr": [0.1, 0.01]}, name="rates", gpus=0)
    >>> sweep.submit()["new"]
    2
    >>> sweep.wait()
    {'done': 2}
    >>> [record["params"]["lr"] for record in dibs.results("rates")]
    [0.1, 0.01]
    """
    if not isinstance(sweep, str) or not sweep:
        raise UserError(f"results expected the name of a sweep, got {sweep!r}.")
    queue = connection.connect(os.environ)
    return of_sweep(queue, *find(queue, sweep))


def of_sweep(queue: Client, sweep_id: int, name: str) -> Results:
    """Return the results of one sweep."""
    found = Results(sorted(queries.runs(queue, sweep_id), key=lambda record: record["index"]))
    found.sweep = name
    return found


def find(queue: Client, word: str) -> tuple[int, str]:
    """Return id and full name of the one sweep with this name."""
    named = queue.get("/v1/sweeps", [("name", word)])["sweeps"]
    names = [f"{each['project']}/{each['name']}" for each in named]
    if len(named) > 1:
        raise UserError(f"expected one sweep, got {len(names)}: {', '.join(names[:5])}.", "Write PROJECT/NAME.")
    return int(named[0]["id"]), names[0]


def flatten(record: Record) -> dict[str, Any]:
    """Return a record as a table row; a number with the name of a parameter becomes `number.NAME`."""
    head = {"job": record["job"], "index": record["index"], "state": record["state"]}
    params = {(f"param.{name}" if name in head else name): value for name, value in record["params"].items()}
    taken = head | params
    numbers = {(f"number.{name}" if name in taken else name): value for name, value in record["numbers"].items()}
    return taken | numbers
