"""The daemon's side of the launcher: asks for runners, hears of them, starts it again when it died.

All of it happens in the core thread.
"""

from __future__ import annotations

import array
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dibs import places

#: Puts only our own package in reach of the bare interpreter, at the end, and uses its cached byte code.
BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from dibs import {module}; {module}.main()"
#: Seconds between two launchers: one that dies at once must not be started in a loop.
PAUSE_S = 1.0

#: What to do with the pidfd of a runner; None: the launcher died before it told of one.
Then = Callable[[int | None], None]


def boot(module: str, *words: str) -> list[str]:
    """Return the command line of a lean process of ours."""
    root = str(Path(places.__file__).resolve().parent.parent)
    return [sys.executable, "-I", "-S", "-c", BOOT.format(module=module), root, *words]


class Launching:
    """One launcher at a time. `watch` calls back once when its socket has something to tell."""

    def __init__(self, log: str, watch: Callable[[int, Callable[[], None]], None]) -> None:
        self.log = log
        self._watch = watch
        self._socket: socket.socket | None = None
        self._pending: dict[int, Then] = {}
        self._next_tag = 0
        self._may_start_at = 0.0
        self._pid = 0

    def ask(self, folder: str, start: int, then: Then) -> bool:
        """Ask for a runner; False if there is no launcher that could be asked."""
        sock = self._socket or self._begin()
        if sock is None:
            return False
        tag = self._next_tag = self._next_tag + 1
        try:
            sock.send(b"\0".join((str(tag).encode(), os.fsencode(folder), str(start).encode())))
        except OSError:
            # Dead, or so far behind that its socket is full: this one start goes the slow way.
            return False
        self._pending[tag] = then
        return True

    def _begin(self) -> socket.socket | None:
        """Start a launcher unless one just died."""
        now = time.monotonic()
        if now < self._may_start_at:
            return None
        self._may_start_at = now + PAUSE_S
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                self._pid = spawn(boot("launcher", "3"), self.log, [(os.POSIX_SPAWN_DUP2, its.fileno(), 3)])
        except OSError:
            # No process to be had: each start then tries for itself, and says so if it cannot either.
            ours.close()
            return None
        ours.setblocking(False)
        self._socket = ours
        self._watch(ours.fileno(), lambda: self._hear(ours))
        return ours

    def _hear(self, sock: socket.socket) -> None:
        """Pass on every answer that is there, and wait for the next."""
        while True:
            try:
                tag, pidfd = _receive(sock)
            except BlockingIOError:
                self._watch(sock.fileno(), lambda: self._hear(sock))
                return
            if tag is None:
                self._gone(sock)
                return
            self._pending.pop(tag)(pidfd)

    def _gone(self, sock: socket.socket) -> None:
        """The launcher died: whoever waits for a runner has to look at the files."""
        lost, self._pending = self._pending, {}
        self._socket = None
        sock.close()
        self._collect(self._pid)
        for then in lost.values():
            then(None)

    def _collect(self, pid: int) -> None:
        """Collect a launcher once it is quite dead; it closed its socket, so that is a matter of moments."""
        pidfd = os.pidfd_open(pid)

        def ended() -> None:
            os.waitpid(pid, os.WNOHANG)
            os.close(pidfd)

        self._watch(pidfd, ended)

    def close(self) -> None:
        """Let the launcher go; the runners stay."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _receive(sock: socket.socket) -> tuple[int | None, int | None]:
    """Return tag and pidfd of an answer; None as tag when the other side is gone."""
    try:
        data, ancillary, _, _ = sock.recvmsg(64, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None, None
    fds = array.array("i", b"".join(body for _, _, body in ancillary))
    return (int(data), fds[0] if fds else None) if data else (None, None)


def spawn(command: list[str], log: str, actions: Sequence[tuple[int, int, int]] = ()) -> int:
    """Start a lean process in its own session, its errors in `log`; return its pid."""
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
