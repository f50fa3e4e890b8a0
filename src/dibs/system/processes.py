"""Find and signal processes, and never the wrong one.

Pids are reused, so a process is identified by its pid and start time, and signals go through a pidfd that was checked
against both. Nothing here decides when to signal or keeps state.

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
#: Lowest descriptor that a command inherits from us besides 0, 1 and 2; many programs expect 3 and up to be free.
FIRST_FD = 100
#: Maximum number of ancestors to follow.
MOST_PARENTS = 64


class Proc:
    """One process as /proc showed it at one moment."""

    __slots__ = ("comm", "pid", "ppid", "starttime", "state")

    def __init__(self, pid: int, ppid: int, starttime: int, comm: str, state: str) -> None:
        self.pid = pid
        self.ppid = ppid
        #: Clock ticks after boot; with the pid it identifies the process until the next boot.
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
        """Return whether it has ended and only waits for its parent to reap it."""
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        """Return whether a signal or a debugger stopped it."""
        return self.state in "Tt"


#: Every signal by its name without SIG.
SIGNALS = {
    name[3:]: int(getattr(signal, name))
    for name in dir(signal)
    if name.startswith("SIG") and name[3:].isalnum() and not name.startswith(("SIG_", "SIGRTM"))
}


def signal_number(word: str) -> int | None:
    """Return the signal that a word names: USR1 or SIGUSR1 in any case, or its number; None if there is none."""
    if word.isascii() and word.isdigit() and len(word) <= 3:
        return int(word) if 0 < int(word) < signal.NSIG else None
    return SIGNALS.get(word.upper().removeprefix("SIG"))


def signal_name(number: int) -> str:
    """Return the name, such as SIGUSR1 for 10 on most machines; a number without a name stays a number."""
    return next((f"SIG{name}" for name, known in SIGNALS.items() if known == number), f"signal {number}")


def look(pid: int) -> Proc | None:
    """Return the process with this pid, zombies included; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return None
    # The name is in parentheses and may contain anything, including parentheses and blanks.
    head, _, tail = text.rpartition(b")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    comm = head.partition(b"(")[2].decode("utf-8", "replace")
    return Proc(pid, int(fields[1]), int(fields[19]), comm, fields[0].decode())


def lineage(pid: int) -> list[int]:
    """Return a process and its ancestors, up to 1, or 0 above a namespace; it ends at a process that is gone."""
    found = [pid]
    # A pid that is reused meanwhile could form a cycle.
    while found[-1] > 1 and len(found) <= MOST_PARENTS and (proc := look(found[-1])) is not None:
        found.append(proc.ppid)
    return found


def words(pid: int) -> list[str]:
    """Return the command line of a process; empty if it is gone or hidden from us."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def open_files(pid: int) -> set[str]:
    """Return the names of what a process has open: a path, or `socket:[INODE]`; none if we may not inspect it."""
    folder = f"/proc/{pid}/fd"
    try:
        return {os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
    except OSError:
        # The process is gone or belongs to another user.
        return set()


def oldest_with_open(name: str) -> int | None:
    """Return the oldest process that has this open (see `open_files`), among those we may inspect."""
    found = [proc for proc in everybody() if name in open_files(proc.pid)]
    return min(found, key=lambda proc: (proc.starttime, proc.pid)).pid if found else None


def identity(pid: int) -> int | None:
    """Return the start time of a process, zombies included; None if there is none."""
    proc = look(pid)
    return proc.starttime if proc else None


#: The id of this boot, once it was read: no process outlives its boot.
_boot_id = ""


def boot_id() -> str:
    """Return the id of this boot: pids and start times mean nothing across a reboot."""
    global _boot_id
    if not _boot_id:
        with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:
            _boot_id = file.read(64).decode("ascii", "replace").strip()
    return _boot_id


def everybody() -> list[Proc]:
    """Return all processes from one scan of /proc; meanwhile some may have ended and new ones may have started."""
    return list(_each())


def _each() -> Iterator[Proc]:
    """Yield each process, the newest first: those are the most likely to end soon."""
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        proc = look(pid)
        if proc is not None:
            yield proc


def descendants(root: int) -> list[Proc]:
    """Return all descendants, parents first, without the root itself."""
    children: dict[int, list[Proc]] = {}
    for proc in everybody():
        children.setdefault(proc.ppid, []).append(proc)
    # A pid that is reused during the scan could form a cycle, so each list is removed when used.
    found = children.pop(root, [])
    for proc in found:
        found.extend(children.pop(proc.pid, []))
    return found


def marked(entries: list[bytes]) -> Iterator[Proc]:
    """Yield the living processes of this user whose environment at exec has all these entries.

    This finds the leftovers of a dead runner. Each process is yielded as soon as it is seen, so that it can be
    signalled before it is replaced. Without entries none is found.
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
    """Return a pidfd of exactly this process; None if it is gone.

    The order matters: once the pidfd is open the pid may be reused, but the pidfd still refers to the old process, so a
    start time that still matches proves which process we hold.
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
    """Return whether a process has its own handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            text = file.read(16384)
    except OSError:
        return False
    mask = text.partition(b"\nSigCgt:")[2].partition(b"\n")[0].strip()
    return bool(mask) and bool(int(mask, 16) >> (signum - 1) & 1)


def send(pidfd: int, signum: int) -> bool:
    """Send a signal; return False if the process is gone or now belongs to another user (sudo)."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_all(procs: Iterable[Proc], *signums: int) -> None:
    """Send each signal in turn to each of these processes, unless its pid was reused."""
    for proc in procs:
        pidfd = open_verified(proc.pid, proc.starttime)
        if pidfd is None:
            continue
        for signum in signums:
            send(pidfd, signum)
        os.close(pidfd)


def kill_children() -> set[int]:
    """KILL all direct children and return their pids; for a single-threaded process that reaps them itself.

    Fast, for trees that respawn: no scan and no pidfd, because the pid of an unreaped child cannot be reused.
    """
    children = _children()
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            continue  # it now belongs to another user (sudo)
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
    """Return processes for display: `4242 python, 4250 sleep`."""
    return ", ".join(f"{proc.pid} {proc.comm}" for proc in procs)


def become_subreaper() -> None:
    """Make every orphan below this process its child, so that no process can escape by forking twice."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, "become a subreaper")


def die_with(parent: int, signum: int) -> None:
    """Make the kernel signal this process when its parent dies; send the signal now if the parent is already dead."""
    _prctl(PR_SET_PDEATHSIG, signum, "get a signal when the parent ends")
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def _prctl(option: int, value: int, what: str) -> None:
    # Few processes need this. The C module alone: `ctypes` takes five times as long to load.
    import _ctypes

    prctl = _ctypes.dlsym(_ctypes.dlopen(None, os.RTLD_NOW), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(prctl, (option, value, 0, 0, 0)) != 0:
        raise OSError(f"cannot {what}: the kernel refused prctl({option}, {value})")
