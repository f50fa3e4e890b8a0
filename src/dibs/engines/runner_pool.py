"""The daemon's runners: idle ones are reused; the launcher forks new ones, or they are started without it.

Each runner has its own socket to the daemon, on which it receives one start after the other and reports its end.
All of this happens in the queue thread.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dibs.runner import main as runner
from dibs.runner import records
from dibs.runner.records import Final
from dibs.system import open_files, paths, processes, refusals
from dibs.system.lean import closing_fd
from dibs.system.refusals import Refusal

log = logging.getLogger("dibs.engines.runner_pool")

#: Adds only our own package to the path of the bare interpreter, at the end, and uses its cached byte code.
BOOT = "import sys; sys.path.append(sys.argv.pop(1)); {restore}from dibs.runner import {module}; {module}.main()"
#: Commands get the limit on open files that the daemon was started with.
RESTORE = "from dibs.system import open_files; open_files.restore({soft}); "
#: Seconds between two starts of a launcher: one that dies at once must not be started in a loop.
PAUSE_S = 1.0
#: Seconds for which an idle runner is kept for the next start.
IDLE_S = 5.0

#: The descriptor of the socket in the processes we start.
ITS_FD = 3

#: Called once when a start is over, or will never begin: whether its runner died silently, why it was refused, or how
#: the runner says that it ended.
Then = Callable[[bool, Refusal | None, Final | None], None]
#: Bytes of the longest message of a runner.
LONGEST_BYTES = len(runner.OVER) + records.SIZE


def boot(module: str, *words: str) -> list[str]:
    """Return the command line that runs a module of `runner` as a lean process."""
    root = str(Path(paths.__file__).resolve().parents[2])
    soft = open_files.original()
    restore = "" if soft is None else RESTORE.format(soft=soft)
    return [sys.executable, "-I", "-S", "-c", BOOT.format(module=module, restore=restore), root, *words]


class Runners:
    """`watch` calls a function once, when a descriptor becomes readable; `later` after a delay in seconds."""

    def __init__(
        self,
        log: str,
        watch: Callable[[int, Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self.log = log
        self._watch = watch
        self._later = later
        self._launcher: socket.socket | None = None
        self._launcher_pid = 0
        self._was_stopped = False
        self._may_launch_at = 0.0
        #: Idle runners and since when, the longest idle first.
        self._idle: list[tuple[float, socket.socket]] = []

    def start(self, packed: bytes, then: Then) -> None:
        """Have a runner carry out a start; call `then` when it is over. Raise `Undelivered` if no runner has it."""
        try:
            sock = self._give(packed)
        except OSError as error:
            raise Undelivered(Refusal(refusals.QUEUE, refusals.describe(error))) from error
        self._watch(sock.fileno(), lambda: self._heard(sock, then))

    def _give(self, packed: bytes) -> socket.socket:
        with closing_fd(os.memfd_create("dibs-spec", os.MFD_CLOEXEC)) as spec:
            _write(spec, packed)
            while self._idle:
                _, sock = self._idle.pop()
                try:
                    socket.send_fds(sock, [b"run"], [spec])
                    return sock
                except OSError:
                    # It died while idle.
                    sock.close()
            return self._make(spec)

    def _make(self, spec: int) -> socket.socket:
        """Start a runner whose first spec is already in its socket."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            try:
                ours.setblocking(False)
                socket.send_fds(ours, [b"run"], [spec])
                if not self._fork(its.fileno()):
                    self._collect(spawn(boot("main", str(ITS_FD)), self.log, its.fileno()))
            except BaseException:
                ours.close()
                raise
        return ours

    def _heard(self, sock: socket.socket, then: Then) -> None:
        """Keep a runner that has finished its start, or drop one that died: then the files say how the start ended."""
        said, refusal, final = b"", None, None
        try:
            said = sock.recv(LONGEST_BYTES)
            refusal = refusals.unpack(said)
        except ConnectionResetError:
            # The kernel says so if the other end is closed before everything was read: nobody has this start.
            refusal = Refusal(refusals.QUEUE, self._unread())
        except OSError as error:
            log.error("a runner's socket: %s", error)
        is_over = said.startswith(runner.OVER)
        if is_over:
            final = records.read_final_record(said[len(runner.OVER) :])
            if not self._idle:
                self._later(IDLE_S, self._trim)
            self._idle.append((time.monotonic(), sock))
        else:
            sock.close()
        then(not is_over and refusal is None, refusal, final)

    def _unread(self) -> str:
        if self._was_stopped:
            return "the launcher of runners was stopped (SIGSTOP), and is replaced"
        return f"a runner ended before it received its start; see {self.log}"

    def _trim(self) -> None:
        """Release runners that were idle for too long."""
        now = time.monotonic()
        while self._idle and self._idle[0][0] <= now - IDLE_S:
            self._idle.pop(0)[1].close()
        if self._idle:
            self._later(self._idle[0][0] + IDLE_S - now, self._trim)

    # -- the launcher

    def _fork(self, its: int) -> bool:
        """Ask the launcher for a runner; False if that is not possible."""
        sock = self._launcher or self._launch()
        if sock is None:
            return False
        try:
            socket.send_fds(sock, [b"fork"], [its])
        except OSError:
            # It is dead, or so far behind that its socket is full: start this runner the slow way.
            return False
        return True

    def _launch(self) -> socket.socket | None:
        """Start a launcher, unless one was started just before."""
        now = time.monotonic()
        if now < self._may_launch_at:
            return None
        self._may_launch_at = now + PAUSE_S
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                pid = spawn(boot("launcher", str(ITS_FD)), self.log, its.fileno())
            self._collect(pid, self._launcher_died)
        except OSError:
            # No process can be created now: each start then tries itself, and reports its own failure.
            ours.close()
            return None
        ours.setblocking(False)
        self._launcher, self._launcher_pid, self._was_stopped = ours, pid, False
        return ours

    def replace_stopped_launcher(self) -> None:
        """Kill a launcher that was stopped: it would keep its starts forever. They then count as refused."""
        found = processes.look(self._launcher_pid) if self._launcher is not None else None
        if found is not None and found.is_stopped:
            log.error("the launcher (pid %s) was stopped; it is replaced", found.pid)
            self._was_stopped = True
            # Our own child, not reaped yet: the pid cannot be another process.
            os.kill(found.pid, signal.SIGKILL)

    def _launcher_died(self) -> None:
        """Drop the launcher. A runner that it did not fork closes its socket, and the files of the start decide."""
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    def _collect(self, pid: int, then: Callable[[], None] | None = None) -> None:
        """Reap our child when it ends, so that it does not remain a zombie; without a descriptor for that, end it."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # Otherwise it would carry out a start that counts as undelivered.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

        def ended() -> None:
            os.waitpid(pid, os.WNOHANG)
            os.close(pidfd)
            if then is not None:
                then()

        self._watch(pidfd, ended)

    def close(self) -> None:
        """Release the launcher and the idle runners; busy runners stay."""
        self._launcher_died()
        for _, sock in self._idle:
            sock.close()
        self._idle.clear()


class Undelivered(Exception):
    """No process got the start, so its command never runs."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.why)
        self.refusal = refusal


def _write(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def spawn(command: list[str], log: str, its: int | None = None) -> int:
    """Start a lean process in its own session, with its errors in `log` and optionally a socket; return its pid."""
    actions: list[tuple[int, int, int]] = [] if its is None else [(os.POSIX_SPAWN_DUP2, its, ITS_FD)]
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
            *actions,
        ],
        setsid=True,
    )
