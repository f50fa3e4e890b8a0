"""Release GPUs by hand. A lease cannot be revoked: a GPU becomes free only when its holder ends."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence

from dibs.errors import Conflict, MachineError, NotAllowed, NotFound
from dibs.foreground import machine
from dibs.leases import holders
from dibs_compat.schedule import state_file
from dibs_compat.schedule.gpus import Gpus
from dibs_compat.schedule.state_file import Entries, State

#: Seconds that a scheduler gets beyond the grace of its task, and that KILL gets to work.
EXTRA_S = 5.0


def release(gpus: Gpus, known: State, numbers: Sequence[int], is_forced: bool, grace_s: float) -> None:
    """Mark GPUs as free. One whose task lives is refused; `is_forced` ends the task first."""
    entries = known.update(lambda found: None if found is None else gpus.swept(found)) or ()
    for number in numbers:
        if not 0 <= number < len(entries):
            raise NotFound(f"there is no GPU {number} to release; the state file has {len(entries)}.")
    living = gpus.holders(numbers)
    if not is_forced:
        _refuse(numbers, living, entries)
    for number, holder in living.items():
        _end(gpus, number, holder, grace_s)

    def edit(found: Entries | None) -> Entries | None:
        return found and tuple(state_file.FREE if number in numbers else entry for number, entry in enumerate(found))

    known.write(edit)


def _refuse(numbers: Sequence[int], living: dict[int, holders.Holder], entries: Entries) -> None:
    for number in numbers:
        entry = entries[number]
        if number in living:
            who, pid = living[number].user, entry.task_pid or living[number].pid
        elif state_file.is_alive(entry):
            who, pid = entry.user, entry.task_pid
        else:
            continue
        raise Conflict(f"GPU {number} is in use by {who or 'somebody'} (pid {pid}).", "--force stops the task on it.")


def _end(gpus: Gpus, number: int, holder: holders.Holder, grace_s: float) -> None:
    """Stop the holder of a GPU: its scheduler, which stops the task, or the processes that a killed scheduler left."""
    if os.geteuid() not in (0, holder.uid):
        raise NotAllowed(f"GPU {number} is held by {holder.user or 'somebody'} (pid {holder.pid}), not by you.")
    if holder.job is not None and holder.job.isdigit():
        raise Conflict(f"GPU {number} is held by job {holder.job} of dibs.", f"End it with: dibs cancel {holder.job}")
    device = gpus.device(number)
    path = holders.file(gpus.place, device)
    having = machine.processes_with_open(path)
    scheduler = [proc for proc in having if proc.pid == holder.pid]
    machine.send_signal(scheduler or having, signal.SIGTERM)
    if _is_freed(gpus, device, grace_s + EXTRA_S):
        return
    machine.send_signal(machine.processes_with_open(path), signal.SIGKILL)
    if not _is_freed(gpus, device, EXTRA_S):
        left = machine.describe(machine.processes_with_open(path))
        raise MachineError(f"GPU {number} is still held: {left or 'no visible process'}.")


def _is_freed(gpus: Gpus, device: str, within_s: float) -> bool:
    """Wait until the device is released; False on timeout."""
    until = time.monotonic() + within_s
    while holders.held(gpus.place, [device]):
        left_s = until - time.monotonic()
        if left_s <= 0:
            return False
        watches = holders.watches(gpus.place, device)
        # A holder that cannot be watched is looked at again.
        select.select(watches, (), (), left_s if watches else min(left_s, 0.05))
        for fd in watches:
            os.close(fd)
    return True
