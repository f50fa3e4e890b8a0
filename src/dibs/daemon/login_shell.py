"""Read the environment that a login shell of this user sets up, for jobs that no shell submitted.

The profile may run anything, so it runs in a child in its own session, which is ended after `PATIENCE_S`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from dibs.system import paths

#: Seconds for the profile; a job that was submitted on the page waits as long.
PATIENCE_S = 5.0
#: Where a login shell begins its search for programs; the profile adds the rest.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Shells that take `-lc COMMAND`.
SHELLS = ("bash", "zsh", "ksh", "fish", "dash", "sh")
#: Variables that describe the shell itself.
SHELLS_OWN = (b"_", b"SHLVL", b"PWD", b"OLDPWD")


class Environment(NamedTuple):
    """An environment, and where it comes from."""

    variables: dict[bytes, bytes]
    source: str


def read(environ: Mapping[str, str], patience_s: float = PATIENCE_S) -> Environment:
    """Return the environment of a login shell; if it sets up none in time, a small one from the user database."""
    base = _minimal(environ)
    pairs = (entry.partition(b"=") for entry in _told(base, patience_s).split(b"\0"))
    variables = {name: value for name, equals, value in pairs if name and equals and name not in SHELLS_OWN}
    small = {os.fsencode(name): os.fsencode(value) for name, value in base.items()}
    return Environment(small | variables, "login shell" if variables else "user database")


def _minimal(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what `login` sets before the shell runs; `environ` is the daemon's environment."""
    home, user, shell = str(paths.user_home(environ)), str(os.geteuid()), ""
    # A user of a container may have no entry.
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(os.geteuid())
        user, shell = entry.pw_name, entry.pw_shell
    if os.path.basename(shell) not in SHELLS or not os.access(shell, os.X_OK):
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    lang = environ.get("LANG") or "C.UTF-8"
    return {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell, "PATH": PATH, "LANG": lang}


def _told(base: Mapping[str, str], patience_s: float) -> bytes:
    """Return the variables of a login shell, as `env -0` writes them; empty if it failed or took too long."""
    # A file of its own: the profile may print something, or leave a process that keeps a pipe open.
    with open(os.memfd_create("environment"), "rb") as file:
        fd, null = file.fileno(), subprocess.DEVNULL
        command = [base["SHELL"], "-lc", f"env -0 >/proc/self/fd/{fd}"]
        try:
            child = subprocess.Popen(
                command, stdin=null, stdout=null, stderr=null, env=base, cwd="/", start_new_session=True, pass_fds=[fd]
            )
        except OSError:
            return b""
        return file.read() if _has_succeeded(child, patience_s) else b""


def _has_succeeded(child: subprocess.Popen[bytes], patience_s: float) -> bool:
    pidfd = os.pidfd_open(child.pid)
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    is_over = bool(ended.poll(patience_s * 1000))
    os.close(pidfd)
    # Not yet reaped, so the number is still its own. This also ends what the profile left running.
    os.killpg(child.pid, signal.SIGKILL)
    # A process that waits for a dead disk cannot be reaped now; Popen does it later.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(PATIENCE_S)
    return is_over and child.returncode == 0
