"""Run a command in this terminal: forward signals, enforce its time limit, return its exit code.

The command shares our process group, so the terminal's keys (Ctrl-C, Ctrl-\\, Ctrl-Z) reach it directly. Signals sent
to us alone are forwarded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable

from dibs.errors import TimedOut
from dibs.foreground.lease_ends import LeaseClock
from dibs.system import process_tree, processes

#: Signals that wake us. They are blocked, so that no signal is lost between a check and the next wait.
WAKE = frozenset((signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP))
#: Signals that the terminal also sends to the command.
FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)
#: From <asm-generic/siginfo.h>: sent by the kernel, as after a key press.
SI_KERNEL = 0x80


class AttachedCommand:
    """A command that runs in this terminal until it ends or its time limit is reached."""

    def __init__(self, start: Callable[[Callable[[], None]], subprocess.Popen[bytes]], is_limited: bool) -> None:
        """Call `start` with a function that the child must run first; earlier signals stay pending until it does."""
        if is_limited:
            # A process that detaches from the command must not keep the devices.
            processes.become_subreaper()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, WAKE)
        try:
            self._child = start(lambda: _restore(mask))
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        self._code: int | None = None

    def wait(self, clock: LeaseClock, grace_s: float, say: Callable[[str], None]) -> int:
        """Return the exit code of the command, or 124 if its process tree was ended at the time limit."""
        while not self._reap() and self._code is None:
            if clock.is_over(time.monotonic()):
                say(f"time limit reached: the command gets TERM, and KILL after {grace_s:g} s")
                process_tree.Termination().run(grace_s, self._reap, self._sleep)
                return TimedOut.exit_code
            self._sleep(clock.wake_at)
        assert self._code is not None
        return self._code

    def _reap(self) -> bool:
        """Record the exit code if the command has ended; return True if no child is left."""
        return process_tree.reap(self._record)

    def _record(self, pid: int, status: int, usage: object) -> None:
        if pid == self._child.pid:
            self._code = self._child.returncode = process_tree.exit_code(status)

    def _sleep(self, until: float) -> None:
        """Wait for a signal, and forward it if it was sent to us alone."""
        got = process_tree.wait_for_signal(WAKE, until)
        if got is None or got.si_signo == signal.SIGCHLD:
            return
        if got.si_signo in FROM_KEYS and got.si_code == SI_KERNEL:
            return
        if self._code is None:
            # Not reaped yet, so the pid is still the command's.
            os.kill(self._child.pid, got.si_signo)


def _restore(mask: Iterable[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
