"""`dibs.lease` on a Python older than 3.11: a child process, `dibs lease`, takes the GPUs for this one.

The child's command waits for the end of its input, a pipe that this process keeps open. So the GPUs are released when
this process releases them or ends in any way; children that inherit the pipe keep them, as they keep a lease.
The interpreter is the one that dibs itself runs with: `DIBS_PYTHON` inside a job, else the `dibs` on the search path.

Python 3.9.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

from dibs import errors
from dibs.errors import Conflict, DibsError, MachineError, TimedOut, UserError
from dibs.model.environment_names import DEVICE_NAMES
from dibs.python_api import process_devices

if TYPE_CHECKING:
    from typing import Self

#: The keywords of a lease, and the options that they are.
KEYWORDS = ("gpus", "gpu_ids", "prefer", "gpu_type", "vram", "ignore_foreign", "visible", "time")
OPTIONS = {name: "--" + name.replace("_", "-") for name in KEYWORDS}
#: Prints the variables that choose the GPUs and an empty line, then waits for the end of its input.
HOLD = f"env | grep -E '^({'|'.join(('DIBS_GPU_INDICES', 'CUDA_DEVICE_ORDER', *DEVICE_NAMES))})='; echo; exec cat"
#: Seconds until a child that was asked to stop is killed.
STOP_FOR_S = 10.0
#: Seconds within which a child ends after the message of an error.
LAST_WORDS_FOR_S = 0.5


class lease(process_devices.LeaseContext):
    """GPUs held by this process: a context manager (also `async with`), a decorator, or `acquire` and `release`.

    As in newer Pythons; `docs/python.md` describes it.
    """

    def __init__(
        self, gpus: Any = None, *, timeout: float | None = None, blocking: bool = True, **options: Any
    ) -> None:
        self._given: dict[str, Any] = {"gpus": gpus, **options}
        self._words = words(self._given)
        if timeout is not None and not blocking:
            raise UserError("timeout has no effect with blocking=False.", "Remove one of them.")
        self._timeout = timeout
        self._blocking = blocking
        self._child: subprocess.Popen[str] | None = None
        self.ids: list[str] = []
        self.indices: list[int] = []
        self.environ: dict[str, str] = {}

    @property
    def is_held(self) -> bool:
        """Return whether the GPUs are held."""
        return bool(self.environ) and self._child is not None and self._child.poll() is None

    @property
    def fds(self) -> tuple[int, ...]:
        """Return the descriptors: with `subprocess.Popen(..., pass_fds=gpus.fds)` the child holds the GPUs too."""
        return (_pipe(self._child.stdin).fileno(),) if self._child is not None else ()

    def acquire(self) -> Self:
        """Wait for the GPUs, lease them, and make them visible to this process."""
        if self._child is not None:
            raise Conflict(
                f"this lease already holds GPU {', '.join(map(str, self.indices))}.", "Create another lease."
            )
        process_devices.refuse_after_cuda_use()
        no_wait = [] if self._blocking else ["--no-wait"]
        command = [*_program(os.environ), "lease", *self._words, *no_wait, "sh", "-c", HOLD]
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C is for this process.
        self._child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=_environ(), text=True, start_new_session=True
        )
        try:
            self.environ = _told(self._child, self._timeout)
            process_devices.refuse_after_cuda_use()
        except BaseException:
            self.release()
            raise
        lists = [self.environ[name] for name in DEVICE_NAMES if name in self.environ]
        self.ids = lists[0].split(",") if lists else []
        self.indices = [int(number) for number in self.environ["DIBS_GPU_INDICES"].split(",")]
        process_devices.ENVIRONMENT.add(self)
        return self

    def release(self) -> None:
        """Release the GPUs; may be called twice."""
        child, self._child = self._child, None
        if child is None:
            return
        process_devices.ENVIRONMENT.remove(self)
        self.ids, self.indices, self.environ = [], [], {}
        _pipe(child.stdin).close()
        if child.poll() is None:
            # Also while it still waits for GPUs.
            child.terminate()
        try:
            child.wait(STOP_FOR_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        _pipe(child.stdout).close()

    async def __aenter__(self) -> Self:
        """Wait without blocking the event loop; a cancelled task leaves the line."""
        try:
            return await asyncio.to_thread(self.acquire)
        except asyncio.CancelledError:
            self.release()
            raise

    def _copy(self) -> Self:
        return type(self)(timeout=self._timeout, blocking=self._blocking, **self._given)


def words(given: Mapping[str, Any]) -> list[str]:
    """Return keywords as the options of `dibs lease`, which checks their values."""
    found: list[str] = []
    for name, value in given.items():
        if name not in OPTIONS:
            raise UserError(f"there is no option {name}.", f"There are {', '.join(OPTIONS)}.")
        if value is True:
            found.append(OPTIONS[name])
        elif value is not None and value is not False:
            found += [OPTIONS[name], _word(value)]
    return found


def _word(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return ",".join(map(str, value)) if is_list else str(value)


def _program(environ: Mapping[str, str]) -> list[str]:
    """Return the words that start the command line of dibs."""
    if "DIBS_PYTHON" in environ:
        return [environ["DIBS_PYTHON"], "-P", "-m", "dibs"]
    found = shutil.which("dibs")
    if found is None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise MachineError(
            f"dibs.lease on Python {version} needs the command `dibs`, which is not on the search path.",
            "Install dibs with Python 3.11 or newer.",
        )
    return [found]


def _environ() -> dict[str, str]:
    """Return our environment without what is meant for this Python and not for that of dibs."""
    return {name: value for name, value in os.environ.items() if not re.match("PYTHON(PATH|HOME|STARTUP)$", name)}


def _told(child: subprocess.Popen[str], timeout: float | None) -> dict[str, str]:
    """Return the variables that the child prints when it has the GPUs; raise its error if it ends before."""
    said: list[str] = []
    relay = threading.Thread(target=_relay, args=(child, said), daemon=True)
    relay.start()
    stdout = _pipe(child.stdout)
    if not select.select([stdout], [], [], timeout)[0]:
        raise TimedOut(f"the GPUs were not free within {timeout:g} s.")
    found: dict[str, str] = {}
    while (line := stdout.readline()) not in ("", "\n"):
        name, _, found[name] = line.rstrip("\n").partition("=")
    if "DIBS_GPU_INDICES" not in found:
        relay.join()
        raise _error(child.wait(), said[-1] if said else "")
    return found


def _relay(child: subprocess.Popen[str], said: list[str]) -> None:
    """Print why the child waits; its last line names the error it ends with, which is raised instead."""
    with _pipe(child.stderr) as stderr:
        for line in stderr:
            said.append(line)
            try:
                child.wait(LAST_WORDS_FOR_S)
            except subprocess.TimeoutExpired:
                sys.stderr.write(line)


def _error(code: int, line: str) -> DibsError:
    # Some kinds share a code: the more general one is first.
    kinds = {kind.exit_code: kind for kind in reversed([*errors.KINDS.values()])}
    kind = kinds.get(code, MachineError)
    return kind(line.strip().removeprefix("dibs: ") or f"dibs lease ended with code {code}.")


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
