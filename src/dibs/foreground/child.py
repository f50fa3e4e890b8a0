"""How a foreground door starts a command: streams, leases, process group, and a shell only where it needs one.

In a process group of its own, so that Ctrl-C is for us alone; sessions of their own would make each command a
scheduling group of the kernel, at half the speed.
"""

from __future__ import annotations

import errno
import os

from dibs.system import commands, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

    from dibs.foreground.pipe_values import Job, Rules
else:
    # `signal` imports enum; the C module below it has all we need and costs nothing.
    import _signal as signal

#: What the interpreter ignores and no command expects to.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


def spawn(job: Job, rules: Rules, environ: dict[bytes, bytes], inherited: Iterable[int], null_fd: int) -> int:
    """Start the command of a job and return its pid; OSError or ValueError if it cannot be started.

    It finds the descriptors of `inherited` on numbers from `processes.FIRST_FD` up.
    """
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_DUP2, null_fd, 0)]
    for number, fd in enumerate(inherited, processes.FIRST_FD):
        actions.append((os.POSIX_SPAWN_DUP2, fd, number))
    log = None if rules.logs is None else _open_log(rules.logs, job)
    if log is not None:
        actions += [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    try:
        return _exec(job.text, rules.shell, environ, actions)
    finally:
        if log is not None:
            os.close(log)


def _exec(text: str, shell: str, environ: dict[bytes, bytes], actions: list[tuple[int, ...]]) -> int:
    words = commands.words(text, None, shell, os.environ.get("PATH", os.defpath), ".")
    argv = [word.encode(errors="surrogateescape") for word in words]
    try:
        return os.posix_spawnp(argv[0], argv, environ, file_actions=actions, setpgroup=0, setsigdef=RESTORED)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without #!, which every shell knows how to run.
    argv = [word.encode(errors="surrogateescape") for word in (shell, "-c", text)]
    return os.posix_spawn(argv[0], argv, environ, file_actions=actions, setpgroup=0, setsigdef=RESTORED)


def _open_log(folder: str, job: Job) -> int:
    """Open the file for the output of an attempt."""
    name = f"{job.number}.log" if job.attempt == 1 else f"{job.number}.{job.attempt}.log"
    return os.open(
        os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666
    )
