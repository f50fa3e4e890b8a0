"""Foreign use: which processes use a device without a lease, and how much use blocks the device.

A process is foreign by its owner: the holder of an exclusive lease may use the device with any process. On a shared
device only processes started under a share are not foreign. Memory without a visible owner counts only if nobody holds
the device.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dibs.model import units
from dibs.model.devices import Device, Process

#: Processes that a description names.
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """The amounts in bytes above which use counts, and the devices on which it never does."""

    #: On a device without a lease: less belongs to the driver itself.
    memory: int = 2**30
    #: Per process: a desktop uses a little of each GPU.
    process: int = 200 * 2**20
    #: Indices, ids, or prefixes of ids.
    ignored: tuple[str, ...] = ()


def with_foreign_use(
    device: Device, users: Collection[str | None], limits: Limits, outside: Collection[int] = ()
) -> Device:
    """Return a device with its foreign use.

    `users` hold a lease of it (None: an unknown user); `outside` are processes that were started under no share.
    """
    strangers = foreign_processes(device, users, limits, outside)
    memory = sum(process.memory or 0 for process in strangers)
    if not users and (device.memory_used or 0) > limits.memory:
        memory = max(memory, device.memory_used or 0)
    if not strangers and not memory:
        return device
    told = None if is_ignored(device, limits) else describe(strangers, memory)
    return replace(device, foreign=told, foreign_memory=memory)


def foreign_processes(
    device: Device, users: Collection[str | None], limits: Limits, outside: Collection[int] = ()
) -> tuple[Process, ...]:
    """Return the living processes on a device that exceed the limit and do not belong to a holder."""
    if None in users:
        # An unknown user holds the device, and any process may belong to that user.
        return ()
    return tuple(
        process
        for process in device.processes
        # A process without an owner is dead or in another container; only the device's memory shows it.
        if process.user is not None
        and (process.user not in users or process.pid in outside)
        and (process.memory is None or process.memory >= limits.process)
    )


def is_ignored(device: Device, limits: Limits) -> bool:
    """Return whether the settings ignore foreign use of a device."""
    words = [word.lower() for word in limits.ignored if word]
    return any(word == str(device.index) or device.id.lower().startswith(word) for word in words)


def describe(strangers: Sequence[Process], memory: int) -> str:
    """Describe who uses a device without a lease."""
    if not strangers:
        return (
            f"{units.format_size(memory)} of its memory are used without a lease, by a process that is not visible here"
        )
    named = ", ".join(describe_process(process) for process in strangers[:MOST_NAMED])
    more = f" and {len(strangers) - MOST_NAMED} more" if len(strangers) > MOST_NAMED else ""
    return f"used without a lease by {named}{more}"


def describe_process(process: Process) -> str:
    """Describe one process: `bob's python (pid 4242, 3G)`."""
    size = "" if process.memory is None else f", {units.format_size(process.memory)}"
    return f"{process.user or 'somebody'}'s {process.name or 'process'} (pid {process.pid}{size})"
