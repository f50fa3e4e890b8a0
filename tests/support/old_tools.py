"""`schedule` and `sch` as users start them, with separate leases and a separate state file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forking
from bench import PATIENCE_S, Bench, end, wait_for
from dibs.leases import device_lease, holders
from dibs.system import processes

#: What differs from run to run: pids and times.
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
PID = re.compile(r"(?<=PID: )\d+")


class OldTools:
    """One machine with the two old commands."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.folder = bench.folder / "work"
        self.folder.mkdir()
        self.path = bench.folder / "gpu_scheduler_info"
        self.environ = bench.environ | {"DIBS_COMPAT_STATE": str(self.path)}
        self.place = device_lease.Folder(str(bench.leases))

    def command(self, tool: str, *words: str) -> list[str]:
        """Return the command for a command line."""
        return [str(Path(sys.executable).parent / tool), *words]

    def run(self, tool: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end."""
        return forking.run(tool, words, self.environ | environ, self.folder)

    @contextmanager
    def started(self, tool: str, *words: str, **how: Any) -> Iterator[Call]:
        """Start a command line; everything left of it is killed at the end."""
        call = Call(self, self.command(tool, *words), how)
        try:
            yield call
        finally:
            call.clear()

    def set_aside(self, avail: list[bool]) -> None:
        """Write a state file as the old tool leaves it."""
        empty: list[None] = [None] * len(avail)
        names = ("gpu_name", "task", "task_pid", "task_start", "user")
        self.path.write_text(json.dumps({"avail": avail, **dict.fromkeys(names, empty)}))

    def state(self) -> dict[str, list[Any]]:
        """Return the content of the state file."""
        return dict(json.loads(self.path.read_text()))

    def held(self) -> set[str]:
        """Return the pretend GPUs that are held."""
        return holders.held(self.place, [f"FAKE-{number}" for number in range(4)])

    def file(self, name: str) -> str:
        """Return the text of a file once it exists and has whole lines."""
        path = self.folder / name
        return wait_for(lambda: path.read_text() if path.exists() else "", lambda text: text.endswith("\n"))

    def until_waiting(self, count: int = 1) -> None:
        """Wait until the given number of tickets is in the line."""
        from dibs.leases import tickets

        wait_for(lambda: len(tickets.line(self.place)), lambda seen: seen == count)


class Call:
    """One running command line."""

    def __init__(self, tools: OldTools, command: list[str], how: dict[str, Any]) -> None:
        self._out = tools.folder.parent / f"out-{os.urandom(4).hex()}"
        self._err = tools.folder.parent / f"err-{os.urandom(4).hex()}"
        # A mark by which its leftovers are found.
        self._mark = f"OLD_TOOL_CALL={os.urandom(8).hex()}"
        name, _, value = self._mark.partition("=")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                command,
                env=tools.environ | {name: value},
                cwd=tools.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                **how,
            )

    @property
    def stdout(self) -> str:
        """Return its output so far."""
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        """Return its error output so far."""
        return self._err.read_text()

    def until(self, text: str) -> None:
        """Wait until it has printed this."""
        wait_for(lambda: self.stdout, lambda seen: text in seen)

    def task_pid(self) -> int:
        """Return the pid of its task, once that has started."""
        self.until("TASK PGID")
        found = re.search(r"TASK PID: (\d+)", self.stdout)
        assert found is not None
        return int(found[1])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the scheduler alone."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait until it ends; return its exit code, negative for a signal."""
        return self.process.wait(PATIENCE_S)

    def living(self) -> list[processes.Proc]:
        """Return the live processes of the scheduler and its task."""
        return list(processes.marked([self._mark.encode()]))

    def clear(self) -> None:
        """Kill what is left."""
        end(self.living())
        self.process.wait(PATIENCE_S)


def is_watching(pid: int) -> bool:
    """Return whether a call waits for a change of the state file."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        # Descriptors come and go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(fd) == "anon_inode:inotify":
                return True
    return False


def normal(text: str, prog: str) -> str:
    """Return output without the parts that differ from run to run; line breaks in the usage do not matter."""
    text = MOMENT.sub("<TIME>", PID.sub("<N>", re.sub(r"PGID: \d+", "PGID: <N>", text)))
    text = re.sub(rf"^{prog}: ", "<PROG>: ", text.replace(f"usage: {prog} ", "usage: <PROG> "), flags=re.MULTILINE)
    head, usage, rest = text.partition("usage: ")
    lines = rest.split("\n")
    while usage and len(lines) > 1 and lines[1].startswith("  "):
        lines[0:2] = [f"{lines[0]} {lines[1].strip()}"]
    return head + usage + "\n".join(lines)
