"""The ids that people gave the old tools: free text, leased as the device it names, or by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dibs.foreground import slots
from dibs.leases import device_lease, holders
from dibs.model import devices, units
from dibs.system import settings

if TYPE_CHECKING:
    from dibs.foreground.device_check import Vet

#: Files that an NVIDIA driver, or that of Windows below us, makes: without them there is nobody to ask for GPUs.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


def inventory() -> devices.Inventory:
    """Return the GPUs of this machine; a driver that is not there is not asked, which would take a while."""
    values = settings.load(os.environ)
    has_driver = values.devices or values.nvml_library or any(os.path.exists(path) for path in DRIVER_FILES)
    if not has_driver:
        return devices.Inventory()
    # Where no driver is, what asks it is not loaded either.
    from dibs.foreground import machine

    return machine.read_gpus(values)


def vet(found: devices.Inventory, say: Callable[[str], None]) -> Vet | None:
    """Return the last check of GPUs before a command gets them; without GPUs it would ask a driver for nothing."""
    if not found.devices:
        return None
    from dibs.foreground import device_check

    return device_check.check_for_request(settings.load(os.environ), say)


def time_limit_s(found: devices.Inventory) -> float | None:
    """Return after how many seconds a quota ends a command on a whole GPU; refuse it if only shares are allowed."""
    rules = settings.load(os.environ).rules
    if not found.devices or not rules.has_quotas:
        return None
    from dibs.foreground import lease_request

    return lease_request.whole_limit_s(rules)


def limit_reached(limit_s: float | None) -> str:
    """Return in words why a task was ended by the time limit of a quota."""
    return f"it reached the {units.format_duration(limit_s or 0.0)} that the quota allows"


def keys(text: str, found: devices.Inventory) -> tuple[str, ...]:
    """Return what ids are leased by: devices of this machine by their own id, any other text by itself."""
    return tuple(_key(part.strip(), found) for part in text.split(",") if part.strip())


def _key(text: str, found: devices.Inventory) -> str:
    try:
        return devices.find(found, text)
    except devices.UnknownDevice:
        return slots.key_of(text)


def waiting_for(wanted: Sequence[str]) -> str:
    """Return in words who has the devices that we wait for."""
    found = holders.survey(device_lease.folder(), wanted)
    who = {f"{one.user or 'somebody'} ({one.job or '?'}, pid {one.pid})" for held in found.values() for one in held}
    return (
        f"waiting for {', '.join(wanted)}: {', '.join(sorted(who)) or 'other users are ahead in the machine-wide line'}"
    )
