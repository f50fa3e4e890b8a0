"""What is to be leased, and standing in the line for it: what every door does that holds GPUs without a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.devices import probe
from dibs.errors import Busy, MachineError, UserError
from dibs.foreground import device_check, lease_terms
from dibs.leases import device_lease, drains, holders, waiters
from dibs.model import devices, environment, units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.scheduling import capacity, choice, feasibility, views
from dibs.submission import job_options
from dibs.submission.options import Args
from dibs.system import settings


@dataclass(frozen=True)
class Wanted:
    """What is to be leased, on which machine, and how it is waited for."""

    request: Request
    inventory: Inventory
    values: settings.Settings
    visible: str
    #: Seconds to wait; None: as long as it takes.
    timeout_s: float | None

    def environ(self, ids: Sequence[DeviceId]) -> dict[str, str]:
        """Return the variables that tell a program which GPUs are its own, and to be frugal where it shares them."""
        own = environment.for_devices(self.inventory, ids, self.visible)
        frugal = environment.FRUGAL if self.request.vram else {}
        return {name: value for name, value in frugal.items() if name not in os.environ} | own

    def ordered(self, ids: Sequence[str]) -> list[DeviceId]:
        """Return devices with the preferred ones first, as in a job."""
        order = {device: place for place, device in enumerate(views.eligible(self.inventory, self.request))}
        return sorted((DeviceId(device) for device in ids), key=lambda device: order[device])


def inventory_now(values: settings.Settings) -> Inventory:
    """Return the GPUs of this machine as they are, with what root has drained."""
    inventory = probe.read(values)
    if inventory.problem and not inventory.devices:
        raise MachineError(inventory.problem)
    return devices.with_drained(inventory, drains.Drains(device_lease.folder(), {}).now())


def request(args: Args, inventory: Inventory) -> Request:
    """Return what options ask for; a wish that no machine could fulfil is refused."""
    count, gpu_ids = args.get(job_options.GPUS), args.get(job_options.GPU_IDS)
    job_options.check_count(count, gpu_ids, args.get(job_options.GPU_TYPE))
    if count and count.gpus == 0:
        raise UserError("lease expected at least one GPU, got --gpus 0.")
    chosen = feasibility.resolve(gpu_ids or (), "--gpu-ids", inventory)
    request = Request(
        count.gpus if count else len(chosen) or 1,
        chosen,
        feasibility.resolve(args.get(job_options.PREFER) or (), "--prefer", inventory),
        args.get(job_options.GPU_TYPE) or (count.gpu_type if count else None),
        vram=args.get(job_options.VRAM) or 0,
        ignore_foreign=args.has(job_options.IGNORE_FOREIGN),
    )
    feasibility.check_possible(request, inventory, views.Policy(), "the lease")
    return request


def acquire(wanted: Wanted, job: str, wake_fd: int | None, say: Callable[[str], None]) -> list[device_lease.Lease]:
    """Stand in the line until the GPUs are ours; `job` is what others read about it."""
    place = device_lease.folder()
    inventory, count = wanted.inventory, wanted.request.gpus
    able = views.eligible(inventory, wanted.request)
    need = units.count_gpus(count)
    if len(able) < count:
        told = {device.index: capacity.obstacle(device, wanted.request) for device in inventory.devices}
        faults = "; ".join(f"GPU {index}: {why}" for index, why in told.items() if why)
        raise Busy(f"needs {need}; only {len(able)} can be used now ({inventory.problem or faults}).")
    vet = device_check.of(wanted.values, say, wanted.request)
    try:
        return waiters.acquire(
            place,
            count,
            able,
            device_lease.own_note(job),
            collect_for_s=wanted.values.collect_for,
            terms=lease_terms.Known(place, inventory, wanted.values, wanted.request).terms,
            wake_fd=wake_fd,
            timeout_s=wanted.timeout_s,
            on_wait=lambda ticket: say(f"waiting for {need}: {held_by(place, inventory, able)}"),
            vet=vet,
        )
    except waiters.TimedOut:
        reasons = {} if vet is None else vet.reasons
        left = [f"GPU {inventory.index_of(DeviceId(device))}: {why}" for device, why in reasons.items()]
        raise Busy(f"{need} cannot be had now: {', '.join(left) or held_by(place, inventory, able)}.") from None


def held_by(place: device_lease.Folder, inventory: Inventory, wanted: Sequence[DeviceId]) -> str:
    """Say who holds which of the devices."""
    told = [
        f"GPU {inventory.index_of(DeviceId(device))}: {' and '.join(map(_told, found))}"
        for device, found in holders.survey(place, wanted).items()
        if found
    ]
    return ", ".join(told) or "others are next in the line"


def _told(who: device_lease.Holder) -> str:
    told = [who.user or "somebody", _job(who.job) if who.job else "", f"(pid {who.pid})" if who.pid else ""]
    told += [f"with {units.format_size(who.mib * choice.MIB)}" if who.mib else ""]
    return " ".join(word for word in told if word)


def _job(job: str) -> str:
    return f"job {job}" if job.isdigit() else job
