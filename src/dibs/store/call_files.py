"""The files by which a call from Python reaches its job, and by which its result comes back.

Many calls that are submitted together share one file; each result has its own, in the folder of its attempt. Whatever
is read here will be unpickled, which can run any program: so only files that nobody but their reader can have written
are opened. The worker loads this on every call, so it imports only what costs nothing.

Lean.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

#: Where calls wait, in the state folder.
FOLDER = "calls"
#: The last words of the command of a job that is a call: this file, the key of its bundle, its number in it.
PROGRAM = "python_api/call_main.py"
#: The same file in release 0.1: such commands still wait in queues, and name it.
OLD_PROGRAM = "call.py"
BUNDLE_HEAD = b"dibs-calls 1\n"
RESULT_HEAD = b"dibs-result 1 "
VALUE, ERROR = b"value", b"error"


class Untrusted(Exception):
    """A file that somebody else may have written, and that is therefore not unpickled."""


def path_of(home: str, key: str) -> str:
    """Return the file of the calls that were submitted with a key."""
    return f"{home}/{FOLDER}/{key}"


def write(home: str, key: str, context: bytes, calls: Sequence[bytes]) -> None:
    """Keep calls, and the context that they share; when this returns the disk has them."""
    parts = [context, *calls]
    at = len(BUNDLE_HEAD) + 8 * (len(parts) + 1)
    marks = [at := at + size for size in (0, *map(len, parts))]
    os.makedirs(f"{home}/{FOLDER}", mode=0o700, exist_ok=True)
    table = b"".join(mark.to_bytes(8, "little") for mark in marks)
    _write_new(path_of(home, key), (BUNDLE_HEAD, table, *parts))
    _sync_folder(path_of(home, key))


def read(home: str, key: str, number: int) -> tuple[bytes, bytes]:
    """Return the context and one of the calls (counted from 0) that were submitted with a key."""
    with open(open_own(path_of(home, key)), "rb") as file:
        if file.read(len(BUNDLE_HEAD)) != BUNDLE_HEAD:
            raise ValueError(f"{path_of(home, key)}: expected a file of calls of this version of dibs.")
        context, call = (_part(file.fileno(), len(BUNDLE_HEAD) + 8 * n) for n in (0, number + 1))
    return context, call


def _part(fd: int, mark: int) -> bytes:
    ends = os.pread(fd, 16, mark)
    first, last = int.from_bytes(ends[:8], "little"), int.from_bytes(ends[8:], "little")
    # One read gives 2 GiB at most.
    found = b"".join(_pieces(fd, first, last))
    if len(found) != last - first:
        raise ValueError("the file of calls is cut short.")
    return found


def _pieces(fd: int, at: int, last: int) -> Iterator[bytes]:
    while at < last and (piece := os.pread(fd, last - at, at)):
        yield piece
        at += len(piece)


def remove(home: str, keys: Sequence[str]) -> int:
    """Remove the files of calls of which no job is left; return how many bytes that freed."""
    return sum(_unlink(path_of(home, key)) for key in keys)


def remove_strays(home: str, keys: Set[str], before: float) -> int:
    """Remove files that are older than a moment and belong to none of these keys; return how many bytes that freed."""
    try:
        found = list(os.scandir(f"{home}/{FOLDER}"))
    except FileNotFoundError:
        return 0
    return sum(_unlink(e.path) for e in found if e.name not in keys and e.stat(follow_symlinks=False).st_mtime < before)


def _unlink(path: str) -> int:
    try:
        size = os.lstat(path).st_size
        os.unlink(path)
    except FileNotFoundError:
        # A submission with a key need not be one of calls.
        return 0
    return size


def result_path(folder: str, attempt: int | str) -> str:
    """Return where an attempt of a call in this folder leaves its result."""
    return f"{folder}/{attempt}/result"


def write_result(path: str, kind: bytes, body: bytes, told: str = "") -> None:
    """Leave the result of a call, whole or not at all; `told` is a traceback as people read it."""
    text = told.encode(errors="backslashreplace")
    new = f"{path}.{os.getpid()}"
    try:
        _write_new(new, (RESULT_HEAD, kind, b" %d\n" % len(text), text, body))
        os.rename(new, path)
    except BaseException:
        # Nothing half written stays on a disk that may just have become full.
        if os.path.lexists(new):
            os.unlink(new)
        raise
    _sync_folder(path)


def read_result(path: str) -> tuple[bytes, bytes, str]:
    """Return the kind, the body and the traceback of a result; raise FileNotFoundError where there is none."""
    with open(open_own(path), "rb") as file:
        head = file.readline(100)
        words = head.removeprefix(RESULT_HEAD).split()
        if not head.startswith(RESULT_HEAD) or len(words) != 2 or words[0] not in (VALUE, ERROR):
            raise ValueError(f"{path}: expected a result of this version of dibs.")
        told = file.read(int(words[1])).decode(errors="replace")
        return words[0], file.read(), told


def open_own(path: str) -> int:
    """Open a file for reading that nobody else can have written: ours, no link, and closed to the writing of others."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        import errno

        if error.errno == errno.ELOOP:
            raise Untrusted(f"{path} is a link; it was not read.") from None
        raise
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(fd)
        raise Untrusted(
            f"{path} is not a file that only user {os.geteuid()} can write "
            f"(owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}); it was not read."
        )
    return fd


def _write_new(path: str, parts: Sequence[bytes]) -> None:
    """Write a file that was not there before; when this returns the disk has its bytes, though not yet its name."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(fd)


def _sync_folder(path: str) -> None:
    """Make sure that the name of a file survives a power cut as well."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def words(program: Sequence[str], key: str, number: int) -> list[str]:
    """Return the command of a job that is a call."""
    return [*program, f"{os.path.dirname(os.path.dirname(__file__))}/{PROGRAM}", key, str(number)]


def is_call(argv: Sequence[str] | None) -> bool:
    """Tell whether a command is that of a call."""
    if argv is None or len(argv) < 4 or not argv[-1].isdigit():
        return False
    return argv[-3].endswith((f"/dibs/{PROGRAM}", f"/dibs/{OLD_PROGRAM}"))


def current(argv: Sequence[str]) -> Sequence[str]:
    """Return the command of a call with the path that its program has today, if it was queued by an older release."""
    if not is_call(argv) or os.path.exists(argv[-3]):
        return argv
    moved = argv[-3].removesuffix(OLD_PROGRAM) + PROGRAM
    return [*argv[:-3], moved, *argv[-2:]] if os.path.exists(moved) else argv
