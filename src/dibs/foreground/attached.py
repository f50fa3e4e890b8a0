"""Being the parent of a command in this terminal: its signals, its time, its end.

The command shares our process group, so the terminal's own keys (Ctrl-C, Ctrl-\\, Ctrl-Z) reach it without us. What
somebody sends to us alone is passed on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable

from dibs.system import processes

#: What wakes us; blocked, so that nothing comes between a look and the next wait.
WAKE = frozenset((signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP))
#: Signals that the terminal sends to the command too.
FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)
#: From <asm-generic/siginfo.h>: the kernel itself sent it, as for a key.
SI_KERNEL = 0x80
#: Longest sleep in seconds: a day-long timer is split.
LONGEST_S = 3600.0
#: Seconds between two KILLs, and after which what still lives is given up.
KILL_EVERY_S = 0.05
STUCK_S = 5.0
TIMED_OUT = 124
NEVER = float("inf")


class Attended:
    """A command that runs in this terminal for as long as it may."""

    def __init__(self, start: Callable[[Callable[[], None]], subprocess.Popen[bytes]], is_limited: bool) -> None:
        """Call `start` with what the child must do first; a signal that comes before it is there waits until it is."""
        if is_limited:
            # What forks away from the command must not be able to keep the devices.
            processes.become_subreaper()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, WAKE)
        try:
            self._child = start(lambda: _restore(mask))
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        self._code: int | None = None

    def wait(self, limit_s: float | None, grace_s: float, say: Callable[[str], None]) -> int:
        """Return the command's exit code, or 124 once all of it is gone because its time was over."""
        limit_at = NEVER if limit_s is None else time.monotonic() + limit_s
        while not self._has_ended():
            if (now := time.monotonic()) >= limit_at:
                say(f"the time is over: the command gets TERM, and KILL after {grace_s:g} s")
                self._end(now + grace_s)
                return TIMED_OUT
            self._sleep(limit_at)
        assert self._code is not None
        return self._code

    def _has_ended(self) -> bool:
        """Take note of all children that ended; tell whether the command is one of them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return self._code is not None
            if pid == self._child.pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = self._child.returncode = 128 - code if code < 0 else code

    def _end(self, kill_at: float) -> None:
        """End the whole tree: TERM now, KILL from `kill_at` on; what would not die is left to the kernel."""
        # A stopped process sees TERM only when it goes on.
        processes.send_all(self._living(), signal.SIGTERM, signal.SIGCONT)
        while not (self._has_ended() and not self._living()) and (now := time.monotonic()) < kill_at + STUCK_S:
            if now >= kill_at:
                processes.send_all(self._living(), signal.SIGKILL)
            self._sleep(max(kill_at, now + KILL_EVERY_S))

    def _living(self) -> list[processes.Proc]:
        return [proc for proc in processes.descendants(os.getpid()) if not proc.is_dead]

    def _sleep(self, until: float) -> None:
        """Sleep until something happens, and pass on what was sent to us alone."""
        got = signal.sigtimedwait(WAKE, min(LONGEST_S, max(0.0, until - time.monotonic())))
        if got is None or got.si_signo == signal.SIGCHLD:
            return
        if got.si_signo in FROM_KEYS and got.si_code == SI_KERNEL:
            return
        if self._code is None:
            # Not waited for yet, so the pid is still the command's.
            os.kill(self._child.pid, got.si_signo)


def _restore(mask: Iterable[int]) -> None:
    """Give the child the signals that the parent holds back."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
