"""Detect that a command ran out of memory: by the end of its output, or by the kernel's count of OOM kills."""

from __future__ import annotations

import os

from dibs.logs import tails

#: Framework messages for exhausted device memory.
DEVICE_WORDS = (
    b"CUDA out of memory",
    b"OutOfMemoryError",
    b"CUDA_ERROR_OUT_OF_MEMORY",
    b"cudaErrorMemoryAllocation",
    b"HIP out of memory",
    b"RESOURCE_EXHAUSTED: Out of memory",
    b"CUBLAS_STATUS_ALLOC_FAILED",
)
#: Messages for exhausted memory, of a device or of the machine.
LAST_WORDS = (*DEVICE_WORDS, b"MemoryError", b"std::bad_alloc")
#: Bytes at the end of the output that are searched, and of the file with the count.
TAIL, COUNT_BYTES = 16384, 4096


def said(path: bytes) -> bool:
    """Return whether the end of an output reports exhausted memory; False if it cannot be read."""
    return _ends_with(path, LAST_WORDS)


def said_of_device(path: bytes) -> bool:
    """Return whether the end of an output reports exhausted device memory."""
    return _ends_with(path, DEVICE_WORDS)


def _ends_with(path: bytes, words: tuple[bytes, ...]) -> bool:
    tail = tails.read(path, TAIL)
    return any(each in tail for each in words)


class KillCount:
    """How many processes of our cgroup the kernel has OOM-killed. The file that says so stays open."""

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        self._fd: int | None = None

    def now(self) -> int | None:
        """Return the count; None if the kernel does not report it."""
        if self._fd is None:
            self._fd = _open_count()
        count = None if self._fd is None else _count(self._fd)
        if count is None:
            self.close()
        return count

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _open_count() -> int | None:
    """Return the file with the count of our cgroup; None if there is none."""
    for path in _paths():
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        if _count(fd) is not None:
            return fd
        os.close(fd)
    return None


def _paths() -> list[bytes]:
    try:
        with open("/proc/self/cgroup", "rb", buffering=0) as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    named = [line.split(b":", 2)[1:] for line in lines]
    return [
        b"/sys/fs/cgroup/memory" + path + b"/memory.oom_control"
        if controllers
        else b"/sys/fs/cgroup" + path + b"/memory.events"
        for controllers, path in named
        if not controllers or b"memory" in controllers.split(b",")
    ]


def _count(fd: int) -> int | None:
    try:
        words = os.pread(fd, COUNT_BYTES, 0).split()
    except OSError:
        # The cgroup is gone.
        return None
    return int(words[words.index(b"oom_kill") + 1]) if b"oom_kill" in words else None
