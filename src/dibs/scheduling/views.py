"""The input of a plan, as values: the queue's head, active jobs, the machine-wide line, and the settings.

Also which devices could serve a request at all; `planner` decides who gets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs.model import devices
from dibs.model.devices import DeviceId, Inventory
from dibs.model.fields import DEFAULT_GROUP, DEFAULT_PROJECT
from dibs.model.jobs import JobId, Request
from dibs.model.lab_rules import Quota
from dibs.scheduling import capacity, choice
from dibs.scheduling.durations import History


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on what the jobs of a batch, a group or a project use, and what is left of it."""

    #: "batch", "group", "project" or "hours" (of a project in a week), and which.
    key: tuple[str, int | str]
    room: int
    #: What the job takes of it: 1 of a number of jobs, or its number of GPUs.
    cost: int = 1
    #: A user paused the group.
    is_paused: bool = False
    #: Of hours: what was used, as text.
    used: str = ""


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
    group: str = DEFAULT_GROUP
    project: str = DEFAULT_PROJECT
    #: The bounds of its group and its project.
    bounds: tuple[Limit, ...] = ()
    #: When it was submitted, in wall-clock milliseconds; None: not known.
    since: int | None = None
    #: How long jobs like it took.
    history: History = ()
    #: GPU time of its project, if the least comes first.
    turn_s: float = 0.0

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Return all bounds on what it may use beside others."""
        own = () if self.room is None else (Limit(("batch", self.batch), self.room),)
        return (*own, *self.bounds)

    @property
    def line(self) -> tuple[Request, int, str, str]:
        """Return what jobs have in common that only their order tells apart."""
        return self.request, self.batch, self.group, self.project

    @property
    def is_evictable(self) -> bool:
        """Tell whether it starts only on devices that no ordinary job wants, and gives them up again."""
        return self.request.is_evictable

    @property
    def gpus(self) -> int:
        """Return how many GPUs it needs."""
        return self.request.gpus

    @property
    def place(self) -> tuple[bool, int, float, str, JobId]:
        """Return the key that sorts jobs in serving order."""
        return self.is_evictable, -self.priority, self.turn_s, self.rank, self.id

    def on(self, devices: tuple[DeviceId, ...], started_at: int | None = None) -> Active:
        """Return the job as it is after its start on these devices."""
        of = self.request
        return Active(
            self.id, devices, of.cpus, of.mem, of.limit_s, started_at, self.batch, of.mib,
            is_evictable=of.is_evictable, group=self.group, project=self.project, history=self.history,
        )  # fmt: skip


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
    #: Whether it may be evicted, and the user for whom it was evicted last.
    is_evictable: bool = False
    evicted_by: str = ""
    #: When it has left its devices at the latest, because it is being evicted; wall-clock milliseconds.
    leaves_at: int | None = None
    group: str = DEFAULT_GROUP
    project: str = DEFAULT_PROJECT
    #: How long jobs like it took.
    history: History = ()
    #: Whether it runs on devices that are lent to it. They are not among its devices: they belong to their holders.
    is_borrower: bool = False

    @property
    def gpus(self) -> int:
        """Return how many devices it holds."""
        return len(self.devices)

    def apart(self) -> Active:
        """Return the job without its devices, which are lent to it."""
        return replace(self, devices=(), is_borrower=True)

    def takes(self, key: tuple[str, int | str]) -> int:
        """Return how much it takes of what a `Limit` with this key bounds."""
        kind, name = key
        if kind == "hours":
            # They do not come back when it ends.
            return 0
        if kind == "project":
            # Those of an evictable job count against nobody.
            return len(self.devices) if self.project == name and not self.is_evictable else 0
        return int(name == (self.batch if kind == "batch" else self.group))


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
    #: As in `Active`; an evictable holder yields to ordinary jobs of all users.
    is_evictable: bool = False
    evicted_by: str = ""
    started_at: int | None = None
    #: Whom the device is lent to, because its lease is idle; as text.
    lent_to: str = ""


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
    #: Whether it waits with an evictable job, which claims nothing from ordinary jobs.
    is_evictable: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """GPU time of a user, of which older time counts less, and the share of the machine that the user has."""

    used_s: float
    share: float = 1.0

    @property
    def per_share_s(self) -> float:
        """Return what the order between users compares."""
        return self.used_s / self.share


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
    #: Where users stand in the machine-wide order, by name; ourselves under an empty one. For explanations.
    positions: Mapping[str, Position] = field(default_factory=dict, compare=False)
    #: Our name among the users of the line.
    user: str = ""
    #: Held devices whose leases are idle, and which evictable jobs may use.
    lendable: frozenset[DeviceId] = frozenset()


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that affect scheduling."""

    cpu_slots: int = 1
    #: Bytes of memory shared by `--mem` jobs; None: not counted.
    mem_total: int | None = None
    #: Assumed run time in seconds of a job without a limit and without others like it.
    assumed_s: float = 86400.0
    #: Etiquette: the most devices our jobs use at once, and how many they leave free for others.
    max_gpus: int | None = None
    keep_free: int = 0
    #: Maximum number of jobs that share a device.
    most_sharers: int = choice.MOST_SHARERS
    #: Seconds that a job runs before it may be evicted, and those it then has to save its work.
    evict_min_run_s: float = 600.0
    evict_grace_s: float = 30.0
    #: Seconds from the submission of an evictable job after which it is served as an ordinary one.
    evictable_wait_s: float = 28 * 86400.0
    #: What the jobs of a project may use.
    project_quotas: Mapping[str, Quota] = field(default_factory=dict)
    #: GPU-hours of projects in the last seven days.
    project_hours: Mapping[str, float] = field(default_factory=dict)
    #: Root's quotas for this user, each with what it is called.
    quotas: Sequence[tuple[str, Quota]] = ()
    #: Why `max_gpus` is what it is, if a quota of root makes it so: in words.
    quota: str = ""
    #: Seconds for each of its GPUs after which later jobs no longer pass a waiting job.
    pass_for_s: float = 7 * 86400.0


def order(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Return jobs in the order in which they are served."""
    return sorted(waiting, key=lambda job: job.place)


def bounded(waiting: Sequence[WaitingJob], active: Sequence[Active], policy: Policy) -> list[WaitingJob]:
    """Return jobs with what the quotas of their projects leave them."""
    left = {name: _limits(name, quota, active, policy) for name, quota in policy.project_quotas.items()}
    return [_bounded(job, left.get(job.project, ())) if left else job for job in waiting]


def _limits(name: str, quota: Quota, active: Sequence[Active], policy: Policy) -> list[Limit]:
    """Return what the quota of a project leaves its jobs."""
    found = []
    if quota.gpus is not None:
        used = sum(job.takes(("project", name)) for job in active)
        found.append(Limit(("project", name), quota.gpus - used))
    hours, most = policy.project_hours.get(name, 0.0), quota.gpu_hours_per_week
    if most is not None and hours >= most:
        found.append(Limit(("hours", name), 0, used=f"{hours:.1f} of {most:g} GPU-hours in 7 days"))
    return found


def _bounded(job: WaitingJob, limits: Sequence[Limit]) -> WaitingJob:
    if not limits or not job.request.gpus or job.is_evictable:
        return job
    return replace(job, bounds=(*job.bounds, *(replace(limit, cost=job.request.gpus) for limit in limits)))


def by_project(waiting: Sequence[WaitingJob], used_s: Mapping[str, float]) -> list[WaitingJob]:
    """Return jobs that are served by the GPU time of their projects, the least first."""
    return [replace(job, turn_s=used_s.get(job.project, 0.0)) for job in waiting]


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
