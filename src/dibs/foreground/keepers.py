"""Leases for a process that we do not start: the shell that asked for them, or a running process.

A small process (`leases.keeper`) holds the leases until that process ends. This module starts, finds and ends keepers.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from dibs import errors
from dibs.errors import DibsError, MachineError, NotAllowed, NotFound
from dibs.foreground import lease_ends
from dibs.leases import device_lease, keeper
from dibs.model.devices import DeviceId
from dibs.system import locks, processes
from dibs.system.lean import closing_fd

#: Seconds within which a keeper must end after TERM.
LET_GO_FOR_S = 10.0
GO = b"g"

#: Takes leases. Arguments: a descriptor that ends the wait when it is readable, and a function for messages.
Take = Callable[[int, Callable[[str], None]], list[device_lease.Lease]]


@dataclass(frozen=True)
class Owner:
    """The process for which devices are held."""

    pid: int
    starttime: int
    #: "shell" or "process".
    kind: str

    @property
    def note(self) -> str:
        """Return the text that others see about the lease."""
        return f"lease of {self.kind} {self.pid}"


def adopted(pid: int) -> Owner:
    """Return the running process that the user named."""
    return _checked(pid, "process", f"--pid expected a running process, got {pid}, which has exited.")


def asking_shell() -> Owner:
    """Return the shell that reads our output: the nearest ancestor with another standard output.

    In `$(dibs lease --env)` there may be processes between: a fork of the shell, or a wrapper such as `nice`.
    """
    ours = _stdout(os.getpid())
    for pid in filter(None, processes.lineage(os.getppid())):
        if not ours.startswith("pipe:") or _stdout(pid) != ours:
            return _checked(pid, "shell", "the shell that requested the lease has exited.")
    raise MachineError("cannot find the shell that requested the lease.", "Name a process: dibs lease --env --pid $$")


def shell_name(owner: Owner) -> str:
    proc = processes.look(owner.pid)
    return proc.comm.removeprefix("-") if proc else ""


def _checked(pid: int, kind: str, gone: str) -> Owner:
    proc = processes.look(pid)
    if proc is None or proc.is_dead:
        raise NotFound(gone)
    if locks.uid_of(pid) != os.geteuid():
        raise NotAllowed(f"process {pid} ({proc.comm}) is not yours.")
    return Owner(pid, proc.starttime, kind)


def _stdout(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        # Closed, or the process of another user.
        return ""


# -- starting a keeper ------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """Leases of a keeper that waits for `confirm`; without it, the keeper releases them when we end."""

    devices: list[DeviceId]
    word: int

    def confirm(self) -> None:
        """Tell the keeper to keep the leases."""
        os.write(self.word, GO)


def keep(
    owner: Owner, place: device_lease.Folder, limit_s: float | None, take: Take, say: Callable[[str], None]
) -> Kept:
    """Start a process that takes leases with `take` and keeps them while the owner lives."""
    pidfd = processes.open_verified(owner.pid, owner.starttime)
    if pidfd is None:
        raise NotFound(f"process {owner.pid} has just ended.")
    told, tell = os.pipe()
    hear, word = os.pipe()
    if os.fork() == 0:
        os.close(told)
        os.close(word)
        _be_holder(owner, place, limit_s, take, pidfd, tell, hear)
    os.close(tell)
    os.close(hear)
    os.close(pidfd)
    with open(told, encoding="utf-8") as news:
        for line in news:
            what, *words = json.loads(line)
            if what == "say":
                say(words[0])
            elif what == "held":
                return Kept([DeviceId(device) for device in words[0]], word)
            else:
                kind, message, hint = words
                raise errors.KINDS[kind](message, hint)
    raise MachineError("the process that was to hold the GPUs has exited.")


def _be_holder(
    owner: Owner, place: device_lease.Folder, limit_s: float | None, take: Take, pidfd: int, tell: int, hear: int
) -> NoReturn:
    """Detach from the terminal, take the leases, and exec the keeper. Never returns."""

    def report(*words: object) -> None:
        os.write(tell, json.dumps(words).encode() + b"\n")

    try:
        _leave_terminal()
        # The wait ends when the process that asked or the owner ends.
        with select.epoll() as wake:
            wake.register(hear, select.EPOLLIN)
            wake.register(pidfd, select.EPOLLIN)
            held = take(wake.fileno(), lambda text: report("say", text))
        report("held", [lease.device for lease in held])
        if os.read(hear, 1) == GO:
            for fd in (pidfd, *(fd for lease in held for fd in lease.fds())):
                os.set_inheritable(fd, True)
            devices = [lease.device for lease in held]
            end = None if limit_s is None else lease_ends.begin(place, limit_s, owner.pid)
            argv = keeper.command(owner.pid, place.path, devices, limit_s, pidfd, end.path if end else "")
            os.execve(argv[0], argv, {})
    except DibsError as error:
        report("error", error.kind, error.message, error.hint)
    except BrokenPipeError:
        # The process that asked has ended; the leases end with us.
        os._exit(1)
    # A fork must never continue as its parent; the parent reports the error.
    except BaseException as error:  # noqa: BLE001
        report("error", MachineError.kind, f"cannot hold the GPUs: {error}.", "")
    os._exit(1)


def _leave_terminal() -> None:
    """Release the shell's terminal, directory and pipes: a pipe's reader waits until the last writer has closed it."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    # Descriptors from before this program started are inheritable; those that it opened itself are not.
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        # The descriptor of the directory that was just listed is closed already.
        with contextlib.suppress(OSError):
            if fd > 2 and os.get_inheritable(fd):
                os.close(fd)


# -- finding and ending keepers ---------------------------------------------------------------------------------------


class RunningKeeper(NamedTuple):
    """A keeper that is running."""

    proc: processes.Proc
    owner: int
    devices: list[str]


def find_all(place: device_lease.Folder) -> list[RunningKeeper]:
    """Return all keepers of this user."""
    ours = [proc for proc in processes.everybody() if locks.uid_of(proc.pid) == os.geteuid() and not proc.is_dead]
    seen = [(proc, keeper.read(processes.words(proc.pid))) for proc in ours]
    return [RunningKeeper(proc, what[0], what[2]) for proc, what in seen if what and what[1] == place.path]


def keepers_of(place: device_lease.Folder, owners: Sequence[int]) -> list[RunningKeeper]:
    """Return the keepers of the first of `owners` that has any."""
    seen = find_all(place)
    for owner in owners:
        if own := [each for each in seen if each.owner == owner]:
            return own
    return []


def above_us() -> list[int]:
    """Return the pids of our ancestors, the nearest first."""
    return processes.lineage(os.getppid())


def end(held: Sequence[RunningKeeper]) -> None:
    """End keepers, and wait until their devices are free."""
    for each in held:
        pidfd = processes.open_verified(each.proc.pid, each.proc.starttime)
        if pidfd is None:
            continue
        with closing_fd(pidfd):
            processes.send(pidfd, signal.SIGTERM)
            if not select.select([pidfd], [], [], LET_GO_FOR_S)[0]:
                raise MachineError(f"the holder (pid {each.proc.pid}) did not end within {LET_GO_FOR_S:.0f} s.")
