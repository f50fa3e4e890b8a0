"""Refuse requests that this machine can never satisfy, and suggest an alternative. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.errors import Impossible, UserError
from dibs.model import devices, units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.model.lab_rules import Quota
from dibs.model.units import count_gpus
from dibs.scheduling import views
from dibs.scheduling.views import Policy

#: Who can change a quota.
BY_ROOT = "Root sets quotas in /etc/dibs/config.toml."


def check_possible(request: Request, inventory: Inventory, policy: Policy, who: str = "the job") -> None:
    """Raise Impossible if `request`, made by `who`, can never be satisfied on this machine."""
    _check_counted(request, policy, who)
    check_quotas(request, policy.quotas, who)
    if request.gpus == 0 or not inventory.is_known:
        return
    total = len(inventory.devices)
    if total == 0:
        why = f" ({inventory.problem})" if inventory.problem else ""
        raise Impossible(
            f"{who} asks for {count_gpus(request.gpus)}; this machine has none{why}.",
            "Use -g 0 for a job without GPUs, or DIBS_DEVICES=fake:4 for pretend GPUs.",
        )
    if request.gpu_type and not devices.of_type(inventory, request.gpu_type):
        names = ", ".join(sorted({device.name for device in inventory.devices}))
        raise Impossible(f'no GPU matches --gpu-type "{request.gpu_type}".', f"This machine has: {names}.")
    of_kind = len(devices.of_type(inventory, request.gpu_type)) if request.gpu_type else total
    if request.gpus > of_kind:
        kind = f' of type "{request.gpu_type}"' if request.gpu_type else ""
        raise Impossible(
            f"{who} asks for {count_gpus(request.gpus)}; this machine has {of_kind}{kind}.",
            f"Use -g {of_kind} or less.",
        )
    if request.vram:
        _check_vram(request, inventory, who)
    if request.gpus > total - policy.keep_free:
        left = max(0, total - policy.keep_free)
        raise Impossible(
            f"{who} asks for {count_gpus(request.gpus)}; keep_free leaves {left} of {total}.",
            "To change this setting: dibs config set keep_free 0",
        )


def _check_vram(request: Request, inventory: Inventory, who: str) -> None:
    """Refuse more memory than enough of the devices have; foreign use is ignored, since it may end."""
    right = [d for d in inventory.devices if d.id in views.request_devices(inventory, request)]
    able = [d for d in right if d.compute_mode != devices.EXCLUSIVE]
    if len(able) < min(request.gpus, len(right)):
        raise Impossible(
            f"{who} asks for --vram, and {len(right) - len(able)} of {count_gpus(len(right))} cannot be shared: their "
            "compute mode is exclusive-process.",
            "Without --vram it gets exclusive use; nvidia-smi -c 0 (root) allows sharing.",
        )
    sizes = sorted((d.memory_total or 0 for d in able), reverse=True)
    if not any(sizes):
        raise Impossible(
            f"{who} asks for --vram {units.format_size(request.vram)}; the driver does not report how much memory "
            "the GPUs have.", "Without --vram it gets exclusive use of a GPU.",
        )  # fmt: skip
    most = sizes[min(request.gpus, len(sizes)) - 1]
    if request.vram > most:
        has = "the largest GPU has" if request.gpus == 1 else f"{count_gpus(request.gpus)} have"
        raise Impossible(
            f"{who} asks for --vram {units.format_size(request.vram)}; {has} {units.format_size(most)}.",
            "Without --vram it gets exclusive use of a GPU.",
        )


def _check_counted(request: Request, policy: Policy, who: str) -> None:
    if request.cpus > policy.cpu_slots:
        raise Impossible(
            f"{who} asks for {request.cpus} CPUs; {policy.cpu_slots} may be used here.",
            "The setting cpu_slots raises the limit.",
        )
    if policy.mem_total is not None and request.mem > policy.mem_total:
        asked, total = units.format_size(request.mem), units.format_size(policy.mem_total)
        raise Impossible(f"{who} asks for {asked} of memory; this machine has {total}.")
    if policy.max_gpus is not None and request.gpus > policy.max_gpus:
        raise Impossible(
            f"{who} asks for {count_gpus(request.gpus)}; max_gpus allows {policy.max_gpus}.",
            f"To change this setting: dibs config set max_gpus {request.gpus}",
        )


def check_quotas(request: Request, quotas: Sequence[tuple[str, Quota]], who: str) -> None:
    """Refuse what root's quotas never allow."""
    check_time(request.limit_s, quotas, who)
    for name, quota in quotas if request.gpus else ():
        if quota.gpus is not None and request.gpus > quota.gpus:
            raise Impossible(f"{who} asks for {count_gpus(request.gpus)}; {name} is {quota.gpus} at once.", BY_ROOT)
        if quota.vram is not None and not 0 < request.vram <= quota.vram:
            asked = f"--vram {units.format_size(request.vram)}" if request.vram else "whole GPUs"
            most = units.format_size(quota.vram)
            raise Impossible(f"{who} asks for {asked}; {name} is {most} of each GPU.", f"Use --vram {most}. {BY_ROOT}")


def check_time(limit_s: float | None, quotas: Sequence[tuple[str, Quota]], who: str) -> None:
    """Refuse a time limit that is longer than a quota allows."""
    for name, quota in quotas:
        if quota.time is not None and limit_s is not None and limit_s > quota.time:
            asked, most = units.format_duration(limit_s), units.format_duration(quota.time)
            raise Impossible(f"{who} asks for {asked}; {name} is {most}.", BY_ROOT)


def longest_s(quotas: Sequence[tuple[str, Quota]]) -> float | None:
    """Return the longest time limit that quotas allow, which is that of a job without one; None: any."""
    return min((quota.time for _, quota in quotas if quota.time is not None), default=None)


def resolve(request_words: Sequence[str], option: str, inventory: Inventory) -> tuple[DeviceId, ...]:
    """Return the devices that the words of an option name; raise an error that names the invalid word."""
    try:
        return devices.find_all(inventory, request_words)
    except devices.UnknownDevice as error:
        raise UserError(f"{option} expected an index or UUID of a GPU: {error}.", "See `dibs gpus`.") from None
