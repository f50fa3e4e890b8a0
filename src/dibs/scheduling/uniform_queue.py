"""The plan of a queue in which all waiting jobs ask for the same whole GPUs: nobody can pass anybody.

Most plans are of this kind, and between two short jobs the plan is on the way. `planner` decides the same, but also
reserves devices for the first job that does not fit, which here nobody could take.

Apart: It is compared with `planner` for random queues.
"""

from __future__ import annotations

from dibs.model.devices import DeviceId, Inventory
from dibs.scheduling import capacity, choice, planner, views
from dibs.scheduling.choice import Terms
from dibs.scheduling.planner import Plan, Start
from dibs.scheduling.views import Policy, View


def plan(view: View, inventory: Inventory, policy: Policy) -> Plan | None:
    """Return what `planner.plan` decides, without reservations; None if the queue is not that simple."""
    if not _is_uniform(view, policy):
        return None
    waiting = views.order(view.waiting)
    request = waiting[0].request
    wanted = views.eligible(inventory, request)
    if len(wanted) < request.gpus:
        # It must not keep a place in the line for what cannot be.
        return None
    rooms = dict.fromkeys(planner.free_devices(view, inventory, ignores_foreign=True), capacity.WHOLE)
    terms = Terms(closeness=inventory.closeness, first=request.prefer, used_at=view.used_at)
    starts: list[Start] = []
    for job in waiting:
        chosen = choice.choose(request.gpus, wanted, rooms, (), terms) if len(rooms) >= request.gpus else None
        if chosen is None:
            break
        starts.append(Start(job.id, tuple(DeviceId(device) for device in chosen)))
        for device in starts[-1].devices:
            del rooms[device]
    waits = tuple(waiting[len(starts) :])
    return Plan(tuple(starts), waits, waits[0] if waits else None)


def _is_uniform(view: View, policy: Policy) -> bool:
    """Tell whether all waiting jobs are alike, nothing bounds them but free devices, and nobody else waits."""
    if not view.waiting or view.is_paused or view.line or view.sharers or view.lendable:
        return False
    request = view.waiting[0].request
    is_plain = request.gpus and not (request.vram or request.cpus or request.mem or request.is_evictable)
    if not is_plain or policy.max_gpus is not None or policy.keep_free:
        return False
    if any(job.mib or job.is_evictable for job in view.active):
        return False
    return all(
        job.request is request and job.room is None and not job.bounds and not job.history for job in view.waiting
    )
