"""Explain why a queued job is not running, and what would help.

Pure. It uses the same values and the same plan as the scheduler and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dibs.model import selectors, units
from dibs.model.devices import DeviceId, Inventory
from dibs.scheduling import capacity, choice, planner, pools, views
from dibs.scheduling.choice import Room
from dibs.scheduling.planner import Plan
from dibs.scheduling.pools import Amounts
from dibs.scheduling.views import Occupant, Policy, View, WaitingJob

#: Maximum number of holders to list.
MOST_TOLD = 8

#: Advice for a job that waits behind another job.
PASSING = "A higher --priority would pass it; so would a --time that ends before it can start."

#: Advice for a job that waits behind other users.
THEIR_TURN = "Whoever was served least recently comes first; your turn is after theirs."


#: Advice after the machine refused a start.
BY_ITSELF = "Jobs start by themselves when this is over, and no attempt is used up."


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits, and what would help, as text."""

    text: str
    hint: str = ""


def explain(
    job: WaitingJob, view: View, inventory: Inventory, policy: Policy, now: int, decided: Plan | None = None
) -> Reason:
    """Return why a queued job is not running and what would help; `decided` is the plan for `view`, if there is one."""
    if view.trouble is not None:
        return Reason(view.trouble, BY_ITSELF)
    if view.is_paused:
        return Reason("the queue is paused", "`dibs resume` lets it go on.")
    decided = decided or planner.plan(view, inventory, policy, now)
    if any(start.id == job.id for start in decided.starts):
        return Reason("it is about to start")
    if job.room is not None and (reason := _explain_room(job, job.room, view, decided)):
        return reason
    view = _once_started(view, decided)
    pool, demand = planner.pool_of(view, inventory, policy), pools.demand_of(job.request)
    # A resource that is not needed never blocks, even if less than zero of it is left.
    if 0 < demand.cpus > pool.cpus:
        return _explain_cpus(job, pool, policy)
    if 0 < demand.mem > pool.mem:
        left = f"{units.format_size(int(max(pool.mem, 0)))} of {units.format_size(policy.mem_total or 0)}"
        text = f"needs {units.format_size(job.request.mem)} of memory; running jobs leave {left}"
        return Reason(text, "Less --mem may fit sooner.")
    if 0 < demand.gpus > min(pool.gpus, pool.free):
        return _explain_etiquette(job, view, policy)
    earlier = [other for other in decided.waits if other.place < job.place]
    for kept in decided.reserved:
        is_earlier = any(kept.id == other.id for other in earlier)
        if is_earlier and planner.outlasts(job.request, kept, policy, now) and not kept.spare.fits(demand):
            return Reason(f"what it needs is kept for job {kept.id}, which is ahead", PASSING)
    return _explain_devices(job, view, inventory, policy, earlier)


def _explain_room(job: WaitingJob, room: int, view: View, decided: Plan) -> Reason | None:
    """Explain a wait for the batch limit; None if the job does not wait for that."""
    mates = {other.id for other in view.waiting if other.batch == job.batch and other.place < job.place}
    room -= sum(start.id in mates for start in decided.starts)
    if room <= 0:
        hint = f"`dibs edit {job.id} -j N` would let more run."
        return Reason("as many of its batch run as -j allows at once", hint)
    kept = [reserved.id for reserved in decided.reserved if reserved.id in mates]
    if room <= len(kept):
        hint = "A higher -j would let both run; a higher --priority would pass it."
        return Reason(f"its place in the batch (-j) is kept for job {kept[0]}, which is ahead", hint)
    return None


def _once_started(view: View, decided: Plan) -> View:
    """Return the view after a plan was carried out: starts use resources and move us to the back of the line."""
    waiting = {job.id: job for job in view.waiting}
    new = [waiting[start.id].on(start.devices) for start in decided.starts]
    ahead = len(view.line) if any(start.devices for start in decided.starts) else view.ahead
    return replace(view, active=[*view.active, *new], ahead=ahead)


def _explain_cpus(job: WaitingJob, pool: Amounts, policy: Policy) -> Reason:
    hint = "The setting cpu_slots allows more."
    if job.request.cpus:
        left = f"{int(max(pool.cpus, 0))} of {policy.cpu_slots}"
        text = f"needs {job.request.cpus} CPUs; running jobs leave {left}"
        return Reason(text, f"Fewer --cpus may fit sooner. {hint}")
    return Reason(f"all {policy.cpu_slots} CPU slots are in use", hint)


def _explain_etiquette(job: WaitingJob, view: View, policy: Policy) -> Reason:
    mine = len({device for active in view.active for device in active.devices})
    if policy.max_gpus is not None and mine + job.request.gpus > policy.max_gpus:
        text = f"your jobs use {mine} of the {policy.max_gpus} GPUs that max_gpus allows"
        return Reason(text, "It starts when enough of them have ended. The setting max_gpus allows more.")
    text = f"the setting keep_free leaves {units.count_gpus(policy.keep_free)} free for others"
    return Reason(text, "It starts when more are free. A lower keep_free lets it start sooner.")


def _explain_devices(
    job: WaitingJob, view: View, inventory: Inventory, policy: Policy, earlier: Sequence[WaitingJob]
) -> Reason:
    wanted = views.eligible(inventory, job.request)
    if len(wanted) < job.request.gpus:
        return _explain_unusable(job, inventory, len(wanted))
    left = capacity.rooms_of_view(view, inventory, policy) if capacity.is_shared(view) else {}
    all_free = planner.free_devices(view, inventory)
    if job.request.vram:
        all_free = {device for device, room in left.items() if room.fits(job.request.mib)}
    free = [d for d in wanted if d in all_free]
    kind = views.request_devices(inventory, job.request)
    drained = {d.id: d.drained for d in inventory.devices if d.drained and d.id in kind}
    busy = {d: _occupied(d, left, view, job.request.mib) for d in wanted if d not in free} | drained
    count, total = units.count_gpus(job.request.gpus), len(wanted) + len(drained)
    text = f"needs {count}; {len(free)} of {total} free"
    if job.request.vram:
        text = f"asks for {units.format_size(job.request.vram)} on {count}; {len(free)} of {total} have room"
    text = ", ".join([text, *_by_gpu(busy, inventory)[:MOST_TOLD]])
    rivals = {other: set(views.eligible(inventory, other.request)) for other in earlier if other.request.gpus}
    larger = next((other for other, devices in rivals.items() if devices.intersection(free)), None)
    if larger is not None:
        its = units.count_gpus(larger.request.gpus)
        return Reason(f"{text}; what is free is kept for job {larger.id}, which is ahead and needs {its}", PASSING)
    people = dict.fromkeys(other.user for other in view.line[: view.ahead] if {*free}.intersection(other.devices))
    if people:
        return Reason(f"{text}; {', '.join(people)} is next in the machine-wide line", THEIR_TURN)
    rival = next((other for other, devices in rivals.items() if devices.intersection(wanted)), None)
    if rival is not None:
        return Reason(f"{text}; job {rival.id} is ahead of it", "A higher --priority would pass it.")
    return Reason(text, _what_frees(job, view, wanted, len(free), len(all_free)))


def _explain_unusable(job: WaitingJob, inventory: Inventory, count: int) -> Reason:
    if inventory.problem:
        return Reason(f"needs {units.count_gpus(job.request.gpus)}; {inventory.problem}", "`dibs doctor` says more.")
    named = views.request_devices(inventory, job.request).intersection(inventory.ids)
    told = {d.id: why for d in inventory.devices if d.id in named and (why := capacity.obstacle(d, job.request))}
    out = _by_gpu(told, inventory)
    why = f" ({', '.join(out[:MOST_TOLD])})" if out else ""
    need, choice = units.count_gpus(job.request.gpus), _choice(job)
    is_choosy = len(inventory.usable()) >= job.request.gpus
    hint = f"Without {choice} it could use the others." if is_choosy else "`dibs gpus` shows how the GPUs are."
    if len(named) < job.request.gpus:
        # There were more devices when it was submitted.
        return Reason(
            f"needs {need}; this machine has {len(named) or 'none'} {'that would do' if choice else 'now'}{why}", hint
        )
    return Reason(f"needs {need}; {f'only {count}' if count else 'none'} of the right kind can be used now{why}", hint)


def _what_frees(job: WaitingJob, view: View, wanted: Sequence[DeviceId], free: int, all_free: int) -> str:
    """Return what would help a job that is blocked only by current users of the devices."""
    cures = dict.fromkeys(view.held[device].cure for device in wanted if device in view.held)
    if told := " ".join(cure for cure in cures if cure):
        return told
    if 0 < free < job.request.gpus and not job.request.gpu_ids:
        return f"It would start now with -g {free}."
    if all_free >= job.request.gpus and _choice(job):
        return f"Without {_choice(job)} it could use GPUs that are free."
    ours = [active.id for active in view.active if set(wanted).intersection(active.devices)]
    if len(ours) == 1 and not view.held.keys() & {*wanted}:
        return f"It starts when job {ours[0]} has ended; `dibs cancel {ours[0]}` ends it sooner."
    if ours:
        return "It starts when enough of them have ended; `dibs cancel` ends one of yours sooner."
    return "`dibs gpus` shows who holds them and since when."


def _choice(job: WaitingJob) -> str:
    """Return the option with which a job restricted the devices; empty if it did not."""
    return "--gpu-ids" if job.request.gpu_ids else "--gpu-type" if job.request.gpu_type else ""


def _occupied(device: DeviceId, left: Mapping[DeviceId, Room], view: View, mib: int) -> str:
    """Describe who has a device and, for a sharing job, how much of it is left."""
    who, room = _holders_of(device, view), left.get(device)
    if not mib or room is None:
        return who or "not usable"
    people = f" ({who})" if who else ""
    if room.places <= 0:
        return f"{room.sharers} jobs share it, and no more may{people}"
    told = units.format_size(int(room.left_mib) * choice.MIB) if room.left_mib > 0 else "nothing"
    return f"{told} left{people}"


def _holders_of(device: DeviceId, view: View) -> str:
    mine = [f"job {job.id}" for job in view.active if device in job.devices]
    others = [*view.sharers.get(device, ()), *([view.held[device]] if device in view.held else [])]
    return " and ".join([*mine, *map(_told, others)])


def _told(holder: Occupant) -> str:
    if holder.note is not None:
        return holder.note
    numbered = f"job {holder.job}" if holder.job and holder.job.isdigit() else holder.job
    what = numbered or (f"pid {holder.pid}" if holder.pid else "lease")
    return f"{holder.user}'s {what}"


def _by_gpu(told: Mapping[DeviceId, str], inventory: Inventory) -> list[str]:
    """Return one text per group of devices with the same description: `GPU 0-2: job 7`."""
    alike: dict[str, list[int]] = {}
    for device in inventory.devices:
        if device.id in told:
            alike.setdefault(told[device.id], []).append(device.index)
    return [f"GPU {selectors.ranges(indices)}: {what}" for what, indices in alike.items()]
