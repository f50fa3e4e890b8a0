"""What a foreman is told before the first task, and what it is told of each."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from dataclasses import dataclass

from dibs_compat.gpu_tasks import messages
from dibs_compat.gpu_tasks.sources import Source

#: A fresh interpreter that first gets our own path, then a function of ours with the rest of what it is to know.
BOOT = (
    "import marshal, sys; f = open(int(sys.argv[1]), 'rb'); sys.path[:] = marshal.load(f); "
    "from dibs_compat.gpu_tasks import {module}; {module}.main(f)"
)


@dataclass(frozen=True)
class Place:
    """Where one task at a time can run."""

    name: str
    #: What CUDA is told.
    visible: str
    #: What is leased.
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Order:
    """What is the same for every task of a scheduler."""

    source: Source
    places: tuple[Place, ...]
    cwd: str
    temp_folder: str
    #: Seconds from TERM to KILL.
    grace_s: float


@dataclass(frozen=True)
class Task:
    """What a worker has to know of its own task."""

    place: Place
    #: As the user's code gets it.
    work_dir: str
    #: None: nobody wants to read it.
    log: str | None
    #: A descriptor of the pickled configuration, and those of the leases.
    config: int
    leases: tuple[int, ...]


def fresh(module: str, content: bytes) -> tuple[list[str], int]:
    """Return the command line of a fresh interpreter like ours for `module`.main, and the descriptor it needs."""
    if not sys.executable:
        raise RuntimeError("the interpreter that runs this cannot be found; sys.executable is empty")
    fd = messages.file(marshal.dumps([os.fspath(entry) for entry in sys.path]) + content)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", BOOT.format(module=module), str(fd)], fd
