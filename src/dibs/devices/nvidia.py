"""Reads each card through NVML (nvidia-ml-py) into plain records. Only the child of `probe` uses it.

Every field is queried separately: a field that a card does not report is None, and one bad card never hides the others.
The slices of a card in MIG mode are devices, and the card itself is not. Nothing here decides who may use a card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from dibs.model import devices
from dibs.system import users

#: NVML error codes of an unhealthy card. All others mean that the card does not report the field.
FAULTS = {
    8: "the GPU has too little power: a power cable is missing",
    11: "the GPU sends no interrupts: reboot, or ask the admin",
    14: "the GPU's InfoROM is damaged: ask the admin, the GPU may have to be replaced",
    15: "the GPU has fallen off the bus: the machine needs a reboot",
    16: "the GPU needs a reset: nvidia-smi --gpu-reset as root, or a reboot",
    999: "the NVIDIA driver reports an unknown error for this GPU: nvidia-smi may say more, or ask the admin",
}

#: Texts for the reasons why NVML does not start, by error code.
INIT_PROBLEMS = {
    4: "no permission to talk to the NVIDIA driver: ask the admin about /dev/nvidiactl",
    9: "the NVIDIA driver is not loaded: nvidia-smi says why, or ask the admin",
    17: "the NVIDIA driver is blocked by the operating system: reboot, or ask the admin",
    18: "the NVIDIA driver was upgraded but not reloaded: reboot, or ask the admin",
    999: "the NVIDIA driver reports an unknown error: nvidia-smi may say more, or ask the admin",
}

#: No library, or a driver without a card: a machine without GPUs, which is not an error.
NO_GPUS = frozenset({12, 28})

NOT_OPENED = "the NVIDIA driver does not open this GPU: nvidia-smi may say more, or ask the admin"
NO_SLICES = "MIG is on without instances: `nvidia-smi mig -cgi` as root creates some, `nvidia-smi -mig 0` turns it off"
PROHIBITED = "its compute mode is prohibited: nvidia-smi -c 0 as root allows jobs"
ROW_FAILED = "faulty memory, and no spare memory to replace it: ask the admin, the GPU may have to be replaced"

ROW_PENDING = "faulty memory, which a reset replaces with spare memory: nvidia-smi --gpu-reset as root, or a reboot"

#: Texts for the recovery that the driver requests (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION); other values mean nothing.
RECOVERIES = {
    1: "the driver asks for a reset of the GPU: nvidia-smi --gpu-reset as root, or a reboot",
    2: "the driver asks for a reboot because of this GPU",
    4: "the driver asks for a reset of the GPU: nvidia-smi --gpu-reset as root, or a reboot",
    6: "the driver asks for a reset of the bus of this GPU: reboot, or ask the admin",
    7: "the driver asks for a reboot because of this GPU",
}
RECOVERY_FIELD = 230
#: Compute modes by NVML's number. Exclusive-thread predates CUDA 4; drivers treat it as exclusive-process.
MODES = {0: devices.DEFAULT, 1: devices.EXCLUSIVE, 2: devices.PROHIBITED, 3: devices.EXCLUSIVE}

#: Closeness of two cards by the kind of their common ancestor; higher is closer. NVLink is `NVLINK` plus its links.
CLOSENESS = {50: 0, 40: 1, 30: 2, 20: 3, 10: 4, 0: 5}
NVLINK = 10
MOST_LINKS = 36

#: A slice's index is its card's index times this, plus its place, so that MIG does not change other cards' indices.
SLICES = 100

Record = dict[str, object]


def init_problem(error: Any) -> str | None:
    """Describe why NVML does not start; return None if there simply is no GPU."""
    code = getattr(error, "value", 0)
    if code in NO_GPUS:
        return None
    return INIT_PROBLEMS.get(code, f"the NVIDIA driver does not start: {error} (NVML error {code})")


class Card:
    """Queries one card field by field, so that one refusal costs one field."""

    def __init__(self, nvml: Any, handle: Any = None) -> None:
        self.nvml = nvml
        self.handle = handle
        self.fault: str | None = None

    def get(self, *calls: Callable[[], Any]) -> Any:
        """Return the answer of the first call that succeeds, else None; note errors that show an unhealthy card."""
        for call in calls:
            try:
                return call()
            except self.nvml.NVMLError as error:
                self.fault = self.fault or FAULTS.get(getattr(error, "value", 0))
            except (AttributeError, UnicodeDecodeError):
                # The binding is too old for this call, or a name is not valid text.
                continue
        return None

    def ask(self, name: str, *more: object) -> Any:
        """Return the answer of one NVML call about this card, or None."""
        return self.get(lambda: getattr(self.nvml, f"nvmlDeviceGet{name}")(self.handle, *more))


def read(nvml: Any, skip: Collection[str], begin: Callable[[str], None]) -> Iterator[Record]:
    """Yield a record for each usable device; call `begin` with the index before querying a card.

    Cards in `skip` are not queried, because a call about them hung.
    """
    for index in range(nvml.nvmlDeviceGetCount()):
        if str(index) not in skip:
            begin(str(index))
            yield from _read_card(nvml, index)


def _read_card(nvml: Any, index: int) -> Iterator[Record]:
    card = Card(nvml)
    card.handle = card.get(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    uuid = None if card.handle is None else card.ask("UUID")
    if uuid is None:
        yield {"id": None, "index": index, "fault": card.fault or NOT_OPENED}
        return
    if is_hidden(card.ask("MinorNumber")):
        yield {"hidden": index}
        return
    common: Record = {
        "id": _plain(uuid),
        "index": index,
        "name": _plain(card.ask("Name") or "NVIDIA GPU"),
        "temperature": card.ask("Temperature", nvml.NVML_TEMPERATURE_GPU),
        "power": _watts(card.ask("PowerUsage")),
        "power_limit": _watts(card.ask("EnforcedPowerLimit")),
        "ecc_errors": card.ask("TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
        **_place(card),
        "compute_mode": MODES.get(card.ask("ComputeMode")),
    }
    worry = _worry(card)
    mode = card.ask("MigMode")
    if mode is None or mode[0] != 1:
        found = [common | _use(card)]
    else:
        slices = list(_slices(card))
        found = [common | _slice(common, place, each, card) for place, each in slices] or [
            common | {"fault": NO_SLICES}
        ]
    forbidden = PROHIBITED if common["compute_mode"] == devices.PROHIBITED else None
    for record in found:
        # Last, because every query above may have found a fault.
        yield record | {"fault": card.fault or record.get("fault") or forbidden, "worry": worry}


def _slices(card: Card) -> Iterator[tuple[int, Any]]:
    """Yield the MIG instances of a card; their numbers may have gaps."""
    for place in range(card.ask("MaxMigDeviceCount") or 0):
        handle = card.ask("MigDeviceHandleByIndex", place)
        if handle is not None:
            yield place, handle


def _slice(common: Record, place: int, handle: Any, card: Card) -> Record:
    own = Card(card.nvml, handle)
    uuid = own.ask("UUID")
    index = int(str(common["index"])) * SLICES + place
    if uuid is None:
        return {"id": None, "index": index, "fault": own.fault or NOT_OPENED}
    name = _plain(own.ask("Name") or "")
    named = name if "MIG" in name else f"{common['name']} MIG"
    return {"id": _plain(uuid), "index": index, "name": named, "parent": common["id"], "fault": own.fault, **_use(own)}


def _use(card: Card) -> Record:
    nvml, handle = card.nvml, card.handle
    # The old call counts memory reserved by the driver as used: 300 MB and more on an idle card.
    memory = card.get(
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    rates = card.ask("UtilizationRates")
    return {
        "memory_total": None if memory is None else memory.total,
        "memory_used": None if memory is None else memory.used,
        "utilization": None if rates is None else rates.gpu,
        "processes": _read_processes(card),
    }


def _read_processes(card: Card) -> list[Record]:
    """Return every process on the card once, with the largest memory reported for it."""
    told: dict[int, list[int]] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        name = f"nvmlDeviceGet{kind}RunningProcesses"
        # Call each version explicitly: the unversioned call reports "driver too old" as another kind of error.
        for process in card.get(*(_call(card, f"{name}_{v}") for v in ("v3", "v2"))) or ():
            used = process.usedGpuMemory
            told.setdefault(process.pid, []).extend(() if used is None else (used,))
    return [{"pid": pid, "memory": max(used, default=None), **who(pid)} for pid, used in sorted(told.items())]


def _call(card: Card, name: str) -> Callable[[], Any]:
    return lambda: getattr(card.nvml, name)(card.handle)


def who(pid: int) -> dict[str, str | None]:
    """Return the owner and command of a process; None if hidden (hidepid, or a host's process in a container)."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().rstrip("\n")
    except OSError:
        return {"user": None, "name": None}
    return {"user": users.name(uid), "name": name}


def _place(card: Card) -> Record:
    """Return where a card is plugged in, and its NUMA node."""
    info = card.ask("PciInfo")
    pci = None if info is None else _plain(info.busId)
    node = card.ask("NumaNodeId")
    return {"pci": pci, "numa": node if isinstance(node, int) and 0 <= node < 4096 else numa_of(pci)}


def numa_of(pci: str | None, folder: str = "/sys/bus/pci/devices") -> int | None:
    """Return the NUMA node of a card from the kernel, because most drivers do not report it."""
    if pci is None:
        return None
    # The kernel's PCI domain has four digits, NVML's has eight.
    name = pci.lower()[4:] if len(pci) == len("00000000:07:00.0") else pci.lower()
    try:
        with open(f"{folder}/{name}/numa_node", encoding="ascii") as file:
            node = int(file.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _worry(card: Card) -> str | None:
    """Return the reason against using a card that still works; this also shows faults from before we listened."""
    rows = card.ask("RemappedRows")
    if rows is not None and rows[3]:
        return ROW_FAILED
    if (rows is not None and rows[2]) or card.ask("RetiredPagesPendingStatus") == 1:
        return ROW_PENDING
    fields = card.ask("FieldValues", [RECOVERY_FIELD])
    if fields is not None and fields[0].nvmlReturn == 0:
        return RECOVERIES.get(fields[0].value.uiVal)
    return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def is_hidden(minor: int | None, folder: str = "/dev", opened: Callable[[str, int], int] = os.open) -> bool:
    """Return whether a container or batch system hides a card that NVML shows.

    Without /dev/nvidiactl the driver works differently (WSL), and we cannot tell.
    """
    if minor is None or not os.path.exists(f"{folder}/nvidiactl"):
        return False
    try:
        os.close(opened(f"{folder}/nvidia{minor}", os.O_RDWR | os.O_CLOEXEC))
    except (PermissionError, FileNotFoundError):
        return True
    except OSError:
        # The card is visible but unhealthy, which is reported elsewhere.
        return False
    return False


def closeness(nvml: Any, records: list[Record]) -> list[tuple[str, str, int]]:
    """Return how close each two cards are, if they report it; slices are not connected with each other."""
    whole = [record for record in records if record.get("pci") and not record.get("parent")]
    card = Card(nvml)
    ids = [str(record["id"]) for record in whole]
    handles = {uuid: card.get(partial(nvml.nvmlDeviceGetHandleByUUID, uuid.encode())) for uuid in ids}
    links = {uuid: _links(Card(nvml, handle)) for uuid, handle in handles.items() if handle}
    buses = {str(r["id"]): str(r["pci"]).lower() for r in whole if str(r["id"]) in links}
    found = []
    for at, first in enumerate(buses):
        for second in list(buses)[at + 1 :]:
            joined = _joined(links[first], links[second], buses[first], buses[second], set(buses.values()))
            level = Card(nvml, handles[first]).ask("TopologyCommonAncestor", handles[second])
            rank = NVLINK + joined if joined else CLOSENESS.get(level)
            if rank is not None:
                found.append((first, second, rank))
    return found


def _links(card: Card) -> Mapping[str, int]:
    """Return the destinations of a card's NVLinks, each with its number of links."""
    found: dict[str, int] = {}
    for link in range(MOST_LINKS):
        if card.ask("NvLinkState", link) != 1:
            # A card without NVLink fails at the first link; one with fewer links fails after its last.
            if link == 0:
                break
            continue
        info = card.ask("NvLinkRemotePciInfo", link)
        if info is not None:
            place = _plain(info.busId).lower()
            found[place] = found.get(place, 0) + 1
    return found


def _joined(mine: Mapping[str, int], theirs: Mapping[str, int], my_bus: str, their_bus: str, cards: set[str]) -> int:
    """Return the largest number of links that join two cards: directly, or through switches that both are linked to."""
    to_switches = [sum(n for place, n in links.items() if place not in cards) for links in (mine, theirs)]
    return max(mine.get(their_bus, 0), theirs.get(my_bus, 0), min(to_switches))


def _plain(text: str | bytes) -> str:
    """Return the text as `str`; some versions of the binding return bytes."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
