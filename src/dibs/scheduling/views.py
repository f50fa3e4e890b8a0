"""What a plan is made of, as values: the queue's head, what is under way, the machine-wide line, and the settings.

Also which devices could serve a request at all. Who gets them is `scheduling`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dibs.model import devices
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import JobId, Request
from dibs.scheduling import capacity, choice


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job as the plan sees it; among equal priorities the lower rank comes first, then the lower id."""

    id: JobId
    request: Request
    priority: int = 0
    batch: int = 0
    #: How many more of its batch may be under way; None: any number.
    room: int | None = None
    rank: str = ""

    @property
    def place(self) -> tuple[int, str, JobId]:
        """Return what sorts jobs in the order in which they are served."""
        return -self.priority, self.rank, self.id


@dataclass(frozen=True, slots=True)
class Active:
    """A job with an attempt under way, and what it uses until it ends."""

    id: JobId
    devices: tuple[DeviceId, ...] = ()
    cpus: int = 0
    mem: int = 0
    limit_s: float | None = None
    #: Wall-clock milliseconds; None: it is about to start.
    started_at: int | None = None
    batch: int = 0
    #: MiB that it has of each device; 0: all of it.
    mib: int = 0


@dataclass(frozen=True, slots=True)
class Occupant:
    """Somebody else who holds a device."""

    user: str
    pid: int | None = None
    job: str | None = None
    #: MiB of it; 0: all of it.
    mib: int = 0
    #: In words, where it is nobody: what has to happen before the device is free.
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Collector:
    """Another door in the machine-wide line, when it is its turn to collect devices."""

    user: str
    count: int
    devices: Collection[str]
    #: MiB of each device; 0: all of it.
    mib: int = 0
    #: Whether devices that are shared now are kept from newcomers for it, the first ones first.
    is_emptying: bool = True


@dataclass(frozen=True)
class View:
    """All that the plan may know: the queue's head, what is under way, and the machine-wide line."""

    waiting: Sequence[Waiting] = ()
    active: Sequence[Active] = ()
    #: Devices held by leases that are not of our active jobs.
    held: Mapping[DeviceId, Occupant] = field(default_factory=dict)
    #: Other doors' tickets in serving order, and how many of them stand before ours.
    line: Sequence[Collector] = ()
    ahead: int = 0
    is_paused: bool = False
    #: Those who share a device and are not of our active jobs.
    sharers: Mapping[DeviceId, Sequence[Occupant]] = field(default_factory=dict)
    #: When devices were last taken; told only where that may decide.
    used_at: Mapping[DeviceId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that matter to deciding."""

    cpu_slots: int = 1
    #: Bytes of memory that `--mem` jobs share; None: not counted.
    mem_total: int | None = None
    #: Seconds that a job without a limit is expected to run.
    assumed_s: float = 86400.0
    #: Etiquette: the most devices our jobs use at once, and those they leave free for others.
    max_gpus: int | None = None
    keep_free: int = 0
    #: How many jobs share a device at most.
    most_sharers: int = choice.MOST_SHARERS


def order(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Return jobs in the order in which they are served."""
    return sorted(waiting, key=lambda job: job.place)


def windows(inventory: Inventory, policy: Policy) -> tuple[int, int]:
    """Return how many jobs of a line can start in one plan at most: of one for whole devices, of one that shares."""
    count = len(inventory.devices)
    return count + policy.cpu_slots, count * policy.most_sharers + policy.cpu_slots


def request_devices(inventory: Inventory, request: Request) -> frozenset[DeviceId]:
    """Return the devices of the right kind for `request`, well or not."""
    if request.gpu_ids:
        return frozenset(request.gpu_ids)
    return frozenset(devices.of_type(inventory, request.gpu_type) if request.gpu_type else inventory.ids)


def eligible(inventory: Inventory, request: Request) -> tuple[DeviceId, ...]:
    """Return the devices that could serve `request`, the preferred ones first."""
    if inventory.problem is not None:
        return ()
    usable = tuple(device.id for device in inventory.devices if capacity.obstacle(device, request) is None)
    if request.is_exact:
        return tuple(d for d in request.gpu_ids if d in usable)
    right = request_devices(inventory, request)
    usable = tuple(d for d in usable if d in right)
    preferred = tuple(d for d in request.prefer if d in usable)
    return preferred + tuple(d for d in usable if d not in preferred)
