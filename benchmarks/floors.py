"""The least that keeping rows can cost: SQLite alone, the same rows, one transaction that the disk has when it ends."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

#: Rows held in memory at once.
PIECE = 50_000


def insert(source: Path, target: Path, state: str = "queued") -> float:
    """Copy the jobs in one state of a database into a bare table of another; return the seconds the inserts took."""
    theirs = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
    with closing(theirs) as there, closing(sqlite3.connect(target)) as here:
        here.isolation_level = None
        here.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
        rows = there.execute("SELECT * FROM jobs WHERE state = ? ORDER BY id", (state,))
        names = [column[0] for column in rows.description]
        columns = ["id INTEGER PRIMARY KEY" if name == "id" else name for name in names]
        here.execute(f"CREATE TABLE jobs ({', '.join(columns)})")
        statement = f"INSERT INTO jobs VALUES ({', '.join('?' * len(names))})"
        took_s = _seconds(lambda: here.execute("BEGIN IMMEDIATE"))
        while piece := rows.fetchmany(PIECE):
            took_s += _seconds(lambda piece=piece: here.executemany(statement, piece))  # type: ignore[misc]
        return took_s + _seconds(lambda: here.execute("COMMIT"))


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
