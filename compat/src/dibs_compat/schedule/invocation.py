"""What both command lines have in common: set up the state file, release, show, run one task."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.errors import DibsError
from dibs.foreground import machine, supervision
from dibs.foreground.signals import Signals
from dibs.leases import device_lease, waiters
from dibs.system import settings
from dibs_compat import ids
from dibs_compat.schedule import gpus, release, screen, state_file, task
from dibs_compat.schedule.gpu_wait import GpuRequest, GpuWait, Grant, StopSignal
from dibs_compat.schedule.state_file import Entries, Entry, State
from dibs_compat.schedule.task import Step

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


#: Where a stream of a task goes: a descriptor (None: where ours goes) and what it is called.
Output = tuple[int | None, str]


@dataclass(frozen=True)
class TaskRequest:
    """One task and how to run it."""

    request: GpuRequest
    #: The words of the task for the GPUs it gets.
    words: Callable[[Sequence[int]], list[str]]
    #: What these GPUs are called.
    name: Callable[[Sequence[int]], str]
    #: Said while forced GPUs are waited for.
    waiting: str
    #: What the first Ctrl-C does.
    first: Step
    #: Empty: they are not spoken of.
    outputs: tuple[Output, ...] = ()
    has_summary: bool = True
    #: Exit with the code of the task instead of 0.
    is_exit_status: bool = False


class Invocation:
    """The machine and the state file, as one call of one of the old tools sees them."""

    def __init__(self, prog: str) -> None:
        self.prog = prog
        self._values = settings.load(os.environ)
        self._note = device_lease.own_note(prog, "dibs-compat")
        self._gpus = gpus.load()
        self._state = State(os.environ.get("DIBS_COMPAT_STATE") or state_file.DEFAULT_PATH, self._complain)

    def _complain(self, text: str) -> None:
        screen.complain(self.prog, text)

    def is_set_up(self) -> bool:
        """Tell whether there is a state file."""
        return self._state.update(lambda entries: entries) is not None

    def set_up_if_new(self) -> None:
        """Make the state file as the old tool does when there is none, or a broken one."""
        self._state.update(lambda entries: state_file.fresh(self._gpus.usual_count()) if entries is None else entries)

    def set_up(self, count: int, set_aside: Sequence[int] = ()) -> None:
        """Say how many GPUs there are and which are not for us. Tasks that run stay what they are."""

        def edit(entries: Entries | None) -> Entries:
            before = dict(enumerate(self._gpus.swept(entries or ())))
            made = state_file.fresh(count, set_aside)
            running = {n: entry for n, entry in before.items() if entry.task_pid is not None and n not in set_aside}
            return tuple(running.get(number, entry) for number, entry in enumerate(made))

        self._state.write(edit)

    def perform(
        self, args: argparse.Namespace, init: Sequence[int] | None, prefix: str, order: TaskRequest | None
    ) -> int:
        """Do what the command line asks for, in the order of the old tool; return the exit code."""
        if init is not None:
            self.set_up(init[0], init[1:])
        if args.release is not None:
            release.release(self._gpus, self._state, args.release, args.is_forced, self._values.grace)
        if args.status:
            self.show(prefix)
        return self.run(order) if order else 0

    def show(self, prefix: str) -> None:
        """Print who uses what."""
        entries = self._state.update(lambda found: None if found is None else self._gpus.swept(found)) or ()
        numbers = range(len(entries))
        faults = {number: fault for number in numbers if (fault := self._gpus.fault(number))}
        screen.say(screen.status(entries, self._gpus.holders(numbers), faults, prefix))

    def run(self, order: TaskRequest) -> int:
        """Wait for the GPUs, run the task, give them back; return the exit code."""
        try:
            _check_found(order.words(()))
            # Also refuses what a quota never allows, before anybody waits.
            limit_s = ids.time_limit_s(self._gpus.inventory) if order.request.count else None
            # Before the wait: between two tasks every millisecond counts.
            supervision.become_supervisor(())
            with Signals(*ENDING) as coming:
                try:
                    return self._run(order, self._take(order, coming), coming, limit_s)
                except StopSignal as stop:
                    if stop.number == signal.SIGINT:
                        print("KeyboardInterrupt", file=sys.stderr, flush=True)
                    return task.die_by(stop.number)
        except task.StartError as error:
            if not order.is_exit_status:
                raise
            self._complain(error.line())
            return error.shell_code

    def _take(self, order: TaskRequest, coming: Signals) -> Grant:
        if order.request.count == 0:
            return Grant((), ())
        vet = ids.vet(self._gpus.inventory, self._complain)
        waiter = waiters.Waiter(
            self._gpus.place, self._note, self._values.collect_for, vet=vet, on_limit=self._complain
        )
        return GpuWait(self._gpus, self._state, coming, waiter).wait(
            order.request,
            lambda numbers: self._entry(order, numbers, os.getpid(), time.time()),
            lambda: screen.say(order.waiting),
        )

    def _entry(self, order: TaskRequest, numbers: Sequence[int], pid: int, began: float) -> Entry:
        words = tuple(order.words(numbers))
        return Entry(False, order.name(numbers), words, pid, screen.moment(began), self._note.user)

    def _run(self, order: TaskRequest, grant: Grant, coming: Signals, limit_s: float | None) -> int:
        mask = task.block()
        pid = os.getpid()
        try:
            for number in coming.new():
                raise StopSignal(number)
            words = order.words(grant.numbers)
            began = time.time()
            env = {**os.environ, **gpus.environ(grant.numbers)}
            pid = task.start(words, env, grant, mask, *(fd for fd, _ in order.outputs))
            self._replace(os.getpid(), self._entry(order, grant.numbers, pid, began))
            screen.say(screen.started(order.name(grant.numbers), pid))
            end = task.supervise(pid, order.first, self._values.grace, self._complain, limit_s)
        finally:
            # Release the leases first, as others may wait for them; an entry with a dead pid is ignored.
            grant.close()
            self._replace(pid, state_file.FREE)
        if order.has_summary:
            names = [name for _, name in order.outputs]
            outputs = zip(("stdout", "stderr"), names, strict=False)
            screen.say(screen.summary(words, outputs, began, end.at))
        if end.stop_signal is not None:
            return task.die_by(end.stop_signal)
        return end.code if order.is_exit_status else 0

    def _replace(self, pid: int, entry: Entry) -> None:
        """Put an entry where the one with this pid is; what others have written since stays."""

        def edit(entries: Entries | None) -> Entries | None:
            return None if entries is None else tuple(entry if e.task_pid == pid else e for e in entries)

        self._state.update(edit)


def _check_found(words: Sequence[str]) -> None:
    """Say that a program is not there before anybody waits for a GPU."""
    if machine.is_program(words[0]):
        return
    code = errno.EACCES if "/" in words[0] and os.path.exists(words[0]) else errno.ENOENT
    raise task.StartError(words[0], OSError(code, os.strerror(code)))


def guarded(prog: str, body: Callable[[], int]) -> int:
    """Run a command line; whatever goes wrong is one line and an exit code."""
    for number in range(3):
        # Where a standard stream is closed, a lease would get its number and the task's output.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows no Unicode shows escapes instead of ending us.
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return body()
    except DibsError as error:
        screen.complain(prog, error.line())
        return error.exit_code
    except OSError as error:
        about = f" ({error.filename})" if error.filename else ""
        screen.complain(prog, f"system error: {error.strerror or error}{about}.")
        return DibsError.exit_code
    except KeyboardInterrupt:
        print("KeyboardInterrupt", file=sys.stderr, flush=True)
        return task.die_by(signal.SIGINT)
