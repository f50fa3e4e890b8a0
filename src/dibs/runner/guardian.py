"""The program that an engine starts on one of its nodes: it carries out one start from a spec file, in two processes.

    parent     what the engine sees and signals. It passes signals on, and waits.
    guardian   the runner, in a session of its own: it supervises the command and records how it ended.

An engine may kill what it started, and only that. So each of the two watches the other one: if the parent or the
engine's own process above it dies, the guardian ends the command; if the guardian dies, its processes become children
of the parent, which ends them and records that the result is lost. The exit code of the parent means nothing.

A task of an array whose start is over soon continues with others of the array (`array_tasks`), each with a guardian of
its own.

Python 3.9.
"""

from __future__ import annotations

import os
import sys
import time

from dibs.runner import attempts, ports, records, spares, supervision
from dibs.runner import main as runner
from dibs.runner.array_tasks import ArrayTask
from dibs.runner.lease_set import LeaseFolders
from dibs.system import process_tree, processes, refusals
from dibs.system.lean import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Exit codes of a guardian whose start is over, and may be followed by another one, or not; of one whose start another
#: process had decided; and of one that failed.
OVER, LAST, DECIDED, BROKEN = 0, 3, 4, 1
#: Seconds between TERM and KILL when the engine has killed a part of us: soon it may give the devices to others.
ORPHAN_GRACE_S = 5.0
#: Seconds between looks of the parent whether the engine's process above it lives. The kernel's message is not enough:
#: it comes when the thread ends that started us.
LOOK_EVERY_S = 2.0
#: Seconds after which a result is worth a wait for the disk. A power cut soon after the end of a shorter job counts as
#: one while it ran; after half a minute the kernel has written the result by itself.
WORTH_SYNC_S = 5.0
#: The signals that the parent waits for: a child ended, or the engine asks for the end, or has orders.
WAKE = supervision.WAKE | {signal.SIGINT, signal.SIGHUP}
#: Those by which it asks for the end.
ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}

#: The variables in which an engine names the devices that it gave.
GIVEN_DEVICES = (
    b"CUDA_VISIBLE_DEVICES",
    b"ROCR_VISIBLE_DEVICES",
    b"HIP_VISIBLE_DEVICES",
    b"GPU_DEVICE_ORDINAL",
    b"ZE_AFFINITY_MASK",
)


#: The variable in which Slurm tells a job its name of the node.
NODE_NAME = b"SLURMD_NODENAME"


def main() -> None:
    """Carry out the start whose spec is in the file that the first argument names.

    In an array two more follow: for how many seconds the task takes further starts, and how many tasks there are.
    """
    path = sys.argv[1]
    task = ArrayTask(path, float(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 2 else None
    if task is not None and task.is_taken:
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKE)
    for signum in WAKE:
        # An engine may start us with ignored signals; the kernel would then reap our children.
        signal.signal(signum, signal.SIG_DFL)
    processes.become_subreaper()
    above = os.getppid()
    code = _carry_out(_read(path), above)
    if task is not None and code == OVER:
        _take_others(task, above)
    # Nothing is left to clean up, which takes Python longer than all of this.
    os._exit(0)


def _read(path: str) -> records.Spec:
    with open(path, "rb") as file:
        return records.unpack(file.read())


def _take_others(task: ArrayTask, above: int) -> None:
    """Carry out starts of other tasks, until one says that it was the last, or the engine asks for our end."""
    code = OVER
    while code in (OVER, DECIDED) and not signal.sigpending() & ENDING and os.getppid() == above:
        path = task.choose()
        if path is None:
            return
        try:
            spec = _read(path)
        except FileNotFoundError:
            # It is over already: the daemon has removed the spec.
            continue
        code = _carry_out(spec, above, task.note_claim)


def _carry_out(spec: records.Spec, above: int, claimed: Callable[[], None] | None = None) -> int:
    """Carry out one start in a guardian; return its exit code. `claimed` is called there once the start is ours."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _guard(spec, parent, claimed)
    return _wait(spec, pid, above)


# -- the guardian -----------------------------------------------------------------------------------------------


def _guard(spec: records.Spec, parent: int, claimed: Callable[[], None] | None) -> None:
    """Act as the runner of one start, and exit."""
    code = BROKEN
    try:
        runner.become_runner(None)
        # The signal for "read your orders": they include that the parent is gone.
        processes.die_with(parent, signal.SIGUSR1)
        spec = at_node(spec, dict(os.environb), ports.free(spec.folder, spec.job, spec.attempt), _machine_id())
        shim = runner.own_shim()
        began_at = time.monotonic()
        folders = LeaseFolders()
        over = runner.carry_out(spec, shim, spares.Spares(shim), folders, _Orders(spec, parent).new, claimed)
        folders.record()
        if time.monotonic() - began_at > WORTH_SYNC_S:
            attempts.sync(spec.folder, spec.start)
        code = _code(over)
    except BaseException:  # noqa: BLE001 - must not reach the code of the parent; what is printed is shown with the job
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _code(over: refusals.Refusal | bytes) -> int:
    """Return the exit code of a guardian after its start. Nothing follows a stop, which may mean the whole task."""
    if isinstance(over, refusals.Refusal):
        print(f"dibs: {over.why}", file=sys.stderr, flush=True)
        return LAST
    final = records.read_final_record(over)
    if final is None:
        return DECIDED
    return OVER if final.kind in ("exited", "signalled", "failed") and not final.stopped else LAST


class _Orders:
    """The orders of the daemon, and one of our own when the parent is gone."""

    __slots__ = ("_is_told", "_orders", "_parent")

    def __init__(self, spec: records.Spec, parent: int) -> None:
        self._orders = attempts.Orders(spec.folder, spec.start)
        self._parent = parent
        self._is_told = False

    def new(self) -> list[list[str]]:
        """Return the words of each order since the last call."""
        own = []
        if not self._is_told and os.getppid() != self._parent:
            self._is_told = True
            own = [["stop", str(ORPHAN_GRACE_S)]]
        return own + self._orders.new()


def at_node(spec: records.Spec, environ: dict[bytes, bytes], port: int, machine: str) -> records.Spec:
    """Complete a spec with what only the node knows: the devices that the engine gave, a port, and leases."""
    env = dict(entry.split(b"=", 1) for entry in spec.env if b"=" in entry)
    given = {name: environ[name] for name in GIVEN_DEVICES if spec.gpus and name in environ}
    if given:
        for name in GIVEN_DEVICES:
            env.pop(name, None)
    env.update(given)
    numbers = _indices(next(iter(given.values()), b""), spec.gpus)
    env[b"DIBS_GPU_INDICES"] = b",".join(numbers)
    env[b"DIBS_PORT"] = b"%d" % port
    env[b"DIBS_NODE"] = os.fsencode(os.uname().nodename)
    spec.node = os.fsdecode(environ.get(NODE_NAME, b""))
    if spec.gpus:
        env.setdefault(b"MASTER_ADDR", b"127.0.0.1")
        for name in (b"MASTER_PORT", b"PET_MASTER_PORT"):
            env.setdefault(name, b"%d" % port)
    spec.env = tuple(name + b"=" + value for name, value in env.items())
    if spec.machine and spec.machine == machine:
        # Other people of this machine share its GPUs by leases, and must see that these are in use.
        known = dict(entry.split(" ", 1) for entry in spec.machine_devices)
        given_here = [number.decode("ascii") for number in numbers]
        spec.devices = tuple(known[number] for number in given_here if number in known)
    return spec


def _indices(given: bytes, count: int) -> list[bytes]:
    """Return the indices of the given devices; of devices that are named otherwise, their places in the list."""
    words = [word for word in given.split(b",") if word]
    if all(word.isdigit() for word in words):
        return words
    return [b"%d" % place for place in range(count)]


def _machine_id() -> str:
    """Return the same as `paths.machine_id`, which is not lean."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, "rb") as file:
                word = file.read(64).decode("ascii", "replace").strip()
        except OSError:
            continue
        if len(word) == 32 and word.isalnum():
            return word
    return os.uname().nodename


# -- the parent -------------------------------------------------------------------------------------------------


def _wait(spec: records.Spec, pid: int, above: int) -> int:
    """Wait for the guardian and pass signals on; return its exit code, negative after a signal.

    Leave if the engine's process above us is gone: it notices that.
    """
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if os.getppid() != above:
            return LAST
        woken_by = signal.sigtimedwait(WAKE, LOOK_EVERY_S)
        if woken_by is not None and woken_by.si_signo != signal.SIGCHLD:
            # The pid cannot be another process: it is our child and not reaped yet.
            os.kill(pid, signal.SIGUSR1 if woken_by.si_signo == signal.SIGUSR1 else signal.SIGTERM)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 or code == BROKEN:
        _end_leftovers(spec, pid, code)
    return code


def _end_leftovers(spec: records.Spec, pid: int, how: int) -> None:
    """End what a dead guardian left: its processes are our children now. Record that the result is lost."""
    process_tree.Termination().run(ORPHAN_GRACE_S, lambda: process_tree.reap(lambda *_: None), _sleep)
    found = attempts.read_records(spec.folder, spec.start)
    if found is None or found.final is not None:
        return
    if isinstance(found.decision, attempts.Shim) and found.decision.pid == pid:
        why = f"its runner was killed by {processes.signal_name(-how)}" if how < 0 else "its runner failed"
        fd = os.open(f"{spec.folder}/started.{spec.start}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        records.write_final(fd, records.Final("lost", why=why, ended_at_ns=time.time_ns()))
        os.close(fd)


def _sleep(until: float) -> None:
    process_tree.wait_for_signal(WAKE, until)
