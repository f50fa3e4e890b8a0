"""What people see, in the words of the old tool."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from dibs.client import safe_text
from dibs.leases import holders
from dibs_compat.schedule import state_file
from dibs_compat.schedule.state_file import Entries


def say(text: str) -> None:
    """Print for people at once. With the terminal gone nobody reads it, and the task is more important."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(prog: str, text: str) -> None:
    """Print one line about trouble."""
    try:
        print(f"{prog}: {safe_text.clean(text)}", file=sys.stderr, flush=True)
    except OSError:
        # Nobody is there to read it; the exit code still tells.
        return


def moment(at: float) -> str:
    """Return a time in the old tool's format."""
    return time.strftime(state_file.MOMENT, time.localtime(at))


def duration(seconds: float) -> str:
    """Return hours, minutes and seconds, unpadded."""
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60}:{whole % 60}"


def started(name: str, pid: int) -> str:
    """Return the message for a started task."""
    group = os.getpgrp()
    return f"GPU: {name}\nSCH PID: {os.getpid()}\nTASK PID: {pid}\nSCH PGID: {group}\nTASK PGID: {pid}"


def summary(task: Sequence[str], outputs: Iterable[tuple[str, str]], began: float, ended: float) -> str:
    """Return the message for a finished task."""
    lines = [
        ("task", str(list(task))),
        *outputs,
        ("start", moment(began)),
        ("end", moment(ended)),
        ("total time", duration(ended - began)),
    ]
    return "\n" + "".join(f"{name}: {value}\n" for name, value in lines)


def status(entries: Entries, who: Mapping[int, holders.Holder], faults: Mapping[int, str], prefix: str) -> str:
    """Return the table of all GPUs. Who holds a lease is the truth; the entries only tell what for."""
    used = [number for number, entry in enumerate(entries) if number in who or number in faults or not entry.avail]
    free = [number for number in range(len(entries)) if number not in used]
    blocks = [_block(entries[number], who.get(number), faults.get(number), f"{prefix}{number}") for number in used]
    head = ["Currently used GPU:\n-------------------", *blocks] if used else []
    tail = ["Free GPU:\n---------", *(f"GPU {number}" for number in free)] if free else ["No GPU available."]
    return "\n".join([*head, *tail])


def _block(entry: state_file.Entry, holder: holders.Holder | None, fault: str | None, name: str) -> str:
    if holder is None:
        task: object = fault if entry.avail else entry.task and list(entry.task)
        rows = (name if entry.avail else entry.gpu_name, entry.user, task, entry.task_pid, entry.task_start)
    elif not entry.avail and entry.user == holder.user:
        rows = (entry.gpu_name, entry.user, entry.task and list(entry.task), entry.task_pid, entry.task_start)
    else:
        since = None if holder.since is None else moment(holder.since)
        rows = (name, holder.user, holder.job and f"dibs: {holder.job}", holder.pid, since)
    gpu, user, task, pid, since = (None if value is None else safe_text.clean(str(value)) for value in rows)
    return f"GPU: {gpu}\nUser: {user}\nTask: {task}\nTask PID: {pid}\nStarted: {since}\n"
