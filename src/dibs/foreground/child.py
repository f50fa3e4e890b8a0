"""Start a command of a pipe in its own process group; find and signal processes that it leaves running.

With its own process group, Ctrl-C reaches only us. Its own session would put it into a separate scheduling group of the
kernel, at half the speed.
"""

from __future__ import annotations

import errno
import os

from dibs.system import commands, processes
from dibs.system.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.foreground.pipe_values import Job, Rules

#: Signals that the interpreter ignores and that commands expect to have their default action.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


def spawn(job: Job, rules: Rules, environ: dict[bytes, bytes], inherited: Iterable[int], null_fd: int) -> int:
    """Start the command of a job and return its pid; raise OSError or ValueError if it cannot be started.

    The command gets the `inherited` descriptors on numbers from `processes.FIRST_FD` up.
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
    # A script without #!, which every shell can run.
    argv = [word.encode(errors="surrogateescape") for word in (shell, "-c", text)]
    return os.posix_spawn(argv[0], argv, environ, file_actions=actions, setpgroup=0, setsigdef=RESTORED)


def _open_log(folder: str, job: Job) -> int:
    name = f"{job.number}.log" if job.attempt == 1 else f"{job.number}.{job.attempt}.log"
    return os.open(
        os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666
    )


def is_left(group: int) -> bool:
    """Return whether an ended command left a process running: one of its group is still our child."""
    try:
        os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def signal_group(group: int, number: int) -> None:
    """Signal a process group that contains a child of ours, so that its number cannot be reused for another group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # It has just ended, or now belongs to another user (sudo).
        return


def group_of(pid: int) -> int | None:
    """Return the process group of a process; None if it has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
