"""Kernel locks: files to `flock`, abstract sockets to bind, and the kernel's tables of both.

Leases and tickets are built on these. Nothing here knows what is locked or why.

Lean.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import stat
import time
import zlib

from dibs import errors
from dibs.system import refusals, users
from dibs.system.lean import closing_fd

#: Readable and writable for all; the sticky bit keeps systemd-tmpfiles from deleting a file in use.
SHARED_MODE = 0o1666

#: Never follow a planted link, never block on a fifo, never leak into a child.
OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

#: How often a file may be deleted while we open it before that is an error.
TRIES = 50

#: Bytes read of a file that any user may have written.
SMALL_BYTES = 65536

#: Prefixes of the files that are locked: of a device, and of its gate.
LEASE, GATE = ".dibs-lease-", ".dibs-gate-"

#: The folder for tickets inside a prepared lease folder.
TICKETS = "tickets"

#: Backlog of a socket; the kernel limits it to net.core.somaxconn. Watchers are never accepted.
BACKLOG = 65535

#: Flags and Type of a listening stream socket in /proc/net/unix. Connections in its backlog have its name without the
#: flag; a socket of another type may have the same name and is ignored.
LISTENING = [b"00010000", b"0001"]
NOT_LISTENING = [b"00000000", b"0001"]


class Folder:
    """The folder of the lock files, the folder of the line, and the prefix of their abstract sockets."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        _refuse_unsafe(self.path)
        #: Root made the files of all devices, and users can only add tickets (`dibs machine init`).
        self.is_prepared = is_prepared(self.path)
        #: Where users add files: tickets, and the records of who was served.
        self.line_path = f"{self.path}/{TICKETS}" if self.is_prepared else self.path
        is_standard = self.path in ("/tmp", "/run/dibs")
        self.prefix = "dibs" if is_standard else f"dibs-{zlib.crc32(os.fsencode(self.path)):08x}"

    def file(self, name: str) -> str:
        """Return the path of a file that belongs to a device."""
        return f"{self.path}/{name}"

    def line_file(self, name: str) -> str:
        """Return the path of a file that belongs to a user."""
        return f"{self.line_path}/{name}"

    def socket(self, kind: str, rest: str) -> bytes:
        """Return the abstract name of a socket of this folder."""
        return f"\0{self.prefix}.{kind}.{rest}".encode("ascii")


class Broken(errors.MachineError):
    """The lease folder is unusable, or contains something that is not ours."""


def folder() -> Folder:
    """Return the folder that all programs on this machine share, or the one in $DIBS_LEASE_DIR."""
    return Folder(os.environ.get("DIBS_LEASE_DIR") or standard_path())


def standard_path() -> str:
    """Return the path of the lease folder of this machine."""
    return "/run/dibs" if _is_open_folder("/run/dibs") or is_prepared("/run/dibs") else "/tmp"


def is_prepared(path: str) -> bool:
    """Return whether root prepared a folder: only root can change it, and it has a folder for tickets."""
    return not _roots_mode(path) & 0o022 and _is_open_folder(f"{path}/{TICKETS}")


def _is_open_folder(path: str) -> bool:
    """Return whether root made a folder in which every user can add files, and remove only their own."""
    return _roots_mode(path) & 0o1777 == 0o1777


def _roots_mode(path: str) -> int:
    """Return the mode of a folder of root; for anything else, a mode that is never accepted."""
    found = status_of(path)
    return found.st_mode if found and stat.S_ISDIR(found.st_mode) and found.st_uid == 0 else 0o022


def _refuse_unsafe(path: str) -> None:
    """Refuse a folder in which every user can remove and replace the files of others."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        # The user of the folder reports that.
        return
    if mode & 0o002 and not mode & stat.S_ISVTX:
        text = f"the lease folder {path} lacks the sticky bit, so every user could remove the leases of others."
        raise Broken(text, f"As root: chmod +t {path}")


def boot_ns() -> int:
    """Return the nanoseconds since boot, including sleep; this clock cannot be set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def lock(place: Folder, path: str, how: int) -> int | None:
    """Return a locked descriptor of the current file at `path`, created if needed; None if it is locked."""
    for _ in range(TRIES):
        fd = _open(place, path)
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            if is_same(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError as error:
            os.close(fd)
            raise _failed(path, error) from error
        # The file was deleted between our open and our lock: the next process would lock another file.
        os.close(fd)
    raise _broken(path, "it is deleted repeatedly")


def _open(place: Folder, path: str) -> int:
    """Open a file that all users lock; create it if it is missing."""
    for _ in range(TRIES):
        try:
            fd = os.open(path, os.O_RDWR | OPEN_FLAGS)
        except FileNotFoundError:
            if not _may_make(place, path):
                raise _unprepared(path) from None
            _make(place, path)
            continue
        except OSError as error:
            raise _failed(path, error) from error
        problem = flaw(path, os.fstat(fd))
        if problem is None:
            return fd
        os.close(fd)
        raise _broken(path, problem)
    raise _broken(path, "it is deleted repeatedly")


def flaw(path: str, status: os.stat_result) -> str | None:
    """Return why a file cannot be a lock that all users share; None if it can."""
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    # Planted, perhaps as a hard link to a private file.
    if mode & 0o666 != 0o666:
        return f"not all users can write to it (mode {mode:04o})"
    other = _same_lock(path, status) if status.st_nlink != 1 else None
    return None if other is None else f"it is the same file as {other}"


def _same_lock(path: str, status: os.stat_result) -> str | None:
    """Return the name of another lock with the same file, which would block both.

    Any other name is harmless, and must be: all users may link a file that all may write.
    """
    folder, own = os.path.split(path)
    for name in os.listdir(folder):
        if name.startswith((LEASE, GATE)) and name != own and key_of(f"{folder}/{name}") == key(status):
            return name
    return None


def _may_make(place: Folder, path: str) -> bool:
    """Return whether a missing file may be made: in a prepared folder, only root makes those of devices."""
    return not place.is_prepared or os.geteuid() == 0 or os.path.dirname(path) != place.path


def _make(place: Folder, path: str) -> None:
    """Create a file that all users may lock; it appears with its final mode.

    With O_CREAT on the name itself, fs.protected_regular would refuse the second user, and the file would first appear
    with a mode reduced by the first user's umask.
    """
    temporary, fd = make_temporary(place, os.path.dirname(path))
    try:
        os.fchmod(fd, SHARED_MODE)
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        os.close(fd)
        os.unlink(temporary)


def names(place: Folder, start: str) -> list[str]:
    """Return the names of the files of users that begin with `start`."""
    try:
        return [name for name in os.listdir(place.line_path) if name.startswith(start)]
    except OSError as error:
        raise unusable(place, "read", error) from error


def make_temporary(place: Folder, inside: str) -> tuple[str, int]:
    """Create an empty temporary file in one of its folders; return its path and a descriptor."""
    path = f"{inside}/.dibs-new-{os.urandom(8).hex()}"
    try:
        return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600)
    except OSError as error:
        raise unusable(place, "write in", error) from error


def unusable(place: Folder, what: str, error: OSError) -> Exception:
    """Return the error for a failed operation in the folder, with a hint; what the machine lacks is no such error."""
    if error.errno in refusals.SCARCE:
        return error
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "Free some space there." if is_full else HINT
    return Broken(f"cannot {what} the lease folder {place.path}: {error.strerror}.", hint)


HINT = "It must be a folder that all users can write to, with the sticky bit: mkdir and chmod 1777, as root."


def _failed(path: str, error: OSError) -> Exception:
    """Return what to raise for an error at a file; what the machine lacks is not the file's fault."""
    return error if error.errno in refusals.SCARCE else _broken(path, error.strerror)


def _broken(path: str, problem: str | None) -> Broken:
    status = status_of(path)
    owner = "" if status is None else f" (owner: {users.name(status.st_uid)})"
    return Broken(f"cannot use {path}: {problem}{owner}.", "Ask its owner or root to remove it.")


def complaint(place: Folder, path: str) -> Broken | None:
    """Return what is wrong with a file that all users lock, without opening it; None if nothing is."""
    try:
        problem = flaw(path, os.lstat(path))
    except FileNotFoundError:
        return None if _may_make(place, path) else _unprepared(path)
    except OSError:
        return None
    return None if problem is None else _broken(path, problem)


def _unprepared(path: str) -> Broken:
    return Broken(f"no lease file prepared ({path}); sudo dibs machine init adds it.")


def is_same(fd: int, path: str) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def flocked() -> dict[str, list[int]]:
    """Return the pids that flock each file of the machine, by the file's `key`; a dead locker's pid stays there.

    Do not call it often: before the kernel writes this table it waits for an RCU grace period, 10 ms and more.
    """
    found: dict[str, list[int]] = {}
    for line in read_all("/proc/locks").split(b"\n"):
        words = line.split()
        if len(words) >= 6 and words[1] == b"FLOCK":
            found.setdefault(words[5].decode("ascii"), []).append(int(words[4]))
    return found


class LockTable:
    """Who flocks what on this machine, read when it is first asked: see `flocked` for what that takes."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] | None = None

    def pids(self, path: str) -> list[int]:
        """Return the pids that flock a file."""
        if self._found is None:
            self._found = flocked()
        return self._found.get(key_of(path) or "", [])


def has_flocked(pid: int, path: str) -> bool:
    """Return whether a process that we may inspect has flocked a file itself. This asks for no table of all locks."""
    folder, name = f"/proc/{pid}/fdinfo", key_of(path)
    try:
        numbers = os.listdir(folder)
    except OSError:
        # It is gone, or belongs to another user.
        return False
    return any(_is_flocked_by(f"{folder}/{number}", pid, name) for number in numbers)


def _is_flocked_by(info: str, pid: int, name: str | None) -> bool:
    try:
        lines = read_all(info).decode("ascii", "replace").splitlines()
    except OSError:
        # It was closed meanwhile.
        return False
    # lock: 1: FLOCK ADVISORY WRITE PID DEVICE 0 EOF
    found = (line.split() for line in lines if line.startswith("lock:"))
    return any(words[2:3] == ["FLOCK"] and words[5:7] == [str(pid), name] for words in found)


def key(status: os.stat_result) -> str:
    """Return the name of a file in /proc/locks. (btrfs shows another device there: `with_inode`.)"""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


def with_inode(table: dict[str, list[int]], inode: int) -> list[int]:
    """Return the pids that flock a file of this number on any device; there may be several such files."""
    return [pid for name, pids in table.items() if name.rpartition(":")[2] == str(inode) for pid in pids]


def key_of(path: str) -> str | None:
    """Return the `key` of a path; None if there is no such file."""
    status = status_of(path)
    return None if status is None else key(status)


def status_of(path: str) -> os.stat_result | None:
    """Return the status of what is at a path, a link itself; None if there is nothing, or nothing that we may see."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def bind(name: bytes) -> int | None:
    """Return a socket that listens on the abstract `name`; None if another socket does."""
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK)
    try:
        made.bind(name)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return made.detach()


def connect(name: bytes) -> int | None:
    """Return a descriptor that hangs up when the last copy of the socket bound to `name` closes.

    The other side never accepts, so each connection uses up a place in its backlog until it ends. None if there is no
    such socket, if we lack permission, or if the backlog is full.
    """
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK)
    try:
        made.connect(name)
    except (ConnectionRefusedError, BlockingIOError, PermissionError):
        made.close()
        return None
    except OSError:
        made.close()
        raise
    return made.detach()


def table() -> bytes:
    """Return the kernel's table of sockets, so that several calls of `bound` see the same moment."""
    return read_all("/proc/net/unix")


def bound(place: Folder, kind: str, seen: bytes | None = None) -> dict[str, list[int]]:
    """Return what follows `<prefix>.<kind>.` in the names of the listening sockets of this folder, with their inodes.

    From the table `seen`, or the current one. The kernel writes it page by page: while sockets come and go, it may show
    one twice. A line of it may be forged: see `socket_owners`.
    """
    return _inodes(place, kind, seen, LISTENING)


def deaf(place: Folder, kind: str, seen: bytes | None = None) -> dict[str, list[int]]:
    """Return the same for names that nobody listens on, but that are bound, so that nobody else can bind them."""
    content = table() if seen is None else seen
    listening = bound(place, kind, content)
    found = _inodes(place, kind, content, NOT_LISTENING)
    return {rest: inodes for rest, inodes in found.items() if rest not in listening}


def _inodes(place: Folder, kind: str, seen: bytes | None, wanted: list[bytes]) -> dict[str, list[int]]:
    """Return names and inodes of the sockets with these flags and type. Names that are not ASCII are not ours."""
    content = table() if seen is None else seen
    start = f"@{place.prefix}.{kind}.".encode("ascii")
    found: dict[str, list[int]] = {}
    at = content.find(start)
    while at >= 0:
        end = content.find(b"\n", at)
        words = content[content.rfind(b"\n", 0, at) + 1 : at].split()
        rest = content[at + len(start) : end]
        if len(words) == 7 and words[3:5] == wanted and words[6].isdigit() and rest.isascii():
            found.setdefault(rest.decode("ascii"), []).append(int(words[6]))
        at = content.find(start, end)
    return found


def read_all(path: str) -> bytes:
    """Return the content of a file in /proc, whose size is known only at its end."""
    with closing_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        parts = []
        while part := os.read(fd, SMALL_BYTES):
            parts.append(part)
        return b"".join(parts)


def read_small(path: str, offset: int = 0, size: int = SMALL_BYTES) -> tuple[os.stat_result, str] | None:
    """Return the status and text, or a part of it, of a regular file that any user may have written; else None."""
    try:
        fd = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except OSError:
        return None
    with closing_fd(fd):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        return status, os.pread(fd, size, offset).decode("utf-8", "replace")


def uid_of(pid: int) -> int | None:
    """Return the effective uid of a process; None if it is gone or hidden. (The owner of /proc/PID can be root.)"""
    try:
        status = read_all(f"/proc/{pid}/status")
    except OSError:
        return None
    words = status[status.find(b"\nUid:") :].split(None, 3)
    return int(words[2]) if len(words) > 2 else None
