"""The process that runs one notice: the user's command, for so long and no longer, with all that it starts.

Nobody waits for it: the daemon that sent it may end meanwhile. Its exit code is the command's, 124 when it had to be
ended. Runs under `python -I -S`, so only modules that cost nothing are imported.
"""

from __future__ import annotations

import os
import sys
import time

from dibs.system import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # `signal` imports enum; the C module below it has all we need and costs nothing.
    import _signal as signal

#: Seconds between two KILLs, and after which what still lives is given up.
KILL_EVERY_S = 0.05
STUCK_S = 5.0
TIMED_OUT = 124
NOT_STARTED = 126


def main() -> None:
    """Run as a process: DEADLINE_S SHELL FOLDER COMMAND, with what is to be told on stdin."""
    deadline_s, shell, folder, command = sys.argv[1:]
    os._exit(run(float(deadline_s), shell, folder, command))


def run(deadline_s: float, shell: str, folder: str, command: str) -> int:
    """Run the command and wait for all of it; at the deadline end what is left. Return the exit code."""
    until = time.monotonic() + deadline_s
    processes.become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        os.chdir(folder)
    except OSError:
        # The job's folder may be gone by now; that is no reason not to tell.
        os.chdir("/")
    try:
        pid = os.posix_spawn(shell, [shell, "-c", command], os.environ, setsigmask=())
    except OSError as error:
        print(f"dibs: cannot run {shell}: {error.strerror}", file=sys.stderr, flush=True)
        return NOT_STARTED
    code: int | None = None
    while True:
        ended, is_all = _reap(pid)
        code = ended if ended is not None else code
        left_s = until - time.monotonic()
        if is_all or left_s <= 0:
            break
        signal.sigtimedwait((signal.SIGCHLD,), left_s)
    if is_all:
        return TIMED_OUT if code is None else code
    _kill(until + STUCK_S)
    return TIMED_OUT


def _reap(pid: int) -> tuple[int | None, bool]:
    """Take note of every child that ended; return the command's code if it did, and whether nobody is left."""
    code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, True
        if ended == 0:
            return code, False
        if ended == pid:
            raw = os.waitstatus_to_exitcode(status)
            code = 128 - raw if raw < 0 else raw


def _kill(until: float) -> None:
    """KILL everything below us until nothing is left; what is killed leaves its children to us."""
    while time.monotonic() < until:
        processes.kill_children()
        processes.send_all(processes.descendants(os.getpid()), signal.SIGKILL)
        if _reap(0)[1]:
            return
        signal.sigtimedwait((signal.SIGCHLD,), KILL_EVERY_S)
