"""Deciding: which waiting jobs start now, on which devices, and why the others wait.

Pure: everything comes in as a value, and the same input gives the same plan. Inside the queue the order is priority,
then submission. A job that does not fit collects the free devices it could use, so that nothing behind it can keep it
waiting; what it cannot use is free for those behind. Other people's tickets are served in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dibs import devices, matching
from dibs.devices import DeviceId, Inventory
from dibs.errors import Impossible, UserError
from dibs.jobs import JobId, Request


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job as the plan sees it; among equal priorities the lower id comes first."""

    id: JobId
    request: Request
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Active:
    """A job with an attempt under way."""

    id: JobId
    devices: tuple[DeviceId, ...] = ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A device that somebody else's lease holds."""

    user: str
    pid: int | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Another door's ticket, when it is its turn to collect."""

    user: str
    count: int
    devices: frozenset[str]


@dataclass(frozen=True)
class View:
    """All that the plan may know: the queue's head, what is under way, and the machine-wide line."""

    waiting: Sequence[Waiting] = ()
    active: Sequence[Active] = ()
    #: Devices held by leases that are not of our active jobs.
    held: Mapping[DeviceId, Foreign] = field(default_factory=dict)
    #: Other doors' tickets in serving order, and how many of them stand before ours.
    line: Sequence[Claim] = ()
    ahead: int = 0
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that matter to deciding."""

    cpu_slots: int = 1


@dataclass(frozen=True, slots=True)
class Start:
    """Start this job on these devices."""

    id: JobId
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits, in words, and what would help."""

    text: str
    hint: str = ""


@dataclass(frozen=True)
class Plan:
    """What to start, who waits for what, and the ticket to hold meanwhile."""

    starts: tuple[Start, ...]
    #: Waiting jobs in order; each could be started if its devices were free.
    waits: tuple[Waiting, ...]
    #: The first job that waits for devices: what our ticket should say.
    first: Waiting | None


def order(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Return jobs in the order in which they are served."""
    return sorted(waiting, key=lambda job: (-job.priority, job.id))


def eligible(inventory: Inventory, request: Request) -> tuple[DeviceId, ...]:
    """Return the devices that could serve `request`, the preferred ones first."""
    usable = inventory.usable()
    if request.gpu_ids:
        return tuple(d for d in request.gpu_ids if d in usable)
    if request.gpu_type:
        typed = frozenset(devices.of_type(inventory, request.gpu_type))
        usable = tuple(d for d in usable if d in typed)
    preferred = tuple(d for d in request.prefer if d in usable)
    return preferred + tuple(d for d in usable if d not in preferred)


def free_devices(view: View, inventory: Inventory) -> set[DeviceId]:
    """Return the usable devices that nobody holds."""
    taken = {device for job in view.active for device in job.devices}
    return {device for device in inventory.usable() if device not in taken and device not in view.held}


def plan(view: View, inventory: Inventory, policy: Policy) -> Plan:
    """Decide what starts now. Nothing starts while the queue is paused."""
    free = free_devices(view, inventory)
    cpu_free = policy.cpu_slots - sum(1 for job in view.active if not job.devices)
    line = [(claim.count, claim.devices) for claim in view.line]
    ahead = line[: view.ahead]
    collecting: list[matching.Want] = []
    starts: list[Start] = []
    waits: list[Waiting] = []
    first: Waiting | None = None
    for job in order(view.waiting):
        if view.is_paused:
            waits.append(job)
        elif job.request.gpus == 0:
            if cpu_free > 0:
                cpu_free -= 1
                starts.append(Start(job.id, ()))
            else:
                waits.append(job)
        else:
            wanted = eligible(inventory, job.request)
            chosen = matching.choose(job.request.gpus, wanted, free, [*ahead, *collecting]) if free else None
            if chosen is None:
                waits.append(job)
                collecting.append((job.request.gpus, wanted))
                first = first or job
            else:
                # After a grant our next ticket stands behind everybody's.
                ahead = line
                starts.append(Start(job.id, tuple(DeviceId(d) for d in chosen)))
                free.difference_update(starts[-1].devices)
    return Plan(tuple(starts), tuple(waits), first)


def check_possible(request: Request, inventory: Inventory) -> None:
    """Raise Impossible if no amount of waiting would satisfy `request` on this machine."""
    if request.gpus == 0 or not inventory.is_known:
        return
    total = len(inventory.devices)
    if total == 0:
        why = f" ({inventory.problem})" if inventory.problem else ""
        raise Impossible(
            f"asks for {count_gpus(request.gpus)}; this machine has none{why}.",
            "Ask for none with -g 0, or pretend with DIBS_DEVICES=fake:4.",
        )
    if request.gpu_type and not devices.of_type(inventory, request.gpu_type):
        names = ", ".join(sorted({device.name for device in inventory.devices}))
        raise Impossible(f'no GPU matches --gpu-type "{request.gpu_type}".', f"This machine has: {names}.")
    of_kind = len(devices.of_type(inventory, request.gpu_type)) if request.gpu_type else total
    if request.gpus > of_kind:
        kind = f' of type "{request.gpu_type}"' if request.gpu_type else ""
        raise Impossible(
            f"asks for {count_gpus(request.gpus)}; this machine has {of_kind}{kind}.",
            f"Submit with -g {of_kind} or less.",
        )


def resolve(request_words: Sequence[str], option: str, inventory: Inventory) -> tuple[DeviceId, ...]:
    """Return the devices that the words of an option name, or say in one line which word does not."""
    try:
        return devices.find_all(inventory, request_words)
    except devices.UnknownDevice as error:
        raise UserError(f"{option} expected an index or UUID of a GPU: {error}.", "See `dibs gpus`.") from None


def explain(job: Waiting, view: View, inventory: Inventory, policy: Policy) -> Reason:
    """Say why one queued job is not running, and what would help."""
    if view.is_paused:
        return Reason("the queue is paused", "`dibs resume` lets it go on.")
    decided = plan(view, inventory, policy)
    if any(start.id == job.id for start in decided.starts):
        return Reason("it is about to start")
    if job.request.gpus == 0:
        return Reason(f"all {policy.cpu_slots} CPU slots are in use", "The setting cpu_slots allows more.")
    earlier = [other for other in decided.waits if other.id != job.id and _before(other, job)]
    # What starts now is as good as taken, and puts us behind everybody in the line.
    ahead = len(view.line) if any(start.devices for start in decided.starts) else view.ahead
    active = [*view.active, *(Active(start.id, start.devices) for start in decided.starts)]
    return _explain_devices(job, replace(view, active=active, ahead=ahead), inventory, earlier)


def _explain_devices(job: Waiting, view: View, inventory: Inventory, earlier: Sequence[Waiting]) -> Reason:
    wanted = eligible(inventory, job.request)
    if len(wanted) < job.request.gpus:
        out = [f"GPU {d.index}: {d.fault}" for d in inventory.devices if d.fault]
        why = f" ({'; '.join(out)})" if out else f" ({inventory.problem})" if inventory.problem else ""
        need = count_gpus(job.request.gpus)
        return Reason(f"needs {need}; only {len(wanted)} of the right kind can be used now{why}")
    free = [d for d in wanted if d in free_devices(view, inventory)]
    busy = [_holder_of(d, view, inventory) for d in wanted if d not in free]
    need = f"needs {count_gpus(job.request.gpus)}"
    text = f"{need}; {len(free)} of {len(wanted)} free" + (f", {', '.join(busy[:8])}" if busy else "")
    rivals = {other: set(eligible(inventory, other.request)) for other in earlier if other.request.gpus}
    collector = next((other for other, devices in rivals.items() if devices.intersection(free)), None)
    if collector is not None:
        return Reason(
            f"{text}; job {collector.id} is ahead and collects them (it needs {count_gpus(collector.request.gpus)})",
            "A higher --priority would pass it.",
        )
    people = dict.fromkeys(claim.user for claim in view.line[: view.ahead] if claim.devices.intersection(free))
    if people:
        return Reason(f"{text}; {', '.join(people)} is next in the machine-wide line")
    rival = next((other for other, devices in rivals.items() if devices.intersection(wanted)), None)
    if rival is not None:
        return Reason(f"{text}; behind job {rival.id}")
    return Reason(text, f"It would start now with -g {len(free)}." if free and not job.request.gpu_ids else "")


def _before(other: Waiting, job: Waiting) -> bool:
    return (-other.priority, other.id) < (-job.priority, job.id)


def _holder_of(device: DeviceId, view: View, inventory: Inventory) -> str:
    index = inventory.index_of(device)
    mine = next((job.id for job in view.active if device in job.devices), None)
    if mine is not None:
        return f"GPU {index}: job {mine}"
    holder = view.held.get(device)
    if holder is None:
        return f"GPU {index}: not usable"
    what = f"job {holder.job}" if holder.job else f"pid {holder.pid}" if holder.pid else "a lease"
    return f"GPU {index}: {holder.user}'s {what}"


def count_gpus(count: int) -> str:
    """Return "1 GPU", "2 GPUs"."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
