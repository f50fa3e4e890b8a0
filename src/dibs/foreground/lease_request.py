"""Requests for leases without a job: which devices, on which terms, and waiting for them in the line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.devices import probe
from dibs.errors import Busy, MachineError, UserError
from dibs.foreground import device_check
from dibs.leases import blockers, device_lease, drains, holders, rules_file, waiters
from dibs.model import devices, environment, units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.model.lab_rules import Rules
from dibs.scheduling import capacity, choice, feasibility, views
from dibs.submission import job_options
from dibs.submission.options import Args
from dibs.system import settings
from dibs.system.locks import Folder

#: Seconds after which foreign memory use is measured again, for leases that share a device.
FRESH_S = 5.0


@dataclass(frozen=True)
class LeaseRequest:
    """A requested lease: the devices, the machine, and how long to wait."""

    request: Request
    inventory: Inventory
    values: settings.Settings
    visible: str
    #: Seconds to wait; None: no limit.
    timeout_s: float | None
    #: Seconds after which it ends; None: no limit.
    limit_s: float | None = None

    def environ(self, ids: Sequence[DeviceId]) -> dict[str, str]:
        """Return the variables that name a program's GPUs, and limit its memory where it shares them."""
        own = environment.for_devices(self.inventory, ids, self.visible)
        frugal = environment.FRUGAL if self.request.vram else {}
        return {name: value for name, value in frugal.items() if name not in os.environ} | own

    def ordered(self, ids: Sequence[str]) -> list[DeviceId]:
        """Return devices with the preferred ones first, as for a job."""
        order = {device: place for place, device in enumerate(views.eligible(self.inventory, self.request))}
        return sorted((DeviceId(device) for device in ids), key=lambda device: order[device])


@dataclass(eq=False)
class LeaseTerms:
    """The request and the current state of its devices, read again for each attempt."""

    _place: Folder
    _inventory: Inventory
    _values: settings.Settings
    _request: Request
    _clock: Callable[[], float] = time.monotonic
    #: The first request for a share measures foreign memory use.
    _read_at: float = float("-inf")

    def terms(self) -> choice.Terms:
        """Return the request with the current memory, links and last use of each device."""
        request = self._request
        if request.vram and self._clock() - self._read_at >= FRESH_S:
            self._inventory = device_check.measured(self._values, self._place)
            self._read_at = self._clock()
        is_choosy = request.gpus > 1 or request.vram
        return choice.Terms(
            request.mib,
            capacity.capacities(self._inventory),
            self._values.max_jobs_per_gpu,
            self._inventory.closeness,
            request.prefer,
            holders.used_at(self._place, self._inventory.ids) if is_choosy else {},
        )


def inventory_now(values: settings.Settings) -> Inventory:
    """Return the GPUs of this machine now, and which are drained by root or have lease files that cannot be used."""
    inventory = probe.read(values)
    if inventory.problem and not inventory.devices:
        raise MachineError(inventory.problem)
    place = device_lease.folder()
    broken = {DeviceId(device): why for device, why in device_lease.unusable(place, inventory.ids).items()}
    return devices.with_faults(devices.with_drained(inventory, drains.Drains(place, {}).now()), broken)


def report_unusable(inventory: Inventory, named: Sequence[DeviceId], say: Callable[[str], None]) -> None:
    """Say which GPUs are not used because of their lease files; refuse one that was named."""
    for device, why in device_lease.unusable(device_lease.folder(), inventory.ids).items():
        index = inventory.index_of(DeviceId(device))
        if device in named:
            hint = "Ask the owner of the file or root to remove it."
            raise MachineError(f"GPU {index} cannot be leased: {why}.", hint)
        say(f"GPU {index} is not used: {why}")


def request(args: Args, inventory: Inventory, rules: Rules) -> Request:
    """Return the request that the options describe; refuse what this machine can never provide."""
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
    feasibility.check_possible(request, inventory, views.Policy(quotas=rules_file.quotas(rules)), "the lease")
    return request


def longest_s(limit_s: float | None, rules: Rules) -> float | None:
    """Return the time limit of a lease: the one that was asked for, or the longest that a quota allows."""
    most_s = feasibility.longest_s(rules_file.quotas(rules))
    feasibility.check_time(limit_s, rules_file.quotas(rules), "the lease")
    return most_s if limit_s is None else limit_s


def whole_limit_s(rules: Rules) -> float | None:
    """Return the time limit of a command that takes whole GPUs without options; refuse it if a quota does."""
    quotas = rules_file.quotas(rules)
    feasibility.check_quotas(Request(1), quotas, "each command")
    return feasibility.longest_s(quotas)


def acquire(
    wanted: LeaseRequest, job: str, wake_fd: int | None, say: Callable[[str], None]
) -> list[device_lease.Lease]:
    """Wait in the line until we hold the GPUs; `job` is the text that others see."""
    place = device_lease.folder()
    inventory, count = wanted.inventory, wanted.request.gpus
    able = views.eligible(inventory, wanted.request)
    report_unusable(inventory, wanted.request.gpu_ids, say)
    need = units.count_gpus(count)
    if len(able) < count:
        told = {device.index: capacity.obstacle(device, wanted.request) for device in inventory.devices}
        faults = "; ".join(f"GPU {index}: {why}" for index, why in told.items() if why)
        raise Busy(f"needs {need}; only {len(able)} can be used now ({inventory.problem or faults}).")
    vet = device_check.check_for_request(wanted.values, say, wanted.request)
    try:
        return waiters.acquire(
            place,
            count,
            able,
            device_lease.own_note(job),
            collect_for_s=wanted.values.collect_for,
            terms=LeaseTerms(place, inventory, wanted.values, wanted.request).terms,
            wake_fd=wake_fd,
            timeout_s=wanted.timeout_s,
            on_wait=lambda ticket: say(f"waiting for {need}: {held_by(place, inventory, able)}"),
            vet=vet,
            known={*inventory.ids},
            on_limit=lambda text: say(f"waiting: {text}"),
            span_s=wanted.limit_s or wanted.values.assumed_time,
        )
    except waiters.TimedOut as error:
        if error.limit:
            raise Busy(f"cannot lease {need} now: {error.limit}.") from None
        reasons = {} if vet is None else vet.reasons
        left = [f"GPU {inventory.index_of(DeviceId(device))}: {why}" for device, why in reasons.items()]
        raise Busy(f"cannot lease {need} now: {', '.join(left) or held_by(place, inventory, able)}.") from None


def held_by(place: Folder, inventory: Inventory, wanted: Sequence[DeviceId]) -> str:
    """Describe who holds or blocks which of the devices."""
    blocked = blockers.find(place, wanted)
    cures = {device: [f"{each.text}; {each.cure.rstrip('.')}"] for device, each in blocked.items()}
    found = holders.survey(place, wanted)
    who = {device: [*map(_describe, some), *cures.get(device, ())] for device, some in found.items()}
    told = [
        f"GPU {inventory.index_of(DeviceId(device))}: {' and '.join(names)}" for device, names in who.items() if names
    ]
    return ", ".join(told) or "other users are ahead in the machine-wide line"


def _describe(who: device_lease.Holder) -> str:
    told = [who.user or "somebody", _job(who.job) if who.job else "", f"(pid {who.pid})" if who.pid else ""]
    told += [f"with {units.format_size(who.mib * choice.MIB)}" if who.mib else ""]
    return " ".join(word for word in told if word)


def _job(job: str) -> str:
    return f"job {job}" if job.isdigit() else job
