"""Detect that a command ran out of memory: by the end of its output, or by the kernel's count of OOM kills."""

from __future__ import annotations

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
#: Bytes at the end of the output that are searched.
TAIL = 16384


def said(path: bytes) -> bool:
    """Return whether the end of an output reports exhausted memory; False if it cannot be read."""
    return _ends_with(path, LAST_WORDS)


def said_of_device(path: bytes) -> bool:
    """Return whether the end of an output reports exhausted device memory."""
    return _ends_with(path, DEVICE_WORDS)


def _ends_with(path: bytes, words: tuple[bytes, ...]) -> bool:
    tail = tails.read(path, TAIL)
    return any(each in tail for each in words)


def kills() -> int | None:
    """Return how many processes of our cgroup the kernel has OOM-killed; None if it does not report that."""
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(b":", 2)
        if not controllers:
            count = _count(b"/sys/fs/cgroup" + path + b"/memory.events")
        elif b"memory" in controllers.split(b","):
            count = _count(b"/sys/fs/cgroup/memory" + path + b"/memory.oom_control")
        else:
            continue
        if count is not None:
            return count
    return None


def _count(path: bytes) -> int | None:
    try:
        with open(path, "rb") as file:
            words = file.read().split()
    except OSError:
        return None
    return int(words[words.index(b"oom_kill") + 1]) if b"oom_kill" in words else None
