"""The parent of one command: claims the start, takes leases, starts the command, waits, records how it ended.

`carry_out` is the start protocol. The order of its steps matters, because each may be the last one before a crash.
`spawn` starts the command, `supervision` waits for it. A runner works without the daemon, which only leaves orders.
When a start is over, the daemon may send the same process the next one, which saves a fork.
"""

from __future__ import annotations

import _socket
import errno
import os
import sys
import time

from dibs.runner import attempts, oom, records, spares, spawn, supervision
from dibs.runner.lease_set import LeaseFolders, LeaseSet, refused
from dibs.system import processes, refusals
from dibs.system.crash_points import crash_point
from dibs.system.lean import closing_fd, signal
from dibs.system.process_tree import Termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Blocked from the beginning: the signals that supervision waits for, and terminal signals, since a job has no
#: terminal.
BLOCKED = supervision.WAKE | {signal.SIGINT, signal.SIGHUP}

#: Message to the daemon that a start is over and all its descriptors are closed. The final record follows, if any.
OVER = b"over"
#: Seconds after a start in which the next one usually comes, if short jobs follow each other.
BETWEEN_S = 0.02
#: Seconds between attempts to send to a socket whose queue is full.
TELL_PAUSES_S = (0.001, 0.002, 0.004, 0.008, 0.016)
#: Seconds to wait for a lock that another process holds only to check it.
LOOK_S = 1.0
#: Shortest and longest pause, in seconds, between scans for the leftovers of a dead runner.
LEFTOVERS_PAUSE_S = (0.01, 1.0)
#: Consecutive scans that must find nothing.
EMPTY_LOOKS = 5

#: Of the cgroup of this process.
_oom_kills = oom.KillCount()


def main() -> None:
    """Serve a socket descriptor (`3`), or end a dead runner's processes (`leftovers ATTEMPT_DIR GRACE_S MARKER...`)."""
    if sys.argv[1] == "leftovers":
        end_leftovers(sys.argv[2], float(sys.argv[3]), [os.fsencode(word) for word in sys.argv[4:]])
    else:
        serve(int(sys.argv[1]))


def preload() -> None:
    """Import in the forking process what its runners need later."""
    import _ctypes as _ctypes
    import resource as resource  # wait4 imports it for its third result


def serve(fd: int) -> None:
    """Carry out the starts that arrive at a socket, one after another, until the daemon closes it."""
    become_runner(fd)
    sock = _socket.socket(fileno=fd)
    shim = own_shim()
    mine = spares.Spares(shim)
    folders = LeaseFolders()
    try:
        while (spec := _receive(sock, folders)) is not None:
            over = carry_out(spec, shim, mine, folders)
            crash_point("runner:over")
            if isinstance(over, refusals.Refusal):
                refuse(fd, over)
                return
            if _has_children() or not _tell_over(sock, over):
                attempts.sync(spec.folder, spec.start)
                return
    finally:
        folders.record()
        mine.drop()


def own_shim() -> str:
    """Return the text that identifies this process in its claims."""
    pid = os.getpid()
    return f"shim {pid} {processes.identity(pid)} {processes.boot_id()}"


def become_runner(keep: int | None) -> None:
    """Detach from the caller's session, signals and descriptors. Every new runner calls this first, forked or not."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    for signum in supervision.WAKE:
        # If our parent ignored SIGCHLD, the kernel would reap our children.
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.setsid()
    except PermissionError:
        pass  # it already leads a session or group
    _close_strangers(keep)
    processes.become_subreaper()


def _close_strangers(keep: int | None) -> None:
    """Close descriptors the caller leaked; a command must not keep a daemon's socket alive."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != keep:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of this listing itself
    if keep is not None:
        os.set_inheritable(keep, False)


def _receive(sock: _socket.socket, folders: LeaseFolders) -> records.Spec | None:
    """Return the next spec, sent as a memfd; None when the daemon is gone or has no more."""
    if not folders.are_recorded:
        import select  # loaded, because there was a lease

        if not select.select([sock.fileno()], [], [], BETWEEN_S)[0]:
            folders.record()
    try:
        said, ancillary, _, _ = sock.recvmsg(16, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    if not ancillary:
        if said:
            refuse(sock.fileno(), refusals.of_own(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
        return None
    with closing_fd(int.from_bytes(ancillary[0][2], sys.byteorder)) as fd:
        return records.unpack(os.pread(fd, os.fstat(fd).st_size, 0))


def _tell_over(sock: _socket.socket, final: bytes) -> bool:
    """Tell the daemon that a start is over; return False if it is gone. Its next commit makes the result durable."""
    try:
        sock.send(OVER + final)
    except OSError:
        return False
    return True


def refuse(fd: int, refusal: refusals.Refusal) -> None:
    """Tell the daemon that the command of a start did not run and never will, and why.

    No file says so: it could not be made. A daemon that does not hear it gives up the start by a tombstone.
    """
    sock = _socket.socket(fileno=fd)
    try:
        sock.send(refusals.pack(refusal))
    except OSError:
        # The daemon is gone; the next one examines the start.
        return
    finally:
        sock.detach()


def _has_children() -> bool:
    """Return whether processes of the last start are left; then this runner must not take another start."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def carry_out(
    spec: records.Spec,
    shim: str,
    mine: spares.Spares,
    folders: LeaseFolders,
    new_orders: Callable[[], list[list[str]]] | None = None,
    claimed: Callable[[], None] | None = None,
) -> refusals.Refusal | bytes:
    """Carry out one start unless it was already carried out or abandoned; close everything it opened.

    `shim` identifies this process in its claim. `new_orders` reads the orders; default: from their file, when a signal
    comes. `claimed` is called once the start is ours. Return the final record, empty if another process decided about
    the start, or why the machine refused even to claim it.
    """
    crash_point("runner:begin")
    _forget_signals()
    spare = mine.take(spec)
    # Closed in reverse order, the claim last: if the claim is unlocked, everything else is settled.
    open_fds: list[int] = [] if spare is None else [spare.log]
    leases = LeaseSet(spec, folders)
    over: refusals.Refusal | bytes = b""
    try:
        started = _claim(spec, shim, spare)
    except OSError as error:
        started, over = None, refusals.of_own(error)
    if started is not None:
        open_fds.insert(0, started)
        crash_point("runner:claimed")
        if claimed is not None:
            claimed()
        begun = _start_command(spec, spare, open_fds, leases)
        if isinstance(begun, records.Final):
            over = _record_unstarted(started, begun)
        else:
            final = _follow(spec, started, begun, mine, leases, new_orders)
            crash_point("runner:ended")
            over = records.write_final(started, final)
        crash_point("runner:recorded")
    leases.release()
    for fd in reversed(open_fds):
        os.close(fd)
    return over


def _claim(spec: records.Spec, shim: str, spare: spares.Spare | None) -> int | None:
    """Claim the start, with the claim of the spare if there is one."""
    if spare is not None:
        return attempts.decide(spare.claim, spec.folder, spec.start)
    spawn.make_folder(spec.folder)
    return attempts.claim(spec.folder, spec.start, shim, is_shared=bool(spec.engine))


def _record_unstarted(started: int, final: records.Final) -> refusals.Refusal | bytes:
    """Record why the command did not start, and return the record; if even that fails, return why."""
    crash_point("runner:ended")
    try:
        return records.write_final(started, final)
    except OSError as error:
        return refusals.of_own(error)


def _forget_signals() -> None:
    """Discard signals meant for the previous start. Orders for this one cannot have come yet, and are read anyway."""
    while signal.sigtimedwait(supervision.WAKE, 0) is not None:
        pass


def _follow(
    spec: records.Spec,
    started: int,
    pid: int,
    mine: spares.Spares,
    leases: LeaseSet,
    new_orders: Callable[[], list[list[str]]] | None,
) -> records.Final:
    """Record that the command runs, and return how it ended. The command already runs: no error may fail the job."""
    started_at_ns = time.time_ns()
    crash_point("runner:spawned")
    try:
        running = records.RunningCommand(pid, processes.identity(pid) or 0, started_at_ns, spec.node)
        records.write_running(started, running)
        if spec.engine:
            attempts.show(started)
    except OSError:
        sys.excepthook(*sys.exc_info())
    crash_point("runner:running")
    mine.make(spec)
    killed_before = _oom_kills.now()
    read = new_orders or attempts.Orders(spec.folder, spec.start).new
    marks: list[int] = []

    def announce() -> None:
        _tell(spec, "running", str(pid), str(started_at_ns))
        leases.record()

    final = supervision.supervise(
        spec,
        pid,
        read,
        lambda what, names: _tell(spec, what, names),
        lambda: marks.extend(leases.put_marks()),
        announce,
    )
    for fd in marks:
        os.close(fd)
    final.started_at_ns = started_at_ns
    if final.kind == "signalled" or final.code:
        was_killed = final.signal == signal.SIGKILL and _oom_kills.now() != killed_before
        final.out_of_memory = was_killed or oom.said(spec.stderr or spec.output)
    return final


def _start_command(
    spec: records.Spec, spare: spares.Spare | None, open_fds: list[int], leases: LeaseSet
) -> int | records.Final:
    """Return the pid of the command, or the result if it cannot start; every error here becomes the result."""
    try:
        tree = [] if spec.engine else [_lock_tree(spec.folder)]
        open_fds += tree
        crash_point("runner:tree")
        refusal = leases.take()
        if refusal is not None:
            return refusal
        open_fds += leases.put_marks() if spec.evictable else []
        crash_point("runner:leased")
        return spawn.spawn(spec, spare, [*leases.fds(), *tree])
    except spawn.CannotStart as error:
        return _failed(error.code, str(error)) if error.refusal is None else refused(error.refusal)
    except OSError as error:
        # Only our own files and sockets are in use here.
        return refused(refusals.of_own(error))
    except Exception as error:  # noqa: BLE001 - no command runs yet, so the record is the right place for it
        sys.excepthook(*sys.exc_info())
        return _failed(125, f"{type(error).__name__}: {error}")


def _failed(code: int, why: str) -> records.Final:
    return records.Final("failed", code=code, why=why, ended_at_ns=time.time_ns())


def _lock_tree(folder: str) -> int:
    """Return the tree's lock. The command inherits it: while it is held, some process of the tree lives."""
    give_up_at = time.monotonic() + LOOK_S
    while (lock := attempts.lock_tree(folder)) is None:
        if time.monotonic() > give_up_at:
            raise OSError(errno.EBUSY, "a process of an earlier start of this attempt still runs")
        time.sleep(0.002)
    return lock


def _tell(spec: records.Spec, what: str, *more: str) -> None:
    """Send one datagram to the listener, if any; the files have the same information.

    The socket's queue is short (10 on many systems): retry a few times when many commands start at once.
    """
    if spec.notify is None:
        return
    text = " ".join((what, str(spec.job), str(spec.attempt), str(spec.start), *more)).encode()
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
    for pause_s in TELL_PAUSES_S:
        try:
            sock.sendto(text, spec.notify)
            return
        except BlockingIOError:
            time.sleep(pause_s)
        except OSError:
            return


# -- after a dead runner ----------------------------------------------------------------------------------------


def end_leftovers(folder: str, grace_s: float, markers: list[bytes]) -> None:
    """End all processes with all markers in their environment: TERM, KILL after the grace, until the tree is gone.

    We are not their parent, so a process that respawns may escape one scan; several consecutive empty scans are needed.
    """
    kill_at = time.monotonic() + grace_s
    termination = Termination()
    empty_looks = 0
    pause_s = LEFTOVERS_PAUSE_S[0]
    while empty_looks < EMPTY_LOOKS:
        is_killing = time.monotonic() >= kill_at
        seen = _signal_leftovers(markers, termination, is_killing)
        is_empty = not seen and not attempts.has_tree(folder)
        empty_looks = empty_looks + 1 if is_empty else 0
        if not (seen and is_killing):
            time.sleep(min(pause_s, max(kill_at - time.monotonic(), LEFTOVERS_PAUSE_S[0])))
            pause_s = LEFTOVERS_PAUSE_S[0] if is_empty else min(2 * pause_s, LEFTOVERS_PAUSE_S[1])


def _signal_leftovers(markers: list[bytes], termination: Termination, is_killing: bool) -> bool:
    """Signal each marked process as soon as it is seen, TERM only once; return whether there were any."""
    seen = False
    for proc in processes.marked(markers):
        seen = True
        if is_killing:
            processes.send_all([proc], signal.SIGKILL)
        else:
            termination.terminate([proc])
    return seen
