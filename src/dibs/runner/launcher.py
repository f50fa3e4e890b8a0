"""A small, warm interpreter that forks runners, so that a start costs a fork and not a new interpreter.

A child of the daemon in its own session. It holds no lease and makes no decisions. It ends when the daemon's socket
closes; its runners continue. One request is one packet with the socket that the new runner serves.
"""

from __future__ import annotations

import _socket
import gc
import os
import sys

from dibs.runner import main as runner
from dibs.system import refusals
from dibs.system.crash_points import crash_point
from dibs.system.lean import signal


def main() -> None:
    """Serve the socket whose descriptor is the first argument until it closes."""
    sock = _socket.socket(fileno=int(sys.argv[1]))
    runner.preload()
    # Runners are small and short-lived: without garbage collection their pages stay shared with ours.
    gc.disable()
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    while (asked := _receive(sock)) is not None:
        for served in asked:
            crash_point("launcher:asked")
            _fork(served)
            crash_point("launcher:forked")
            os.close(served)


def _receive(sock: _socket.socket) -> list[int] | None:
    """Return the socket of the next runner, or nothing if we lack a descriptor; None when the daemon is gone."""
    try:
        said, ancillary, _, _ = sock.recvmsg(16, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    return [int.from_bytes(part[2], sys.byteorder) for part in ancillary] if said else None


def _fork(served: int) -> None:
    """Fork the runner of a socket; if the machine refuses, tell the daemon in its place."""
    try:
        pid = os.fork()
    except OSError as error:
        runner.refuse(served, refusals.of_own(error, "new process"))
        return
    if pid == 0:
        _run(served)


def _reap(signum: int, frame: object) -> None:
    """Reap runners that ended; their files hold the results of their commands."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _run(served: int) -> None:
    """Act as a runner and exit without returning to the launcher."""
    code = 1
    try:
        runner.serve(served)
        code = 0
    except BaseException:  # noqa: BLE001 - must not reach the launcher's loop; the files show how far the runner got
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
