"""The process that runs the user's command for one notification, and ends its process tree at the deadline.

It does not depend on the daemon, which may end first. It exits with the command's exit code, or 124 at the deadline.
"""

from __future__ import annotations

import os
import sys
import time

from dibs.errors import TimedOut
from dibs.system import process_tree, processes
from dibs.system.lean import signal

NOT_STARTED = 126


def main() -> None:
    """Run as a process: DEADLINE_S SHELL FOLDER COMMAND, with the facts on stdin."""
    deadline_s, shell, folder, command = sys.argv[1:]
    os._exit(run(float(deadline_s), shell, folder, command))


def run(deadline_s: float, shell: str, folder: str, command: str) -> int:
    """Run the command and wait for its whole tree; end what is left at the deadline. Return the exit code."""
    until = time.monotonic() + deadline_s
    processes.become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        os.chdir(folder)
    except OSError:
        # The job's folder may no longer exist; notify anyway.
        os.chdir("/")
    try:
        pid = os.posix_spawn(shell, [shell, "-c", command], os.environ, setsigmask=())
    except OSError as error:
        print(f"dibs: cannot run {shell}: {error.strerror}", file=sys.stderr, flush=True)
        return NOT_STARTED
    codes: list[int] = []

    def is_gone() -> bool:
        return process_tree.reap(
            lambda ended, status, usage: codes.append(process_tree.exit_code(status)) if ended == pid else None
        )

    while not is_gone():
        if time.monotonic() >= until:
            process_tree.Termination().run(0.0, is_gone, _sleep)
            return TimedOut.exit_code
        _sleep(until)
    return codes[0] if codes else TimedOut.exit_code


def _sleep(until: float) -> None:
    process_tree.wait_for_signal((signal.SIGCHLD,), until)
