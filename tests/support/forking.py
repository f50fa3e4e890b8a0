"""Processes of dibs for the price of a fork, made by the one warm interpreter of this test run (`warm`).

A process is identified by a pidfd, and its parent reports its end, so nothing here can signal another process or
wait for one that is gone. If the interpreter itself dies, the next request reports why.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import warm
from waits import PATIENCE_S

#: Capacity of a pipe, for a user without privileges.
PIPE_BYTES = 1 << 20


class Forked:
    """One forked process, used like a `subprocess.Popen`."""

    def __init__(self, warm_one: Warm, report: socket.socket) -> None:
        self._warm = warm_one
        self._report = report
        self.returncode: int | None = None
        word, fds, _, _ = socket.recv_fds(report, 512, 1)
        if not fds:
            raise RuntimeError(f"nothing was forked: {word[warm.BORN.size :].decode() or warm_one.cause()}")
        (self.pid,) = warm.BORN.unpack(word)
        (self._pidfd,) = fds

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._hear(0)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Return the exit code when it has ended."""
        code = self._hear(timeout)
        if code is None:
            raise AssertionError(f"process {self.pid} did not end within {timeout} s")
        return code

    def _hear(self, timeout: float) -> int | None:
        if self.returncode is None:
            self._report.settimeout(timeout)
            try:
                word = self._report.recv(warm.DIED.size)
            except (TimeoutError, BlockingIOError):
                return None
            if not word:
                raise RuntimeError(f"nobody can tell how process {self.pid} ended: {self._warm.cause()}")
            (self.returncode,) = warm.DIED.unpack(word)
            self._report.close()
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class Warm:
    """The warm interpreter, as its client sees it."""

    def __init__(self) -> None:
        self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = os.memfd_create("said")
        with theirs:
            command = [sys.executable, "-P", warm.__file__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                env=_environ(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                # Ctrl-C at the test run is for the test run.
                start_new_session=True,
            )

    def ask(self, request: Mapping[str, object], ends: Sequence[int]) -> Forked:
        """Return the process that a request describes."""
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        text = os.memfd_create("request")
        try:
            with open(text, "wb", closefd=False) as file:
                file.write(json.dumps(request).encode())
            os.lseek(text, 0, os.SEEK_SET)
            socket.send_fds(self._asking, [b"!"], [text, theirs.fileno(), *ends])
        except (BrokenPipeError, ConnectionResetError):
            report.close()
            raise RuntimeError(self.cause()) from None
        finally:
            os.close(text)
            theirs.close()
        return Forked(self, report)

    def cause(self) -> str:
        """Return why it does not answer. The next request gets a new interpreter."""
        _the_warm_one.cache_clear()
        self._asking.close()
        code = self._process.wait(PATIENCE_S)
        said = os.pread(self._said, 1 << 20, 0).decode(errors="replace")
        return f"the warm interpreter ended with {code} and said: {said!r}"

    def close(self) -> None:
        """End it, and with it all that it has forked."""
        self._asking.close()
        self._process.wait(PATIENCE_S)
        os.close(self._said)


def _environ() -> dict[str, str]:
    """Return the environment of the warm interpreter: nothing of the test that needs it first.

    With that test's DIBS_HOME it would count as one of its processes, and be ended with them.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("DIBS_")}
    # Crash points are active only where one is named when the module is imported.
    return own | {"DIBS_CRASH": "nowhere"}


@functools.cache
def _the_warm_one() -> Warm:
    own = Warm()
    atexit.register(own.close)
    return own


def start(
    program: str | None,
    words: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    ends: Sequence[int],
    *,
    has_session: bool = True,
    terminal: int | None = None,
) -> Forked:
    """Start one of `warm.PROGRAMS`, or the named module, with these descriptors as 0, 1, 2 and so on.

    Of those, `terminal` becomes its controlling terminal.
    """
    read_at_start = {name for name in environ if name.startswith("PYTHON") and environ[name] != os.environ.get(name)}
    assert not read_at_start or program is None, f"needs a real interpreter: {sorted(read_at_start)}"
    request = {
        "program": program,
        "words": [str(word) for word in words],
        "environ": dict(environ),
        "folder": str(folder),
        "umask": _umask(),
        "has_session": has_session,
        "terminal": terminal,
    }
    return _the_warm_one().ask(request, ends)


def _umask() -> int:
    found = re.search(r"^Umask:\s+(\d+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1], 8)


def run(
    program: str | None, words: Sequence[str], environ: Mapping[str, str], folder: Path, *, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one of `warm.PROGRAMS`, or the named module, to its end, piped."""
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    ends = [filled(stdin), out_write, err_write]
    try:
        process = start(program, words, environ, folder, ends)
    finally:
        for end in ends:
            os.close(end)
    # As subprocess reads text.
    out, err = (text.replace("\r\n", "\n").replace("\r", "\n") for text in read_all([out_read, err_read]))
    return subprocess.CompletedProcess([program or "", *words], process.wait(), out, err)


def filled(text: str) -> int:
    """Return a pipe that delivers this text."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    data = text.encode()
    assert len(data) <= PIPE_BYTES
    os.write(write, data)
    os.close(write)
    return read


def read_all(fds: Sequence[int]) -> tuple[str, ...]:
    """Read everything until the last writer is gone, and close the descriptors."""
    got = {fd: bytearray() for fd in fds}
    deadline = time.monotonic() + PATIENCE_S
    with selectors.DefaultSelector() as waiting:
        for fd in fds:
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(
                    f"did not end within {PATIENCE_S} s; so far: {[bytes(text) for text in got.values()]}"
                )
            for key, _ in ready:
                try:
                    data = os.read(key.fd, 65536)
                except OSError:
                    # This is how a terminal ends whose last process is gone.
                    data = b""
                got[key.fd] += data
                if not data:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
    return tuple(bytes(text).decode(errors="surrogateescape") for text in got.values())
