"""The process that forks runners: a warm, small interpreter, so that a start costs a fork and not an interpreter.

A child of the daemon in its own session. It holds no lease, decides nothing, and leaves when the daemon's socket
closes; the runners it made go on. One request is one packet: tag, folder and start. One answer is one packet: the tag,
and the runner's pidfd. Runs under `python -I -S`, so only modules that cost nothing are imported.
"""

from __future__ import annotations

import _socket
import gc
import os
import sys

from dibs import attempts, runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

#: Bytes of a request; a folder's path is much shorter.
LARGEST = 8192


def main() -> None:
    """Serve the socket whose number is the first argument until it closes."""
    sock = _socket.socket(fileno=int(sys.argv[1]))
    runner.preload()
    # Runners are small and short: without a collector their pages stay shared with ours.
    gc.disable()
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    while request := sock.recv(LARGEST):
        tag, folder, start = request.split(b"\0")
        attempts.crash_point("launcher:asked")
        # Until its pidfd is open a runner must not be collected, or the pid could be a stranger's.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            _run(os.fsdecode(folder), int(start))
        attempts.crash_point("launcher:forked")
        pidfd = os.pidfd_open(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        _answer(sock, tag, pidfd)


def _reap(signum: int, frame: object) -> None:
    """Collect runners that ended; what became of their commands is in their files."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _run(folder: str, start: int) -> None:
    """Be a runner, and end without the rest of this program."""
    code = 1
    try:
        runner.become_runner()
        runner.run(folder, start)
        code = 0
    except BaseException:  # noqa: BLE001 - must not go up into the launcher's loop; the files say how far it came
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _answer(sock: _socket.socket, tag: bytes, pidfd: int) -> None:
    try:
        sock.sendmsg([tag], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pidfd.to_bytes(4, sys.byteorder))])
    except OSError:
        # The daemon is gone; the next look at the socket says so.
        pass
    os.close(pidfd)
