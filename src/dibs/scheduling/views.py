"""The input of a plan, as values: the queue's head, active jobs, the machine-wide line, and the settings.

Also which devices could serve a request at all; `planner` decides who gets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dibs.model import devices
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import JobId, Request
from dibs.scheduling import capacity, choice


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job as the planner sees it; among equal priorities the lower rank comes first, then the lower id."""

    id: JobId
    request: Request
    priority: int = 0
    batch: int = 0
    #: How many more jobs of its batch may be active; None: no limit.
    room: int | None = None
    rank: str = ""

    @property
    def place(self) -> tuple[int, str, JobId]:
        """Return the key that sorts jobs in serving order."""
        return -self.priority, self.rank, self.id

    def on(self, devices: tuple[DeviceId, ...], started_at: int | None = None) -> Active:
        """Return the job as it is after its start on these devices."""
        of = self.request
        return Active(self.id, devices, of.cpus, of.mem, of.limit_s, started_at, self.batch, of.mib)


@dataclass(frozen=True, slots=True)
class Active:
    """A job with an active attempt, and the resources it uses until it ends."""

    id: JobId
    devices: tuple[DeviceId, ...] = ()
    cpus: int = 0
    mem: int = 0
    limit_s: float | None = None
    #: Wall-clock milliseconds; None: it is about to start.
    started_at: int | None = None
    batch: int = 0
    #: MiB it has of each device; 0: exclusive use.
    mib: int = 0


@dataclass(frozen=True, slots=True)
class Occupant:
    """Another user who holds a device."""

    user: str
    pid: int | None = None
    job: str | None = None
    #: MiB of it; 0: exclusive use.
    mib: int = 0
    #: If there is no holder: what has to happen before the device is free, as text.
    note: str | None = None
    #: What ends a process that blocks the device without holding it, as text.
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Collector:
    """Another participant in the machine-wide line whose turn it is to collect devices."""

    user: str
    count: int
    devices: Collection[str]
    #: MiB of each device; 0: exclusive use.
    mib: int = 0
    #: Whether newcomers are kept off devices that are shared now, the first ones first.
    is_emptying: bool = True


@dataclass(frozen=True)
class View:
    """Everything the plan depends on: the queue's head, active jobs, and the machine-wide line."""

    waiting: Sequence[WaitingJob] = ()
    active: Sequence[Active] = ()
    #: Devices whose leases do not belong to our active jobs.
    held: Mapping[DeviceId, Occupant] = field(default_factory=dict)
    #: Tickets of others in serving order, and how many of them are ahead of ours.
    line: Sequence[Collector] = ()
    ahead: int = 0
    is_paused: bool = False
    #: Sharers of each device other than our active jobs.
    sharers: Mapping[DeviceId, Sequence[Occupant]] = field(default_factory=dict)
    #: When devices were last taken; only set where it may affect the choice.
    used_at: Mapping[DeviceId, float] = field(default_factory=dict)
    #: If the machine is why the queue is paused: the reason, as text.
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that affect scheduling."""

    cpu_slots: int = 1
    #: Bytes of memory shared by `--mem` jobs; None: not counted.
    mem_total: int | None = None
    #: Assumed run time in seconds of a job without a limit.
    assumed_s: float = 86400.0
    #: Etiquette: the most devices our jobs use at once, and how many they leave free for others.
    max_gpus: int | None = None
    keep_free: int = 0
    #: Maximum number of jobs that share a device.
    most_sharers: int = choice.MOST_SHARERS


def order(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return jobs in the order in which they are served."""
    return sorted(waiting, key=lambda job: job.place)


def windows(inventory: Inventory, policy: Policy) -> tuple[int, int]:
    """Return how many jobs of a line can start in one plan at most: for exclusive use, and for sharing."""
    count = len(inventory.devices)
    return count + policy.cpu_slots, count * policy.most_sharers + policy.cpu_slots


def request_devices(inventory: Inventory, request: Request) -> frozenset[DeviceId]:
    """Return the devices of the right kind for `request`, healthy or not."""
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
