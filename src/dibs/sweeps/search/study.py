"""The study of a search from outside: a child process with Optuna that gets results and returns points.

The daemon loads no Optuna, and survives what it does: the child has a deadline, and ends with the process that started
it. After any trouble the next question starts another child.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dibs.errors import Impossible, MachineError
from dibs.sweeps.grid import Point
from dibs.sweeps.values import Value

#: Packages that a sampler needs; `random` needs none.
PACKAGES = {"tpe": ("optuna",), "cmaes": ("optuna", "cmaes"), "random": ()}
INSTALL = "pip install 'dibs[search]'"
#: Seconds for an answer: on a loaded machine loading Optuna alone may take many.
DEADLINE_S = 120.0


class Answer(NamedTuple):
    """Points to run; `is_over`: the space has no more of them."""

    points: list[Point]
    is_over: bool


def require(sampler: str) -> None:
    """Raise if a package that a sampler needs is not installed."""
    # It may have been installed after this process started.
    importlib.invalidate_caches()
    for name in PACKAGES[sampler]:
        if importlib.util.find_spec(name) is None:
            what = "Optuna" if name == "optuna" else f"the package {name}"
            raise Impossible(
                f"--search {sampler} needs {what}, which is not installed.", f"{INSTALL}, or --search random."
            )


class Study:
    """One study. Not for several threads."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        #: The first line for the child: space, sampler, seed, goal, storage, and what the study is made for.
        self.about = dict(about)
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = b""
        #: What the child knows of each point.
        self._told: dict[str, Mapping[str, Any]] = {}

    def ask(self, runs: Sequence[Mapping[str, Any]], want: int) -> Answer:
        """Report the results of runs, and return `want` new points."""
        try:
            answer = self._tell(runs, want)
        except _Ended:
            # Somebody killed it. What it suggested and nobody ran is in its storage.
            answer = self._tell(runs, want)
        return Answer([_point(written) for written in answer["points"]], bool(answer["is_over"]))

    def _tell(self, runs: Sequence[Mapping[str, Any]], want: int) -> dict[str, Any]:
        try:
            child = self._child or self._start()
            news = [run for run in runs if self._told.get(run["point"]) != run]
            answer = self._exchange(child, {"runs": news, "want": want})
        except BaseException:
            self.close()
            raise
        self._told |= {run["point"]: run for run in news}
        return answer

    def close(self) -> None:
        """End the child; the next question starts another one."""
        child, self._child, self._told, self._heard = self._child, None, {}, b""
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-P", "-m", "dibs.sweeps.search.study_child", str(os.getpid())]
        # Unbuffered: a buffer would try to write what is left when it is closed.
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._send(self._child, self.about)
        return self._child

    def _send(self, child: subprocess.Popen[bytes], told: Mapping[str, Any]) -> None:
        assert child.stdin is not None
        left = memoryview(json.dumps(told).encode() + b"\n")
        try:
            while left:
                left = left[child.stdin.write(left) or 0 :]
        except BrokenPipeError:
            raise _ended(child) from None

    def _exchange(self, child: subprocess.Popen[bytes], asked: Mapping[str, Any]) -> dict[str, Any]:
        self._send(child, asked)
        assert child.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        while b"\n" not in self._heard:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise MachineError(f"the search did not answer within {DEADLINE_S:.0f} s.")
            part = os.read(child.stdout.fileno(), 1 << 16)
            if not part:
                raise _ended(child)
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Ended(MachineError):
    """The child has ended."""


def _ended(child: subprocess.Popen[bytes]) -> _Ended:
    return _Ended(f"the process of the search ended ({child.wait()}).", "See daemon.log in the state folder.")


def _point(written: Sequence[Sequence[Any]]) -> Point:
    names = tuple(name for name, _, _ in written)
    return Point(0, names, tuple(Value(data, text) for _, data, text in written))
