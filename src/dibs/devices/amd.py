"""Reads each AMD GPU through AMD's library, into the same records as `nvidia`. Only the child of `probe` uses it.

Needs the extra `dibs[amd]`. Its binding must match the installed ROCm; if it does not load, no AMD GPU is reported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from dibs.devices import nvidia

Record = dict[str, object]

#: Bytes in one MB as amdsmi counts it.
MB = 2**20


def read(begin: Callable[[str], None]) -> list[Record]:
    """Return a record for each AMD GPU; none where the binding, the library or the driver is missing."""
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
    except Exception:  # noqa: BLE001
        # ImportError, KeyError, OSError, the binding's own errors: each means that there is no usable AMD GPU.
        return []
    found = []
    for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
        begin(str(index))
        found.append(_read_card(smi, index, handle))
    smi.amdsmi_shut_down()
    return found


class _Card:
    def __init__(self, smi: Any, handle: Any) -> None:
        self.smi = smi
        self.handle = handle

    def ask(self, name: str, *more: object) -> Any:
        """Return the answer of one call; None if the card, the driver or this version does not report it."""
        try:
            return getattr(self.smi, name)(self.handle, *more)
        except Exception:  # noqa: BLE001
            # Each version raises its own errors for that.
            return None


def _read_card(smi: Any, index: int, handle: Any) -> Record:
    card = _Card(smi, handle)
    # ROCr identifies a GPU by the id from enumeration; the other id belongs to the card itself.
    numbers = card.ask("amdsmi_get_gpu_enumeration_info") or {}
    uuid = numbers.get("hip_uuid") or card.ask("amdsmi_get_gpu_device_uuid")
    if not uuid:
        fault = "the AMD driver does not open this GPU: amd-smi may say more, or ask the admin"
        return {"id": None, "index": index, "fault": fault}
    asic, vram = card.ask("amdsmi_get_gpu_asic_info") or {}, card.ask("amdsmi_get_gpu_vram_usage") or {}
    activity, power = card.ask("amdsmi_get_gpu_activity") or {}, card.ask("amdsmi_get_power_info") or {}
    errors = card.ask("amdsmi_get_gpu_total_ecc_count") or {}
    return {
        "id": str(uuid),
        "index": index,
        "name": str(asic.get("market_name") or "AMD GPU"),
        "vendor": "amd",
        "memory_total": _whole(vram.get("vram_total"), MB),
        "memory_used": _whole(vram.get("vram_used"), MB),
        "utilization": _whole(activity.get("gfx_activity")),
        "temperature": _whole(card.ask("amdsmi_get_temp_metric", *_hottest(smi))),
        "power": _number(power.get("current_socket_power")) or _number(power.get("average_socket_power")),
        "power_limit": _number(power.get("power_limit"), 1e-6),
        "ecc_errors": _whole(errors.get("uncorrectable_count")),
        "pci": card.ask("amdsmi_get_gpu_device_bdf"),
        "numa": _whole(card.ask("amdsmi_get_gpu_topo_numa_affinity")),
        "processes": _processes(card),
        "fault": None,
    }


def _hottest(smi: Any) -> tuple[object, ...]:
    kinds, metrics = getattr(smi, "AmdSmiTemperatureType", None), getattr(smi, "AmdSmiTemperatureMetric", None)
    return getattr(kinds, "HOTSPOT", None), getattr(metrics, "CURRENT", None)


def _processes(card: _Card) -> list[Record]:
    found: list[Record] = []
    for process in card.ask("amdsmi_get_gpu_process_list") or ():
        pid = process.get("pid") if isinstance(process, dict) else None
        if isinstance(pid, int) and pid > 0:
            used = (process.get("memory_usage") or {}).get("vram_mem")
            found.append({"pid": pid, "memory": _whole(used), **nvidia.who(pid)})
    return found


def _number(value: object, scale: float = 1) -> float | None:
    """Return a number; None where the library reports "N/A"."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(str(value)) * scale if is_number else None


def _whole(value: object, scale: int = 1) -> int | None:
    number = _number(value)
    return None if number is None else int(number) * scale
