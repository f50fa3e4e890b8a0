"""What the benchmark needs to know of a tool: whether it is here, and how it takes a file of commands."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.sandboxes import BIN, Sandbox

#: Takes a file of commands, one a line. Returns when all are queued, or, for a foreground tool, when all have ended.
Submit = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool, configured as its own documentation says."""

    name: str
    #: Where it comes from, for those who do not have it.
    package: str
    #: What of a queue survives when all its processes are killed.
    keeps: str
    #: Returns its version; None if it is not installed.
    version: Callable[[], str | None]
    #: Makes it ready to run so many jobs at once.
    opened: Callable[[Sandbox, int], AbstractContextManager[Submit]]
    is_server: bool = False
    #: Jobs and rounds it is asked for at most: more than this it refuses, or takes minutes for.
    most_jobs: int = 1_000_000
    most_rounds: int = 1_000
    #: Makes it ready with a busy slot, and gives the command that queues one job behind it.
    held: Callable[[Sandbox], AbstractContextManager[list[str]]] | None = None


def is_here(program: str) -> bool:
    """Tell whether a program is in the virtual environment or on PATH."""
    return shutil.which(program, path=f"{BIN}:{os.environ.get('PATH', os.defpath)}") is not None


def from_debian(program: str, package: str) -> str | None:
    """Return the version of a program that a distribution brings; None if it is not installed."""
    if not is_here(program):
        return None
    words = ["dpkg-query", "-W", "-f", "${Version}", package]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def from_pypi(package: str) -> str | None:
    """Return the version of a package of the virtual environment; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
