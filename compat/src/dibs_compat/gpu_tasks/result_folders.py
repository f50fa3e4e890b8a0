"""Folders of results: which instance is done, which is not, and who works on it.

A folder that is there means that its instance is done, as it always did. Only while a task runs, and after one that did
not succeed, a file in it says otherwise. The file bears the name of the task's class, because a second phase uses the
folders of the first, and is locked for as long as anything of the task lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass

#: Begins the name of the file in the folder of a task that has not succeeded.
UNFINISHED = ".unfinished."

#: Longest first line that is read, in bytes; ours are shorter.
RUN_BYTES = 200

EXPLANATION = "\nThis task has not finished: it runs again next time. Delete this file to count it as done.\n"

OPENED = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Claim:
    """The right to run an instance in its folder."""

    folder: str
    #: The open and locked mark; None if another scheduler was first.
    fd: int | None

    def close(self) -> None:
        """Close our descriptor; the lock stays with other holders of it."""
        if self.fd is not None:
            os.close(self.fd)


@dataclass(frozen=True)
class Marks:
    """The marks of one class of tasks, as one run of the scheduler sets and reads them."""

    task: str
    run: str

    def is_done(self, folder: str) -> bool:
        """Return whether to skip it: it succeeded, it is being run, or this run has already tried it."""
        if not os.path.exists(folder):
            return False
        fd = self._open(folder)
        if fd is None:
            return True
        try:
            return not _lock(fd) or self._is_own(fd)
        finally:
            os.close(fd)

    def claim(self, folder: str, is_forced: bool) -> Claim | None:
        """Make the folder, or take over what was left unfinished; None if there is nothing to do."""
        folder = os.path.normpath(folder)
        if not os.path.exists(folder):
            made = self._make(folder)
            if made is not None:
                return Claim(folder, made)
        if is_forced:
            return Claim(folder, self._mark(folder))
        fd = self._open(folder)
        if fd is None:
            return None
        if not _lock(fd) or self._is_own(fd) or not self._is_there(fd, folder):
            os.close(fd)
            return None
        self._write(fd)
        return Claim(folder, fd)

    def succeeded(self, folder: str) -> None:
        """Let the folder count as done."""
        # The task may have removed it itself, with the folder perhaps.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(folder))

    def failed(self, folder: str, why: str) -> None:
        """See to it that the instance runs again next time, also if its task has removed the mark."""
        if os.path.isdir(folder):
            fd = os.open(self._path(folder), OPENED | os.O_CREAT, 0o666)
            self._write(fd, why)
            os.close(fd)

    def _path(self, folder: str) -> str:
        return os.path.join(folder, UNFINISHED + self.task)

    def _make(self, folder: str) -> int | None:
        """Make the folder and a locked mark in it, both at once: a folder without one would count as done."""
        parent = os.path.dirname(folder) or "."
        os.makedirs(parent, exist_ok=True)
        new = os.path.join(parent, f".new-{self.run}-{os.urandom(4).hex()}")
        os.mkdir(new)
        fd = self._mark(new)
        try:
            os.rename(new, folder)
        except OSError as error:
            if fd is not None:
                os.close(fd)
            os.unlink(self._path(new))
            os.rmdir(new)
            if os.path.exists(folder):
                # Another process was faster.
                return None
            raise OSError(error.errno, error.strerror, folder) from error
        return fd

    def _mark(self, folder: str) -> int | None:
        """Mark a folder regardless of its content; None if it is in use."""
        fd = os.open(self._path(folder), OPENED | os.O_CREAT, 0o666)
        if not _lock(fd):
            os.close(fd)
            return None
        self._write(fd)
        return fd

    def _open(self, folder: str) -> int | None:
        try:
            return os.open(self._path(folder), OPENED)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # Not ours to write: as good as done, as it always was.
            return None

    def _is_own(self, fd: int) -> bool:
        return os.pread(fd, RUN_BYTES, 0).partition(b"\n")[0] == self.run.encode()

    def _is_there(self, fd: int, folder: str) -> bool:
        """Return whether the locked file is still the mark: its previous holder may have succeeded."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path(folder)))
        except FileNotFoundError:
            return False

    def _write(self, fd: int, why: str = "") -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{self.run}\n{why}{EXPLANATION}".encode(errors="backslashreplace"), 0)


def _lock(fd: int) -> bool:
    """Lock a mark; False if it is locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
