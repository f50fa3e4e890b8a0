"""Find and signal processes, and never the wrong one.

Pids are reused, so a process is a pid and its start time, and signals go through a pidfd that was checked against
both. Nothing here decides when to signal or keeps state.

Lean.
"""

from __future__ import annotations

import os

from dibs.system.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: From <sys/prctl.h>: a signal when the parent dies; orphaned descendants become children of the caller, not of pid 1.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: Lowest descriptor that a command inherits from us besides 0, 1 and 2; programs that count on 3 and up find them free.
FIRST_FD = 100
#: Parents that are looked at above a process.
MOST_PARENTS = 64


class Proc:
    """One process as /proc showed it at one moment."""

    __slots__ = ("comm", "pid", "ppid", "starttime", "state")

    def __init__(self, pid: int, ppid: int, starttime: int, comm: str, state: str) -> None:
        self.pid = pid
        self.ppid = ppid
        #: Clock ticks after boot; with the pid it names the process for as long as the machine is up.
        self.starttime = starttime
        self.comm = comm
        #: One letter of proc(5): R S D Z T t X I.
        self.state = state

    @property
    def key(self) -> tuple[int, int]:
        """Return what distinguishes this process from a later one with the same pid."""
        return self.pid, self.starttime

    @property
    def is_dead(self) -> bool:
        """Return whether only the entry is left, waiting for its parent."""
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        """Return whether it was stopped by a signal or a debugger."""
        return self.state in "Tt"


#: Every signal by its name without SIG.
SIGNALS = {
    name[3:]: int(getattr(signal, name))
    for name in dir(signal)
    if name.startswith("SIG") and name[3:].isalnum() and not name.startswith(("SIG_", "SIGRTM"))
}


def signal_number(word: str) -> int | None:
    """Return the signal that a word means: USR1, SIGUSR1 in any case, or its number; None if it is none."""
    if word.isascii() and word.isdigit() and len(word) <= 3:
        return int(word) if 0 < int(word) < signal.NSIG else None
    return SIGNALS.get(word.upper().removeprefix("SIG"))


def signal_name(number: int) -> str:
    """Return SIGUSR1 for 10 on most machines; a number that has no name stays one."""
    return next((f"SIG{name}" for name, known in SIGNALS.items() if known == number), f"signal {number}")


def look(pid: int) -> Proc | None:
    """Return the process with this pid, zombies included, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return None
    # The name stands in parentheses and may contain anything, also parentheses and blanks.
    head, _, tail = text.rpartition(b")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    comm = head.partition(b"(")[2].decode("utf-8", "replace")
    return Proc(pid, int(fields[1]), int(fields[19]), comm, fields[0].decode())


def lineage(pid: int) -> list[int]:
    """Return a process, its parent and so on, up to 1, or 0 above a namespace; it breaks off at one that is gone."""
    found = [pid]
    # A pid reused in the middle could close a circle.
    while found[-1] > 1 and len(found) <= MOST_PARENTS and (proc := look(found[-1])) is not None:
        found.append(proc.ppid)
    return found


def words(pid: int) -> list[str]:
    """Return the command line of a process; none if it is gone, or not for us to see."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def identity(pid: int) -> int | None:
    """Return the start time of a process, zombies included, or None if there is none."""
    proc = look(pid)
    return proc.starttime if proc else None


def boot_id() -> str:
    """Return the name of this run of the machine: pids and start times mean nothing across a reboot."""
    with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
        return file.read(64).decode("ascii", "replace").strip()


def everybody() -> list[Proc]:
    """Return all processes from one scan of /proc; some may have ended, and new ones be missing, when it returns."""
    return list(_each())


def _each() -> Iterator[Proc]:
    """Yield one process after the other, the newest first: those are the most likely to end soon."""
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        proc = look(pid)
        if proc is not None:
            yield proc


def descendants(root: int) -> list[Proc]:
    """Return children, their children and so on, parents first, without the root itself."""
    children: dict[int, list[Proc]] = {}
    for proc in everybody():
        children.setdefault(proc.ppid, []).append(proc)
    # A pid reused in the middle of the scan could close a circle, so each list is taken out once.
    found = children.pop(root, [])
    for proc in found:
        found.extend(children.pop(proc.pid, []))
    return found


def marked(entries: list[bytes]) -> Iterator[Proc]:
    """Find the living processes of this user whose environment, as it was at exec, has all these entries.

    This finds what a dead runner left behind. Each is yielded as soon as it is seen, so that it can be signalled before
    it is replaced. Without entries none is found.
    """
    wanted = set(entries)
    for proc in _each() if wanted else ():
        if not proc.is_dead and proc.pid != os.getpid() and wanted <= _environment(proc.pid):
            yield proc


def _environment(pid: int) -> set[bytes]:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return set()
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def open_verified(pid: int, starttime: int) -> int | None:
    """Return a pidfd of exactly this process, or None if it is gone.

    The order matters: once the pidfd is open the pid may be reused, but the pidfd still means the old process,
    so a start time that still matches proves which process we hold.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if identity(pid) == starttime:
        return pidfd
    os.close(pidfd)
    return None


def catches(pid: int, signum: int) -> bool:
    """Return whether a process has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            text = file.read(16384)
    except OSError:
        return False
    mask = text.partition(b"\nSigCgt:")[2].partition(b"\n")[0].strip()
    return bool(mask) and bool(int(mask, 16) >> (signum - 1) & 1)


def send(pidfd: int, signum: int) -> bool:
    """Send a signal; False if the process is gone or became another user's (sudo)."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_all(procs: Iterable[Proc], *signums: int) -> None:
    """Send each signal in turn to each of these processes that still is the one we saw."""
    for proc in procs:
        pidfd = open_verified(proc.pid, proc.starttime)
        if pidfd is None:
            continue
        for signum in signums:
            send(pidfd, signum)
        os.close(pidfd)


def kill_children() -> set[int]:
    """KILL all direct children and return their pids; for a process with one thread that reaps them itself.

    Fast, against trees that respawn: no scan and no pidfd, because the pid of a child that was not reaped cannot be
    reused.
    """
    children = _children()
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            continue  # it became another user's (sudo)
    return children


def _children() -> set[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb", buffering=0) as file:
            return {int(pid) for pid in file.read(1 << 20).split()}
    except FileNotFoundError:
        # A kernel without CONFIG_PROC_CHILDREN.
        return {proc.pid for proc in _each() if proc.ppid == me}


def names(procs: Iterable[Proc]) -> str:
    """Return processes as people read them: `4242 python, 4250 sleep`."""
    return ", ".join(f"{proc.pid} {proc.comm}" for proc in procs)


def become_subreaper() -> None:
    """Make every orphan below this process its child, so that none can escape by forking twice."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, "become a subreaper")


def die_with(parent: int, signum: int) -> None:
    """Have the kernel send this process a signal when its parent dies, or send it now if that has happened already."""
    _prctl(PR_SET_PDEATHSIG, signum, "be told of the end of the parent")
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def _prctl(option: int, value: int, what: str) -> None:
    import ctypes  # expensive to load, and few processes need it

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot {what}: {os.strerror(code)}")
