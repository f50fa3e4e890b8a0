"""Which faults reported by a driver put a device out of use, with texts for the user.

A fault that the card reports at every reading (`devices.Device.fault`) ends when the card stops reporting it. A fault
that was reported only once (an Xid), or that can be tolerated (a contained error), stays until `dibs gpus undrain`.

Pure.
"""

from __future__ import annotations

from dibs.model.devices import Device

#: Xids caused by a program, not by the card.
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})

#: The most frequent other Xids: meaning and remedy.
XIDS = {
    48: "uncorrectable memory error: reset the GPU, or reboot",
    61: "the controller of the GPU stopped: reset the GPU, or reboot",
    62: "the controller of the GPU stopped: reset the GPU, or reboot",
    63: "faulty memory, which a reset replaces with spare memory: reset the GPU, or reboot",
    64: "faulty memory, and no spare memory to replace it: ask the admin",
    74: "NVLink error: reset the GPU, or ask the admin",
    79: "the GPU has fallen off the bus: the machine needs a reboot",
    92: "many memory errors: ask the admin",
    94: "memory error that affected only the program using it",
    95: "memory error that may have affected every program: reset the GPU",
    119: "the controller of the GPU does not answer: reset the GPU, or reboot",
    120: "the controller of the GPU failed: reset the GPU, or reboot",
}

BACK = "`dibs gpus undrain` makes it available again"


def xid_fault(xid: int) -> str | None:
    """Return why an Xid puts a device out of use; None if a program caused it."""
    if xid in HARMLESS_XIDS:
        return None
    meaning = XIDS.get(xid, "see NVIDIA's list of Xids, or ask the admin")
    return f"the driver reported Xid {xid} ({meaning}); {BACK}"


def concern(device: Device) -> str | None:
    """Return the reason against using a device that still works; None if there is none."""
    if device.worry:
        return f"{device.worry}; {BACK} as it is"
    if device.ecc_errors:
        count = (
            "1 uncorrectable memory error"
            if device.ecc_errors == 1
            else f"{device.ecc_errors} uncorrectable memory errors"
        )
        return f"{count} since the driver was loaded; {BACK}"
    return None


def dirty(size: str, after_s: float) -> str:
    """Describe memory that was not released."""
    return (
        f"{size} of its memory were not freed within {after_s:g} s after its last lease ended: "
        f"a hidden process, or the driver; nvidia-smi --gpu-reset as root, or a reboot, frees it; {BACK}"
    )
