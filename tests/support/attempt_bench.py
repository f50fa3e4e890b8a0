"""A bench for attempts: a folder, specs with only what matters, real runners, and waiting with a deadline."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dibs.runner import attempts, records
from dibs.system import processes

SOURCE = Path(attempts.__file__).parent
ROOT = str(SOURCE.parents[1])
RUNNER = f"import sys; sys.path.append({ROOT!r}); from dibs.runner import main as runner; runner.main()"
EXAMINER = f"import sys; sys.path.append({ROOT!r}); from dibs.runner import attempts; attempts.examine(sys.argv[1], 1)"

#: Seconds after which a condition that should come true is a failure. Long: the machine may be busy.
DEADLINE_S = 60.0
#: The signals a daemon has blocked when it starts a runner.
BLOCKED = (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)

T = TypeVar("T")


def until(what: Callable[[], T], expected: str = "something") -> T:
    """Wait until `what()` is true, and return it."""
    end = time.monotonic() + DEADLINE_S
    while not (seen := what()):
        assert time.monotonic() < end, f"waited {DEADLINE_S} s for {expected}, last saw {seen!r}"
        time.sleep(0.003)
    return seen


def crash_points(*modules: str) -> list[str]:
    """Return the names of all crash points in these modules, so that a new one is tested automatically."""
    text = "".join((SOURCE / f"{module}.py").read_text() for module in modules)
    return sorted(set(re.findall(r'crash_point\("([^"]+)"\)', text)))


def give(sock: socket.socket, packed: bytes) -> None:
    """Send a spec as the daemon does."""
    spec = os.memfd_create("spec")
    os.write(spec, packed)
    socket.send_fds(sock, [b"run"], [spec])
    os.close(spec)


class Bench:
    """One attempt in a separate folder, everything in it marked, and everything of it ended at the end."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp = tmp_path
        self.folder = str(tmp_path / "attempt")
        os.mkdir(self.folder, 0o700)
        self.specs: dict[int, bytes] = {}
        self.marker = f"DIBS_BENCH={tmp_path}".encode()
        self.started: list[subprocess.Popen[bytes]] = []

    # -- specs and runners

    def spec(self, command: str | tuple[bytes, ...], start: int = 1, **more: object) -> records.Spec:
        """Prepare a spec: text is a shell script, a tuple is argv."""
        argv = (b"/bin/sh", b"-c", command.encode()) if isinstance(command, str) else command
        path = os.environ["PATH"].encode()
        values = {
            "job": 12,
            "attempt": 1,
            "start": start,
            "folder": self.folder,
            "argv": argv,
            "env": (b"PATH=" + path, b"HOME=/", self.marker),
            "cwd": os.fsencode(self.tmp),
            "output": os.fsencode(self.tmp / "log"),
            **more,
        }
        spec = records.Spec(**values)  # type: ignore[arg-type]
        self.specs[start] = records.pack(spec)
        return spec

    def begin(self, start: int = 1, **environment: str) -> subprocess.Popen[bytes]:
        """Start a runner for one start only, as a daemon that dies right after, and do not wait."""
        with self.served(start) as its:
            return self.launch(RUNNER, str(its.fileno()), its=its, **environment)

    def served(self, *starts: int) -> socket.socket:
        """Return the socket of a runner, with its starts already queued."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            for start in starts or (1,):
                give(ours, self.specs[start])
        return its

    @contextlib.contextmanager
    def runner(self) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
        """Start a runner that waits for starts; yield it and its socket."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with its:
                process = self.launch(RUNNER, str(its.fileno()), its=its)
            ours.settimeout(DEADLINE_S)
            yield process, ours
        assert self.finish(process) == 0

    def run_from(self, shell: str, served: socket.socket | None = None) -> None:
        """Run one start to its end from a piece of shell, in which "$@" is the runner."""
        with served or self.served() as its:
            runner = [sys.executable, "-I", "-S", "-c", RUNNER, str(its.fileno())]
            subprocess.run(["sh", "-c", shell, "sh", *runner], check=True, pass_fds=[its.fileno()])

    def launch(
        self, program: str, *words: str, its: socket.socket | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a program in `python -I -S` as the daemon does, without waiting."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
        with open(self.tmp / "runner.stderr", "ab") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", program, *words],
                env={"PATH": os.environ["PATH"], **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                start_new_session=True,
                pass_fds=[its.fileno()] if its else [],
            )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.started.append(process)
        return process

    def run(self, command: str | tuple[bytes, ...], **more: object) -> records.Final:
        """Run one command to its end and return the result."""
        self.spec(command, **more)
        self.finish(self.begin())
        verdict = self.examine()
        assert isinstance(verdict, attempts.Ended | attempts.NoLease | attempts.Refused), (verdict, self.complaints())
        return verdict.final

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a runner to end and return its code."""
        return process.wait(DEADLINE_S)

    def order(self, line: str) -> None:
        """Send an order to the newest runner."""
        attempts.append_order(self.folder, 1, line)
        self.started[-1].send_signal(signal.SIGUSR1)

    # -- inspection

    def examine(self, start: int = 1) -> object:
        return attempts.examine(self.folder, start)

    def wait_running(self) -> records.RunningCommand:
        """Wait until the command runs and has printed so."""
        return until(lambda: records.read_running(self.folder, 1), "a running record")

    def wait_for(self, text: str, name: str = "log") -> None:
        """Wait until a file contains a text."""
        until(lambda: text in self.read(name), f"{text!r} in {name}")

    def read(self, name: str = "log") -> str:
        path = self.tmp / name
        return path.read_text() if path.exists() else ""

    def complaints(self) -> str:
        return self.read("runner.stderr")

    def living(self) -> list[processes.Proc]:
        return list(processes.marked([self.marker]))

    def is_over(self) -> bool:
        """Check several times: a respawning process can hide from one check."""
        return not any(self.living() for _ in range(10))

    # -- the end

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait(DEADLINE_S)
        end = time.monotonic() + DEADLINE_S
        while left := self.living():
            assert time.monotonic() < end, f"still there: {processes.names(left)}"
            processes.send_all(left, signal.SIGKILL)
