"""The GPUs: state, holders, history and draining; also free disk space."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from dibs.daemon.service import Daemon
from dibs.devices import usage
from dibs.devices.idle_leases import IdleLease
from dibs.errors import NotAllowed, NotFound
from dibs.http_api import reservations
from dibs.http_api.exchange import Whole
from dibs.http_api.schemas import actions, job_answers, machine_answers, wire
from dibs.jobqueue.outlook import NOT_KEPT, KeptBack, QueueOutlook
from dibs.jobqueue.thread import now_ms
from dibs.leases import blockers, device_lease, drains, holders, tickets
from dibs.leases.blockers import Blocker
from dibs.model import devices, serialization
from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Job
from dibs.scheduling import choice, planner
from dibs.scheduling.views import Active, Occupant, View
from dibs.store.writer import Reader
from dibs.system import disk, locks
from dibs.system.locks import Folder


class HistoryQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The length of the history."""

    minutes: Annotated[Whole, Meta(description="How many minutes of history to return, one mean per minute.")] = 60


async def get_gpus(daemon: Daemon) -> machine_answers.Gpus:
    """Return every GPU and its holders on this machine."""
    daemon.watcher.note_viewer()
    return await gpus(daemon, await daemon.probe_now())


async def gpus(daemon: Daemon, inventory: Inventory) -> machine_answers.Gpus:
    """Return every GPU of an inventory and its current holders."""
    # One question for all of it: this is asked again and again for every page that is open.
    return await daemon.ask(lambda reader: _gpus(daemon, reader, inventory))


def _gpus(daemon: Daemon, reader: Reader, inventory: Inventory) -> machine_answers.Gpus:
    place, ids = daemon.lease_folder, inventory.ids
    found, blocked = _people(place, inventory)
    broken = device_lease.unusable(place, ids)
    inventory = devices.with_faults(inventory, {DeviceId(device): why for device, why in broken.items()})
    line = tickets.line(place, {*ids})
    waiters = [
        machine_answers.Waiter(
            t.user, t.pid, t.count, t.mib * choice.MIB or None, list(t.devices), serialization.moment(_since(t))
        )
        for t in line
    ]
    idle = daemon.devices.idle_since
    kept = daemon.outlook(reader).kept_back()
    begun = reservations.begun(daemon)
    shown = [
        gpu_answer(
            device,
            found.get(device.id, ()),
            idle.get(device.id),
            sum(device.id in t.devices for t in line),
            blocked.get(device.id),
            kept.get(device.id, NOT_KEPT),
            daemon.devices.idle_leases.get(device.id),
            daemon.settings.idle_after,
            begun.get(device.id),
        )
        for device in inventory.devices
    ]
    starts = daemon.starts_trouble(reader)
    return machine_answers.Gpus(shown, waiters, inventory.problem, inventory.restriction, starts)


def _since(ticket: tickets.Ticket) -> int:
    """Return since when a ticket waits, in wall-clock milliseconds; its own time counts from the boot."""
    return now_ms() - max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticket.since_ns) // 1_000_000


def _people(place: Folder, inventory: Inventory) -> tuple[dict[str, tuple[holders.Holder, ...]], dict[str, Blocker]]:
    """Return the holders of each device, and who blocks it, from the same tables."""
    table, locked = locks.table(), locks.LockTable()
    found = holders.survey(place, inventory.ids, table, locked)
    # Nobody is kept from a device that we hold ourselves; it is not looked at, which would take a while.
    mine = {device for device, who in found.items() if len(who) == 1 and who[0].mib is None and _is_ours(who[0])}
    return found, blockers.find(place, [device for device in inventory.ids if device not in mine], table, locked)


def _is_ours(holder: holders.Holder) -> bool:
    return holder.uid == os.geteuid() and holder.pid is not None


async def get_history(daemon: Daemon, query: HistoryQuery) -> machine_answers.History:
    """Return the utilization of the GPUs: every reading of the last hour, and one mean per minute for `minutes`."""
    minutes = min(max(0, query.minutes), usage.MOST_MINUTES)
    kept = await daemon.ask(lambda reader: reader.minutes(now_ms() // 60_000 - minutes))
    recent = dict(daemon.devices.ledger.recent)
    ids = (*daemon.inventory.ids, *recent, *(device for device, *_ in kept))
    found = {device: machine_answers.GpuHistory(device, [], []) for device in ids}
    for device, samples in recent.items():
        found[device].recent = [
            [serialization.moment(s.at), s.memory, s.utilization, s.power, s.temperature] for s in list(samples)
        ]
    for device, minute, *values in kept:
        found[device].minutes.append([serialization.moment(minute * 60_000), *values])
    columns = ["at", "memory", "utilization", "power", "temperature"]
    return machine_answers.History(columns, list(found.values()))


def gpu_answer(
    device: Device,
    found: tuple[holders.Holder, ...],
    idle_since: int | None,
    waiters: int,
    blocker: Blocker | None = None,
    kept: KeptBack = NOT_KEPT,
    unused: IdleLease | None = None,
    idle_after_s: float = 0.0,
    reservation: machine_answers.Reservation | None = None,
) -> machine_answers.Gpu:
    # A holder without a pid and a user has just left.
    held_by = [holder for holder in found if holder.pid is not None or holder.uid is not None]
    return wire.fill(
        machine_answers.Gpu,
        device,
        processes=[wire.fill(machine_answers.Process, process) for process in device.processes],
        # Somebody has a part of its lease.
        state=_state(device, is_leased=bool(held_by) or blocker is not None),
        holders=[_holder(holder) for holder in held_by],
        idle_since=serialization.moment(idle_since),
        unused_since=serialization.moment(unused.since) if unused and held_by else None,
        is_idle=unused is not None and bool(held_by) and unused.has_lasted(idle_after_s),
        waiters=waiters,
        blocked=blocker and wire.fill(machine_answers.Blocked, blocker, fix=blocker.cure),
        reserved_for=None if held_by else kept.reserved_for,
        kept_by=None if held_by else kept.by,
        reservation=reservation,
    )


def _state(device: Device, *, is_leased: bool) -> str:
    """Return the most serious state of a device."""
    if device.fault:
        return "unhealthy"
    if device.drained:
        return "drained"
    # Memory that the last job has not freed yet counts as leased.
    if is_leased or device.settling:
        return "leased"
    return "foreign" if device.foreign else "free"


def _holder(held: holders.Holder) -> machine_answers.Holder:
    since = None if held.since is None else serialization.moment(round(held.since * 1000))
    vram = None if held.mib is None else held.mib * choice.MIB
    flags = held.is_evictable, held.is_loan
    return machine_answers.Holder(held.user, held.uid, held.pid, held.job or None, since, vram, *flags)


async def post_drain(daemon: Daemon, gpu: str, body: actions.DrainIn) -> machine_answers.DrainState:
    """Drain a GPU so that no new job starts on it: for this user, or by root for all users."""
    why = " ".join(body.reason.split())
    device = await _device(daemon, gpu)
    if os.geteuid() == 0:
        drains.mark(daemon.devices.drains.place, device.id, why)
    else:
        await daemon.do(lambda turn: turn.store.drain(device.id, why, turn.now))
        daemon.devices.drains.add_own(device.id, why)
    daemon.wake()
    return _drained(daemon, device)


async def post_undrain(daemon: Daemon, gpu: str) -> machine_answers.DrainState:
    """Undrain a GPU so that jobs start on it again."""
    device = await _device(daemon, gpu)
    is_root = os.geteuid() == 0
    if not is_root and device.id not in daemon.devices.drains.own and device.drained:
        raise NotAllowed(
            f"GPU {device.index} is drained by root for all users.", "Ask the administrator of this machine."
        )
    accepted = daemon.watcher.accept(device.id)
    await daemon.do(lambda turn: (turn.store.undrain(device.id), turn.store.bring_back(device.id, accepted)))
    daemon.devices.drains.remove_own(device.id)
    if is_root:
        drains.unmark(daemon.devices.drains.place, device.id)
    daemon.wake()
    return _drained(daemon, device)


async def _device(daemon: Daemon, gpu: str) -> Device:
    inventory = await daemon.probe_now()
    try:
        return inventory.by_id[devices.find(inventory, gpu)]
    except devices.UnknownDevice as error:
        raise NotFound(f"expected an index or UUID of a GPU: {error}.", "See `dibs gpus`.") from None


def _drained(daemon: Daemon, device: Device) -> machine_answers.DrainState:
    return machine_answers.DrainState(device.id, device.index, daemon.inventory.by_id[device.id].drained)


def machine(daemon: Daemon, seen: QueueOutlook) -> job_answers.Machine:
    """Return the machine as the overview shows it."""
    inventory, kept = daemon.inventory, seen.kept_back()
    reserved = {device for device, why in kept.items() if why.reserved_for is not None}
    return job_answers.Machine(
        gpus=len(inventory.devices),
        free=len(planner.free_devices(seen.view, inventory).difference(reserved)),
        restriction=inventory.restriction,
        problem=inventory.problem,
        devices=_places(inventory, seen.view, kept),
        disk=daemon.lost or daemon.question or full(daemon),
        starts=seen.view.trouble,
    )


def _places(inventory: Inventory, view: View, kept: Mapping[DeviceId, KeptBack]) -> list[job_answers.Place]:
    """Return every GPU and its holders as the scheduler sees them, without asking the driver."""
    ours: dict[DeviceId, list[Active]] = {}
    for job in view.active:
        for held in job.devices:
            ours.setdefault(held, []).append(job)
    found = []
    for device in inventory.devices:
        mine, foreign = ours.get(device.id, []), _others(view, device.id)
        shares = [job_answers.Share(job.id, None, job.mib * choice.MIB or None) for job in mine]
        shares += [job_answers.Share(None, other.user, other.mib * choice.MIB or None) for other in foreign]
        found.append(
            job_answers.Place(
                index=device.index,
                id=device.id,
                state="leased" if mine or foreign else _state(device, is_leased=False),
                job=mine[0].id if mine else None,
                user=foreign[0].user if foreign and not mine else None,
                holders=shares,
                reserved_for=kept.get(device.id, NOT_KEPT).reserved_for,
                kept_by=kept.get(device.id, NOT_KEPT).by,
            )
        )
    return found


def _others(view: View, device: DeviceId) -> list[Occupant]:
    alone = view.held.get(device)
    # An occupant with a note and no cure only marks a GPU that must be checked first: it is no holder.
    is_held = alone is not None and (alone.note is None or bool(alone.cure))
    return [*([alone] if alone and is_held else []), *view.sharers.get(device, ())]


def use(daemon: Daemon, reader: Reader, job: Job) -> list[job_answers.Use]:
    """Return how the latest attempt used each of its GPUs, from the store and from readings not stored yet."""
    found = {device: (peak, mean, looks) for device, peak, mean, looks in reader.uses(job.id, job.attempt)}
    # Not stored yet, so newer than what an earlier daemon stored.
    now = daemon.devices.ledger.uses.copy()
    counted = {key[2]: value for key, value in now.items() if key[:2] == (job.id, job.attempt)}
    found |= {device: (value.peak, value.mean, value.looks) for device, value in counted.items()}
    return [job_answers.Use(device, peak, mean, looks) for device, (peak, mean, looks) in sorted(found.items())]


def full(daemon: Daemon) -> str | None:
    """Return a warning if the disk of the queue is nearly full. The disk is local, so this does not hang."""
    try:
        return disk.warning(daemon.identity.home, disk.room(daemon.identity.home))
    except OSError as error:
        return f"the disk of {daemon.identity.home} does not answer: {error.strerror}"
