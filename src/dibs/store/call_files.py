"""The files that carry a Python call to its job, and its result back.

Calls that are submitted together share one file; each result has its own file, in the folder of its attempt. The
content will be unpickled, which can run any program, so only files that no other user can have written are opened. The
worker loads this module on every call, so its imports are cheap.

Lean.
"""

from __future__ import annotations

import os
import stat

from dibs.system.lean import closing_fd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

#: The folder of calls in the state folder.
FOLDER = "calls"
#: The command of a call ends with this file, the key of the bundle, and the number of the call in it.
PROGRAM = "python_api/call_main.py"
#: The same file in release 0.1, which queued commands may still name.
OLD_PROGRAM = "call.py"
BUNDLE_HEAD = b"dibs-calls 1\n"
RESULT_HEAD = b"dibs-result 1 "
VALUE, ERROR = b"value", b"error"


class Untrusted(Exception):
    """A file that another user may have written, and that is therefore not unpickled."""


def path_of(home: str, key: str) -> str:
    """Return the file of the calls submitted with a key."""
    return f"{home}/{FOLDER}/{key}"


def write(home: str, key: str, context: bytes, calls: Sequence[bytes]) -> None:
    """Store calls and their shared context; they are on the disk when this returns."""
    parts = [context, *calls]
    at = len(BUNDLE_HEAD) + 8 * (len(parts) + 1)
    marks = [at := at + size for size in (0, *map(len, parts))]
    os.makedirs(f"{home}/{FOLDER}", mode=0o700, exist_ok=True)
    table = b"".join(mark.to_bytes(8, "little") for mark in marks)
    _write_new(path_of(home, key), (BUNDLE_HEAD, table, *parts))
    _sync_folder(path_of(home, key))


def copy(home: str, target: str, key: str) -> None:
    """Copy the calls of a key to another folder, unless they are there."""
    path = path_of(target, key)
    if os.path.exists(path):
        return
    with open(open_own(path_of(home, key)), "rb") as file:
        content = file.read()
    os.makedirs(f"{target}/{FOLDER}", mode=0o700, exist_ok=True)
    fresh = f"{path}.{os.getpid()}"
    _write_new(fresh, (content,))
    os.rename(fresh, path)


def read(home: str, key: str, number: int) -> tuple[bytes, bytes]:
    """Return the context and one of the calls (counted from 0) submitted with a key."""
    with open(open_own(path_of(home, key)), "rb") as file:
        if file.read(len(BUNDLE_HEAD)) != BUNDLE_HEAD:
            raise ValueError(f"{path_of(home, key)}: expected a file of calls of this version of dibs.")
        context, call = (_part(file.fileno(), len(BUNDLE_HEAD) + 8 * n) for n in (0, number + 1))
    return context, call


def _part(fd: int, mark: int) -> bytes:
    ends = os.pread(fd, 16, mark)
    first, last = int.from_bytes(ends[:8], "little"), int.from_bytes(ends[8:], "little")
    # One read returns at most 2 GiB.
    found = b"".join(_pieces(fd, first, last))
    if len(found) != last - first:
        raise ValueError("the file of calls is cut short.")
    return found


def _pieces(fd: int, at: int, last: int) -> Iterator[bytes]:
    while at < last and (piece := os.pread(fd, last - at, at)):
        yield piece
        at += len(piece)


def remove(home: str, keys: Sequence[str]) -> int:
    """Remove the call files of deleted jobs; return the number of freed bytes."""
    return sum(_unlink(path_of(home, key)) for key in keys)


def remove_strays(home: str, keys: Set[str], before: float) -> int:
    """Remove files older than `before` that belong to none of these keys; return the number of freed bytes."""
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
        # A submission with a key need not consist of calls.
        return 0
    return size


def result_path(folder: str, attempt: int | str) -> str:
    """Return the path of the result of an attempt of a call in this folder."""
    return f"{folder}/{attempt}/result"


def write_result(path: str, kind: bytes, body: bytes, told: str = "") -> None:
    """Write the result of a call atomically; `told` is a formatted traceback."""
    text = told.encode(errors="backslashreplace")
    new = f"{path}.{os.getpid()}"
    try:
        _write_new(new, (RESULT_HEAD, kind, b" %d\n" % len(text), text, body))
        os.rename(new, path)
    except BaseException:
        # Leave no partial file on a disk that may be full.
        if os.path.lexists(new):
            os.unlink(new)
        raise
    _sync_folder(path)


def read_result(path: str) -> tuple[bytes, bytes, str]:
    """Return kind, body and traceback of a result; raise FileNotFoundError if there is none."""
    with open(open_own(path), "rb") as file:
        head = file.readline(100)
        words = head.removeprefix(RESULT_HEAD).split()
        if not head.startswith(RESULT_HEAD) or len(words) != 2 or words[0] not in (VALUE, ERROR):
            raise ValueError(f"{path}: expected a result of this version of dibs.")
        told = file.read(int(words[1])).decode(errors="replace")
        return words[0], file.read(), told


def open_own(path: str) -> int:
    """Open a file for reading that no other user can have written: ours, no link, not writable by others."""
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
    """Write a new file; when this returns, its bytes are on the disk, but not yet its name."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(fd)


def _sync_folder(path: str) -> None:
    """Make the name of a file survive a power cut."""
    with closing_fd(os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


def words(program: Sequence[str], key: str, number: int) -> list[str]:
    """Return the command of a job that is a call."""
    return [*program, f"{os.path.dirname(os.path.dirname(__file__))}/{PROGRAM}", key, str(number)]


def is_call(argv: Sequence[str] | None) -> bool:
    """Tell whether a command is a call."""
    if argv is None or len(argv) < 4 or not argv[-1].isdigit():
        return False
    return argv[-3].endswith((f"/dibs/{PROGRAM}", f"/dibs/{OLD_PROGRAM}"))


def current(argv: Sequence[str]) -> Sequence[str]:
    """Return the command of a call, with the current path of its program if an older release queued it."""
    if not is_call(argv) or os.path.exists(argv[-3]):
        return argv
    moved = argv[-3].removesuffix(OLD_PROGRAM) + PROGRAM
    return [*argv[:-3], moved, *argv[-2:]] if os.path.exists(moved) else argv
