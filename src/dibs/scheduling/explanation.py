"""Explain why a queued job is not running, and what would help.

Pure. It uses the same values and the same plan as the scheduler and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dibs.model import selectors, units
from dibs.model.devices import DeviceId, Inventory
from dibs.scheduling import capacity, choice, feasibility, planner, pools, precedence, views
from dibs.scheduling.choice import Room
from dibs.scheduling.planner import Plan, Reservation
from dibs.scheduling.pools import Amounts
from dibs.scheduling.views import Active, Limit, Occupant, Policy, Position, View, WaitingJob

#: Maximum number of holders to list.
MOST_TOLD = 8

#: Advice for a job that waits behind another job.
PASSING = "A higher --priority, or a --time that ends before that job can start, would let it start earlier."

#: Advice for a job that waits behind other users.
THEIR_TURN = "GPUs go to the user with the least GPU time for their share."


#: Advice for a job that gets the devices of evictable jobs.
EVICTABLE_YIELD = "Evictable jobs give up their GPUs for it, after their minimum run time (evict_min_run) and grace."


#: Advice for a job that waits for a reservation of devices to be over.
SHORTER = "A --time that ends before the reservation begins would let it start sooner."
#: Advice after the machine refused a start.
BY_ITSELF = "Jobs start automatically when this is over; no attempt is used up."


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
        return Reason("the queue is paused", "`dibs resume` resumes it.")
    decided = decided or planner.plan(view, inventory, policy, now)
    if any(start.id == job.id for start in decided.starts):
        return Reason("it is about to start")
    for limit in job.limits:
        if reason := _explain_limit(job, limit, view, decided):
            return reason
    view = _once_started(view, decided)
    pool, demand = planner.pool_of(view, inventory, policy), pools.demand_of(job.request)
    # A resource that is not needed never blocks, even if less than zero of it is left.
    if 0 < demand.cpus > pool.cpus:
        return _explain_cpus(job, pool, policy)
    if 0 < demand.mem > pool.mem:
        left = f"{units.format_size(int(max(pool.mem, 0)))} of {units.format_size(policy.mem_total or 0)}"
        text = f"needs {units.format_size(job.request.mem)} of memory; running jobs leave {left}"
        return Reason(text, "A lower --mem may start sooner.")
    if 0 < demand.gpus > min(pool.gpus, pool.free):
        return _explain_etiquette(job, view, inventory, policy)
    earlier = _earlier(job, decided)
    for kept in decided.reserved:
        other = next((other for other in earlier if other.id == kept.id), None)
        if other is not None and precedence.outlasts(job, kept, policy, now) and not kept.spare.fits(demand):
            return Reason(f"reserved for job {kept.id}, which is ahead{_why_ahead(other, job)}", PASSING)
    reason = _explain_devices(job, view, inventory, policy, earlier)
    own = next((kept for kept in decided.reserved if kept.id == job.id), None)
    passed = "" if own is None or job.since is None else _explain_passers(job, own, job.since, view, now)
    return replace(reason, text=reason.text + passed)


def _earlier(job: WaitingJob, decided: Plan) -> Sequence[WaitingJob]:
    """Return the waiting jobs that are served before a job."""
    places = {other.id: place for place, other in enumerate(decided.waits)}
    if job.id in places:
        return decided.waits[: places[job.id]]
    return [other for other in decided.waits if other.place < job.place]


def _why_ahead(other: WaitingJob, job: WaitingJob) -> str:
    """Return why another job is served first, if it comes later in the order of submission."""
    if job.place >= other.place:
        return ""
    return f" because it has waited {'long for its time limit' if other.request.limit_s else 'very long'}"


def _explain_passers(job: WaitingJob, kept: Reservation, since: int, view: View, now: int) -> str:
    """Return how many later jobs run that passed a waiting one, and until when others may."""
    count = len(precedence.passers(job, view.active, since))
    if not count:
        return ""
    what = f"; {count} shorter job{'s' if count > 1 else ''} started before it"
    if kept.closes_at <= now:
        return f"{what}, and no more will"
    closes_at, today = (datetime.fromtimestamp(at / 1000) for at in (kept.closes_at, now))
    told = f"{closes_at:%H:%M}" if closes_at.date() == today.date() else f"{closes_at:%Y-%m-%d %H:%M}"
    return f"{what}, and no more will after {told}"


def _explain_limit(job: WaitingJob, limit: Limit, view: View, decided: Plan) -> Reason | None:
    """Explain a wait for the limit of a batch, a group or a project; None if the job does not wait for that."""
    kind, name = limit.key
    if limit.is_paused:
        return Reason(f"the group {name} is paused", f"`dibs group resume {name}` resumes it.")
    started = {start.id for start in decided.starts}
    before = [other for other in view.waiting if other.id in started and other.place < job.place]
    costs = {
        other.id: own.cost
        for other in (*before, *_earlier(job, decided))
        for own in other.limits
        if own.key == limit.key
    }
    room = limit.room - sum(costs.get(start.id, 0) for start in decided.starts)
    if room < limit.cost:
        return _explain_full(job, limit, view)
    kept = [reserved.id for reserved in decided.reserved if reserved.id in costs]
    if room - sum(costs[job_id] for job_id in kept) < limit.cost:
        hint = "A higher -j would let both run; a higher --priority would let it start first."
        what = "batch (-j)" if kind == "batch" else f"{kind} {name}"
        return Reason(f"its place in the {what} is reserved for job {kept[0]}, which is ahead", hint)
    return None


def _explain_full(job: WaitingJob, limit: Limit, view: View) -> Reason:
    """Explain that a batch, a group or a project is at its limit."""
    kind, name = limit.key
    used = sum(active.takes(limit.key) for active in view.active)
    if kind == "batch":
        hint = f"`dibs edit {job.id} -j N` raises the limit."
        return Reason("batch limit reached (-j)", hint)
    if kind == "group":
        text = f"the group {name} is at its limit: {used} of {used + limit.room} jobs run"
        return Reason(text, f"`dibs group set {name} -j N` raises the limit.")
    if kind == "hours":
        text = f"the jobs of project {name} used {limit.used} (quota)"
        return Reason(text, f"It starts when older use no longer counts. The quota is in [quotas.project.{name}].")
    text = f"the jobs of project {name} use {used} of {used + limit.room} GPUs (quota)"
    return Reason(text, f"It starts when enough of them have finished. The quota is in [quotas.project.{name}].")


def own_limit(job: WaitingJob, view: View, inventory: Inventory, policy: Policy, decided: Plan) -> str | None:
    """Return what alone keeps free devices from a waiting job of ours: `max_gpus`, `keep_free` or `quota`."""
    if job.request.vram:
        # It may start beside our jobs, which no setting counts again.
        return None
    pool = planner.pool_of(_once_started(view, decided), inventory, policy)
    if job.request.gpus > pool.gpus:
        return "quota" if policy.quota else "max_gpus"
    return "keep_free" if job.request.gpus > pool.free else None


def _once_started(view: View, decided: Plan) -> View:
    """Return the view after a plan was carried out: starts use resources and move us to the back of the line."""
    waiting = {job.id: job for job in view.waiting}
    started = [(waiting[start.id].on(start.devices), start.is_loan) for start in decided.starts]
    new = [job.apart() if is_loan else job for job, is_loan in started]
    ahead = len(view.line) if any(start.devices for start in decided.starts) else view.ahead
    return replace(view, active=[*view.active, *new], ahead=ahead)


def _explain_cpus(job: WaitingJob, pool: Amounts, policy: Policy) -> Reason:
    hint = "The setting cpu_slots raises the limit."
    if job.request.cpus:
        left = f"{int(max(pool.cpus, 0))} of {policy.cpu_slots}"
        text = f"needs {job.request.cpus} CPUs; running jobs leave {left}"
        return Reason(text, f"Fewer --cpus may start sooner. {hint}")
    return Reason(f"all {policy.cpu_slots} CPU slots are in use", hint)


def _explain_etiquette(job: WaitingJob, view: View, inventory: Inventory, policy: Policy) -> Reason:
    if policy.quota and job.request.gpus > planner.pool_of(view, inventory, policy).gpus:
        return Reason(policy.quota, f"It starts when the quota allows it. {feasibility.BY_ROOT}")
    mine = len({device for active in view.active for device in active.devices})
    if policy.max_gpus is not None and mine + job.request.gpus > policy.max_gpus:
        text = f"your jobs use {mine} of {policy.max_gpus} GPUs (setting max_gpus)"
        return Reason(text, "It starts when enough of them have finished. The setting max_gpus raises the limit.")
    text = f"the setting keep_free leaves {units.count_gpus(policy.keep_free)} free for others"
    return Reason(text, "It starts when more GPUs are free. A lower keep_free lets it start sooner.")


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
        why = _why_ahead(larger, job)
        return Reason(
            f"{text}; free GPUs are reserved for job {larger.id}, which is ahead{why} and needs {its}", PASSING
        )
    people = dict.fromkeys(other.user for other in view.line[: view.ahead] if {*free}.intersection(other.devices))
    if people:
        text = f"{text}; {', '.join(people)} is next in the machine-wide line"
        return Reason(text, f"{THEIR_TURN}{_position_of(next(iter(people)), view)}")
    rival = next((other for other, devices in rivals.items() if devices.intersection(wanted)), None)
    if rival is not None:
        text = f"{text}; job {rival.id} is ahead of it{_why_ahead(rival, job)}"
        return Reason(text, "A higher --priority would let it start first.")
    return Reason(text, _what_frees(job, view, wanted, len(free), len(all_free)))


def _position_of(user: str, view: View) -> str:
    """Return how far ahead somebody is in the machine-wide order, and when that changes."""
    theirs, own = view.positions.get(user), view.positions.get("")
    if theirs is None or own is None or theirs.per_share_s > own.per_share_s:
        return ""
    told = f" Yours counts {_gpu_time(own)}, that of {user} {_gpu_time(theirs)}"
    left_s = own.used_s * theirs.share / own.share - theirs.used_s
    return f"{told}; you are next after {user} used {units.format_duration(max(1.0, left_s))} more."


def _gpu_time(one: Position) -> str:
    share = "" if one.share == 1 else f" with share {one.share:g}"
    return f"{one.used_s / 3600:.1f} GPU-hours{share}"


def _explain_unusable(job: WaitingJob, inventory: Inventory, count: int) -> Reason:
    if inventory.problem:
        return Reason(f"needs {units.count_gpus(job.request.gpus)}; {inventory.problem}", "`dibs doctor` has details.")
    named = views.request_devices(inventory, job.request).intersection(inventory.ids)
    told = {d.id: why for d in inventory.devices if d.id in named and (why := capacity.obstacle(d, job.request))}
    out = _by_gpu(told, inventory)
    why = f" ({', '.join(out[:MOST_TOLD])})" if out else ""
    need, choice = units.count_gpus(job.request.gpus), _choice(job)
    is_choosy = len(inventory.usable()) >= job.request.gpus
    hint = f"Without {choice} it could use the others." if is_choosy else "`dibs gpus` shows the state of the GPUs."
    if any(device.closure is not None and device.id in told for device in inventory.devices):
        hint = SHORTER
    if len(named) < job.request.gpus:
        # There were more devices when it was submitted.
        return Reason(
            f"needs {need}; this machine has {len(named) or 'none'} {'matching' if choice else 'now'}{why}", hint
        )
    return Reason(f"needs {need}; {f'only {count}' if count else 'none'} of the right kind can be used now{why}", hint)


def _what_frees(job: WaitingJob, view: View, wanted: Sequence[DeviceId], free: int, all_free: int) -> str:
    """Return what would help a job that is blocked only by current users of the devices."""
    cures = dict.fromkeys(view.held[device].cure for device in wanted if device in view.held)
    if told := " ".join(cure for cure in cures if cure):
        return told
    if _yielding(job, view, wanted) + free >= job.request.gpus:
        return EVICTABLE_YIELD
    if 0 < free < job.request.gpus and not job.request.gpu_ids:
        return f"It would start now with -g {free}."
    if all_free >= job.request.gpus and _choice(job):
        return f"Without {_choice(job)} it could use GPUs that are free."
    ours = [active.id for active in view.active if set(wanted).intersection(active.devices)]
    if len(ours) == 1 and not view.held.keys() & {*wanted}:
        return f"It starts when job {ours[0]} finishes; `dibs cancel {ours[0]}` stops that job."
    if ours:
        return "It starts when enough of them finish; `dibs cancel` stops one of yours."
    return "`dibs gpus` shows who holds them and since when."


def _yielding(job: WaitingJob, view: View, wanted: Sequence[DeviceId]) -> int:
    """Return how many devices evictable jobs would give up for a job."""
    given = {device for active in view.active if precedence.yields_to(active, job) for device in active.devices}
    if not job.is_evictable:
        given.update(device for device, who in view.held.items() if who.is_evictable)
    return len(given.intersection(wanted))


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
        return f"{room.sharers} jobs share it, the maximum{people}"
    told = units.format_size(int(room.left_mib) * choice.MIB) if room.left_mib > 0 else "nothing"
    return f"{told} left{people}"


def _holders_of(device: DeviceId, view: View) -> str:
    mine = [f"job {job.id}{_evictable(job)}" for job in view.active if device in job.devices]
    others = [*view.sharers.get(device, ()), *([view.held[device]] if device in view.held else [])]
    return " and ".join([*mine, *map(_told, others)])


def _told(holder: Occupant) -> str:
    if holder.note is not None:
        return holder.note
    numbered = f"job {holder.job}" if holder.job and holder.job.isdigit() else holder.job
    what = numbered or (f"pid {holder.pid}" if holder.pid else "lease")
    return f"{holder.user}'s {what}{_evictable(holder)}"


def _evictable(holder: Occupant | Active) -> str:
    if isinstance(holder, Occupant) and holder.lent_to:
        return f" (idle, lent to {holder.lent_to})"
    if isinstance(holder, Active) and holder.leaves_at is not None:
        return " (is being evicted)"
    return " (evictable)" if holder.is_evictable else ""


def _by_gpu(told: Mapping[DeviceId, str], inventory: Inventory) -> list[str]:
    """Return one text per group of devices with the same description: `GPU 0-2: job 7`."""
    alike: dict[str, list[int]] = {}
    for device in inventory.devices:
        if device.id in told:
            alike.setdefault(told[device.id], []).append(device.index)
    return [f"GPU {selectors.ranges(indices)}: {what}" for what, indices in alike.items()]
