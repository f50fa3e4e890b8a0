"""Functions that executors call in tests; a worker imports them by name."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Odd(Exception):
    """A custom exception."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} is odd")
        self.number = number

    def __reduce__(self) -> tuple[type[Odd], tuple[int]]:
        return Odd, (self.number,)


class TwoWords(Exception):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def square(x: int) -> int:
    return x * x


def add(x: int, y: int) -> int:
    return x + y


def told(*args: object, **kwargs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    return args, kwargs


def even(x: int) -> int:
    if x % 2:
        raise Odd(x)
    return x


def complain() -> None:
    raise TwoWords("no", "way")


def leave(how: str) -> None:
    """Exit in the middle of the call."""
    if how == "exit":
        sys.exit(3)
    if how == "gone":
        os._exit(0)
    os.kill(os.getpid(), 9)


def give_lock() -> object:
    return threading.Lock()


def size(text: bytes) -> int:
    return len(text)


def grow(count: int) -> bytes:
    return b"x" * count


def surroundings() -> dict[str, object]:
    """Return the environment of a call."""
    return {
        "cwd": os.getcwd(),
        "path": list(sys.path),
        "python": sys.executable,
        "argv": sys.argv[1:],
        "environ": dict(os.environ),
        "pid": os.getpid(),
        "modules": sorted(sys.modules),
    }


def note(path: str, word: object) -> None:
    """Record that a call ran, and in which attempt."""
    with open(path, "a") as file:
        file.write(f"{word} {os.environ.get('DIBS_ATTEMPT', '1')} {os.getpid()}\n")


def noted(path: str) -> list[list[str]]:
    """Return the recorded lines."""
    return [line.split() for line in Path(path).read_text().splitlines()] if os.path.exists(path) else []


@contextmanager
def closed(gate: str) -> Iterator[None]:
    """Keep a gate closed inside the block."""
    fd = os.open(gate, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def pass_gate(gate: str, value: object = None, log: str = "") -> object:
    """Wait until a gate is open."""
    if log:
        note(log, value)
    fd = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)
    return value


def noting(path: str, word: object) -> object:
    note(path, word)
    return word


def only_at_second(value: object) -> object:
    """Fail in the first attempt."""
    if os.environ["DIBS_ATTEMPT"] == "1":
        raise OSError("not yet")
    return value


def nested(x: int) -> int:
    """Make another call from inside a job."""
    import dibs

    with dibs.Executor(gpus=0) as pool:
        return pool.submit(square, x).result()


def step(number: int, log: str, gate: str) -> int:
    """Record a line; the first three calls wait at a gate in their first attempt."""
    note(log, number)
    if number < 3 and os.environ["DIBS_ATTEMPT"] == "1":
        pass_gate(gate)
    return number * number


def variable(name: str) -> str:
    return os.environ[name]


def fail(word: str) -> None:
    raise ValueError(word)


def sum_of_squares(count: int) -> int:
    """Use joblib inside a job."""
    from joblib import Parallel, delayed

    return sum(Parallel(n_jobs=2)(delayed(square)(x) for x in range(count)))
