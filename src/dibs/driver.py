"""The child of `probe` that talks to the NVIDIA driver: `python -m dibs.driver [LIBRARY]` prints one JSON document.

Nothing else makes a driver call, because one may hang for ever or take its process with it. What is not told about a
card is None; what tells that it is unwell is its fault.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dibs import users

#: Seconds after which it ends itself, in case its parent is gone.
LIFE_S = 60

#: NVML error codes that say that a card is unwell. All others mean that it does not tell.
FAULTS = {
    8: "the GPU has too little power: a power cable is missing",
    15: "the GPU has fallen off the bus: the machine needs a reboot",
    16: "the GPU needs a reset: nvidia-smi --gpu-reset as root, or a reboot",
    999: "the NVIDIA driver reports an unknown error for this GPU",
}

#: Why NVML does not start, by error code, in words.
INIT_PROBLEMS = {
    4: "no permission to talk to the NVIDIA driver: ask the admin about /dev/nvidiactl",
    9: "the NVIDIA driver is not loaded: nvidia-smi says why, or ask the admin",
    17: "the NVIDIA driver is blocked by the operating system: reboot, or ask the admin",
    18: "the NVIDIA driver was upgraded but not reloaded: reboot, or ask the admin",
    999: "the NVIDIA driver reports an unknown error: nvidia-smi may say more, or ask the admin",
}

#: No library, or a driver without a card: a machine without GPUs, which is no problem.
NO_GPUS = frozenset({12, 28})


def main(arguments: Sequence[str]) -> None:
    """Print the devices of the NVIDIA driver as one JSON document; the first argument may name its library."""
    import signal

    signal.alarm(LIFE_S)
    # Libraries print on stdout when they feel like it. Ours is a copy that they do not know.
    with open(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        json.dump(ask_driver(arguments[0] if arguments else None), output)


def ask_driver(library: str | None) -> dict[str, object]:
    """Return the JSON document about all cards, or about what keeps NVML from starting."""
    import pynvml

    try:
        if library is not None:
            import ctypes

            # Its name inside is libnvidia-ml.so.1, so the binding finds this one instead of the system's.
            ctypes.CDLL(library)
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except OSError as error:
        return {"devices": [], "problem": f"cannot load the NVIDIA library {library}: {error}"}
    except pynvml.NVMLError as error:
        return {"devices": [], "problem": _init_problem(error)}
    return {"devices": [_read_card(pynvml, index) for index in range(count)], "problem": None}


def _init_problem(error: Any) -> str | None:
    if error.value in NO_GPUS:
        return None
    return INIT_PROBLEMS.get(error.value, f"the NVIDIA driver does not start: {error} (NVML error {error.value})")


class _Card:
    """Asks one card field by field, so that one refusal costs one field."""

    def __init__(self, error_type: type[Exception]) -> None:
        self.error_type = error_type
        self.fault: str | None = None

    def get(self, *calls: Callable[[], Any]) -> Any:
        """Return the answer of the first call that gives one, else None; note what tells that the card is unwell."""
        for call in calls:
            try:
                return call()
            except self.error_type as error:
                self.fault = self.fault or FAULTS.get(getattr(error, "value", 0))
        return None


def _read_card(nvml: Any, index: int) -> dict[str, object]:
    card = _Card(nvml.NVMLError)
    handle = card.get(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    uuid = None if handle is None else card.get(lambda: nvml.nvmlDeviceGetUUID(handle))
    if uuid is None:
        fault = card.fault or "the NVIDIA driver does not open this GPU: nvidia-smi may say more, or ask the admin"
        return {"id": None, "index": index, "fault": fault, "processes": []}
    # The old call counts what the driver keeps for itself as used: 300 MB and more on an idle card.
    memory = card.get(
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    return {
        "id": _plain(uuid),
        "index": index,
        "name": _plain(card.get(lambda: nvml.nvmlDeviceGetName(handle)) or "NVIDIA GPU"),
        "memory_total": None if memory is None else memory.total,
        "memory_used": None if memory is None else memory.used,
        "utilization": card.get(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "temperature": card.get(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "processes": _read_processes(nvml, card, handle),
        # Last, because every field above may have found out.
        "fault": card.fault,
    }


def _read_processes(nvml: Any, card: _Card, handle: Any) -> list[dict[str, object]]:
    """Return every process on the card once, with the largest memory that is told of it."""
    told: dict[int, list[int]] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        name = f"nvmlDeviceGet{kind}RunningProcesses"
        # By version: the call without one turns "too old a driver" into an error of another family.
        for process in card.get(*(_call(nvml, f"{name}_{v}", handle) for v in ("v3", "v2"))) or ():
            used = process.usedGpuMemory
            told.setdefault(process.pid, []).extend(() if used is None else (used,))
    return [{"pid": pid, "memory": max(used, default=None), **_who(pid)} for pid, used in sorted(told.items())]


def _call(nvml: Any, name: str, handle: Any) -> Callable[[], Any]:
    return lambda: getattr(nvml, name)(handle)


def _who(pid: int) -> dict[str, str | None]:
    """Name owner and command of a process; None if it is hidden (hidepid, or a host's process in a container)."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().rstrip("\n")
    except OSError:
        return {"user": None, "name": None}
    return {"user": users.name(uid), "name": name}


def _plain(text: str | bytes) -> str:
    """Return text; some versions of the binding give bytes."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


if __name__ == "__main__":
    main(sys.argv[1:])
