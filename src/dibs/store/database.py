"""Open, check and upgrade the database file, and load the queries in `sql/`.

`rows` gives the rows their meaning, `copies` keeps copies of the file, `custody` notices when it is lost.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from importlib import resources
from pathlib import Path

from dibs.errors import MachineError, UserError
from dibs.store import copies, rows
from dibs.system.lean import closing_fd

#: "dibs" in ASCII: distinguishes our files from other SQLite files.
APPLICATION_ID = 0x64696273
#: One file per schema version, applied in numeric order; together they are the schema.
MIGRATIONS = tuple(
    sorted(file.name for file in resources.files("dibs.store").joinpath("sql").iterdir() if file.name[0].isdigit())
)
#: Files up to this size are always checked before use: that takes a third of a second.
SMALL_BYTES = 32 * 2**20
#: Bytes allocated to the log in advance. To sync a file that grows costs several times as much as to sync one that
#: already has its length and blocks, and every start of a job waits for a sync.
LOG_BYTES = 4 * 2**20

#: Any error of SQLite, for modules that do not import it.
DatabaseError = sqlite3.Error

PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
PRAGMA wal_autocheckpoint = 8000;
"""


def read_sql(name: str) -> str:
    """Return one of the files in `sql/`."""
    return resources.files("dibs.store").joinpath("sql", name).read_text()


@functools.cache
def named_queries() -> dict[str, str]:
    """Return the queries by their `-- name:` lines, with {columns} and the spec columns filled in."""
    queries: dict[str, str] = {}
    for block in read_sql("queries.sql").split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        queries[name.strip()] = "\n".join(lines).strip()
    fills = {
        "{columns}": queries["columns"],
        "{sweep}": queries["sweep_columns"],
        "{stranger}": queries["stranger"],
    } | rows.spec_fills()
    for mark, text in fills.items():
        queries = {name: query.replace(mark, text) for name, query in queries.items()}
    return queries


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection; the writer has created the file."""
    return sqlite3.connect(copies.read_only(path), uri=True, isolation_level=None, check_same_thread=False, timeout=5)


def open_current(path: Path) -> sqlite3.Connection:
    """Open a read-only connection beside a writer that may be older or newer than we are; refuse another version."""
    connection = open_reader(path)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != len(MIGRATIONS):
        connection.close()
        raise MachineError(f"{path} has version {version}; this dibs reads {len(MIGRATIONS)}.")
    return connection


def open_writer(path: Path, boot: str | None = None, small_bytes: int = SMALL_BYTES) -> tuple[sqlite3.Connection, bool]:
    """Open the only writer; create or upgrade the file if needed; refuse a foreign, newer or damaged file.

    Also return whether the whole file was checked. A large file that was last used under the same `boot` id is not,
    because that may take many seconds: run `Check` in parallel with its use.
    """
    if not path.exists():
        # Create it with our mode before SQLite creates it with another.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
        _check_ours(connection, path)
        is_checked = not _may_wait(connection, path, boot, small_bytes)
        if is_checked:
            _check_all(connection, path)
        connection.executescript(PRAGMAS)
        _migrate(connection, path)
        _prepare_log(path)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise _unopened(path, error) from error
        raise
    return connection, is_checked


def settle(connection: sqlite3.Connection) -> None:
    """Copy the log into the file, so that the log restarts; do not wait for readers."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


class Check:
    """Check a large file on a separate connection, in a thread, while others use the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_reader(path)
        self._is_stopped = False

    def run(self) -> None:
        """Raise if the file is damaged, and mark it so that the next use checks it first."""
        try:
            _check_all(self._connection, self._path)
        except sqlite3.Error as error:
            if not self._is_stopped:
                self._suspect()
                raise _unopened(self._path, error) from error
        except MachineError:
            self._suspect()
            raise
        finally:
            self._connection.close()

    def _suspect(self) -> None:
        _suspicion(self._path).touch(0o600)

    def stop(self) -> None:
        """Interrupt a running check. From another thread."""
        self._is_stopped = True
        with contextlib.suppress(sqlite3.ProgrammingError):
            # The check may have just ended.
            self._connection.interrupt()


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
    app = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if app != APPLICATION_ID and (
        app or version or connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    ):
        raise UserError(
            f"{path} is not a database of dibs; it was not changed.", "Choose another folder with DIBS_HOME."
        )
    if version > len(MIGRATIONS):
        raise UserError(
            f"{path} was written by a newer dibs (schema {version}, this one knows {len(MIGRATIONS)}).",
            "Upgrade dibs, or choose another folder with DIBS_HOME.",
        )
    # SQLite reads the missing end of the last page as zeros and reports the file as intact. If there is a log, a crash
    # during a checkpoint may have caused this, and the log completes the file.
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    if path.stat().st_size % page_bytes and not has_entries(log_of(path)):
        raise _damaged(path, "it ends in the middle of a page")


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def has_entries(log: Path) -> bool:
    """Tell whether a log has entries; one that was only prepared holds zeros."""
    try:
        with open(log, "rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _prepare_log(path: Path) -> None:
    """Allocate the log. SQLite ignores what follows the last entry, and zeros are no entry."""
    with closing_fd(os.open(log_of(path), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)) as fd:
        size = os.fstat(fd).st_size
        try:
            while (end := os.fstat(fd).st_size) < LOG_BYTES:
                os.pwrite(fd, bytes(LOG_BYTES - end), end)
        except OSError:
            # The disk is full: without the allocation we are only slower, and leave the space to others.
            os.ftruncate(fd, size)


def _suspicion(path: Path) -> Path:
    return path.with_name(f"{path.name}-suspect")


def _may_wait(connection: sqlite3.Connection, path: Path, boot: str | None, small_bytes: int) -> bool:
    """Tell whether a file may be used before the whole of it was checked.

    A crash of the daemon damages nothing, because the kernel has all writes. A power cut or another program may.
    """
    version, pages, page_bytes = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "page_count", "page_size")
    )
    if version != len(MIGRATIONS) or pages * page_bytes <= small_bytes or _suspicion(path).exists():
        return False
    last = connection.execute("SELECT value FROM facts WHERE name = 'boot'").fetchone()
    return last is not None and last[0] == boot


def _check_all(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _damaged(path, found)
    _suspicion(path).unlink(missing_ok=True)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if 0 < version < len(MIGRATIONS):
        copies.make(path)
    # A referenced table can only be rebuilt while foreign keys are off; all of them are checked afterwards.
    connection.execute("PRAGMA foreign_keys = OFF")
    if version == 0:
        _apply(connection, final_schema(), len(MIGRATIONS))
    else:
        _upgrade(connection, version)
    if version < len(MIGRATIONS) and (broken := connection.execute("PRAGMA foreign_key_check").fetchone()):
        raise _damaged(path, f"a row of {broken[0]} refers to none of {broken[2]}")
    connection.execute("PRAGMA foreign_keys = ON")


@functools.cache
def final_schema() -> str:
    """Return what all migrations together make of an empty file, as statements that take a fifth of their time."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        _upgrade(empty, 0)
        # The first and the last line are those of a transaction.
        return "\n".join([*empty.iterdump()][1:-1])


def _upgrade(connection: sqlite3.Connection, version: int) -> None:
    for number, name in enumerate(MIGRATIONS[version:], version + 1):
        _apply(connection, read_sql(name), number)


def _apply(connection: sqlite3.Connection, statements: str, version: int) -> None:
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{statements}\n"
        f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {version};\nCOMMIT;"
    )


def _unopened(path: Path, error: sqlite3.Error) -> MachineError:
    # The low byte is the primary error code; the others are details.
    if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, error)
    return MachineError(
        f"{path} cannot be opened ({error}).", "Is the disk full, or does another program use the file?"
    )


def _damaged(path: Path, found: object) -> MachineError:
    # SQLite's check returns several lines.
    what = " ".join(str(found).split())
    return MachineError(
        f"{path} is damaged ({what}); it was left as it is.",
        "`dibs doctor --repair` puts the newest copy in its place.",
    )
