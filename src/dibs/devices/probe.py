"""Reads the GPUs of this machine into one plain `Inventory`.

A driver call may hang forever or crash its process, so a disposable child (`driver_child`) makes all of them;
`driver_link` asks it with a deadline. A card that hangs is left out; the others are still read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dibs import errors
from dibs.devices import driver_link, last_seen
from dibs.devices.driver_link import Answer, DriverLink
from dibs.devices.last_seen import LastSeen
from dibs.devices.nvidia import SLICES
from dibs.model import devices, suggestions, units
from dibs.model.devices import Device, DeviceId, Inventory, Process

if TYPE_CHECKING:
    from dibs.system.settings import Settings

#: Seconds. A driver under load answers in less than one.
DEADLINE_S = 5.0

#: Seconds. Without persistence mode the first call wakes every card.
FIRST_DEADLINE_S = 20.0

MOST_PRETEND = 64
PRETEND_SIZE = "24G"


#: The GPUs of the driver that the setting `devices` selects (no word: all), or an inventory that needs no driver.
Choice = tuple[str, ...] | Inventory


def parse_devices(text: str, label: str) -> Choice:
    """Parse the setting `devices`; `label` names its source in errors."""
    text = text.strip()
    if text.startswith("fake"):
        return Inventory(_parse_pretend(text, label))
    if text == "none":
        return Inventory(restriction=label)
    if text.startswith("intel:"):
        return Inventory(_parse_named(text, label), restriction=label)
    words = tuple(word.strip() for word in text.split(",")) if text else ()
    for word in words:
        if not (_is_index(word) or word.upper().startswith(("GPU-", "MIG-"))):
            raise errors.UserError(
                f'{label}: expected GPUs as indices or UUIDs (0,1 or GPU-8f4a...), none, or fake:4, got "{word}".'
            )
    return words


def _parse_pretend(text: str, label: str) -> tuple[Device, ...]:
    """Parse `fake:4x24G`: simulated devices."""
    count, cross, size = text.removeprefix("fake:").partition("x")
    if not text.startswith("fake:") or not _is_index(count) or not 1 <= int(count) <= MOST_PRETEND:
        raise errors.UserError(
            f'{label}: expected fake:N or fake:NxSIZE, N from 1 to {MOST_PRETEND}, such as fake:4x24G, got "{text}".'
        )
    with suggestions.inside(f"{label}:"):
        return devices.pretend(int(count), units.parse_size(size if cross else PRETEND_SIZE))


def _parse_named(text: str, label: str) -> tuple[Device, ...]:
    """Parse `intel:0,1`: GPUs that exist but cannot be read."""
    words = [word.strip() for word in text.removeprefix("intel:").split(",")]
    if not all(_is_index(word) for word in words) or len({int(word) for word in words}) != len(words):
        raise errors.UserError(f'{label}: expected the numbers of Intel GPUs such as intel:0,1, got "{text}".')
    return devices.named(sorted(int(word) for word in words))


def as_written(settings: Settings) -> str:
    """Return the setting `devices` as the user wrote it, with its source: `DIBS_DEVICES=0,1`."""
    source = settings.sources.get("devices", "DIBS_DEVICES")
    if source.startswith("DIBS_"):
        return f"{source}={settings.devices}"
    return f'devices = "{settings.devices}" in {source}'


def _is_index(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 4


def read(settings: Settings, visible: str | None = None) -> Inventory:
    """Read the devices once, for a short-lived process."""
    eyes = Probe(settings, visible)
    try:
        return eyes.read()
    finally:
        eyes.close()


class Probe:
    """Reads the devices repeatedly, in one thread; any thread may read `latest`.

    `visible` is the CUDA_VISIBLE_DEVICES that restricts us, if any; `before` is what an earlier process saw. An invalid
    `devices` setting raises here.
    """

    def __init__(
        self,
        settings: Settings,
        visible: str | None = None,
        *,
        deadline_s: float = DEADLINE_S,
        first_deadline_s: float = FIRST_DEADLINE_S,
        command: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        before: LastSeen | None = None,
    ) -> None:
        self.deadline_s = deadline_s
        self.first_deadline_s = first_deadline_s
        self._label = as_written(settings)
        self._choice = parse_devices(settings.devices, self._label)
        self._visible = visible
        self._link = DriverLink(command or child_command(settings, "read"), clock)
        #: The last complete answer of the driver, before any restriction.
        self._seen = Inventory(before.devices if before else (), is_known=False)
        #: The devices when the driver last showed some, before any restriction; None if it never did.
        self.last_seen = before
        self.latest = Inventory(is_known=False)

    @property
    def is_real(self) -> bool:
        """Return whether a driver provides the devices, so that they may change."""
        return not isinstance(self._choice, Inventory)

    @property
    def stuck(self) -> int:
        """Return how many abandoned children still exist."""
        return self._link.stuck

    def read(self) -> Inventory:
        """Return the current devices, or the last known ones with the `problem` that prevents a reading."""
        if not isinstance(self._choice, Inventory):
            self.latest = restrict(self._ask(), self._choice, self._label, self._visible)
        elif self._choice.restriction is None:
            self.latest = restrict(self._choice, (), self._label, self._visible)
        else:
            self.latest = self._choice
        return self.latest

    def close(self) -> None:
        """Release the driver until the next `read`."""
        self._link.close()

    def _ask(self) -> Inventory:
        """Ask the driver through a child; leave out what hung in an earlier child while it hangs."""
        try:
            answer, avoided = self._whole_answer()
            found = parse_answer(answer.lines, self._seen, avoided)
        except errors.MachineError as error:
            return replace(self._seen, problem=error.message)
        now = int(time.time() * 1000)
        if found.problem is None and self.last_seen is not None and not found.devices:
            # The library is missing, as during an upgrade of the driver. Cards do not vanish like that.
            why = last_seen.absence(self.last_seen, answer.lines[-1].get("why") or found.restriction, now)
            return replace(self._seen, problem=why, is_known=True)
        if found.problem is not None:
            return replace(self._seen, problem=found.problem)
        self._seen = found
        if found.devices:
            self.last_seen = LastSeen(found.devices, now)
        return found

    def _whole_answer(self) -> tuple[Answer, dict[str, str]]:
        """Return a complete answer, and what it leaves out: cards that hung before."""
        while True:
            avoided = self._link.avoided
            if driver_link.BEGINNING in avoided:
                raise errors.MachineError(_no_answer(avoided[driver_link.BEGINNING]))
            answer = self._link.ask(list(avoided), self.deadline_s, self.first_deadline_s)
            if answer.trouble is None:
                return answer, avoided
            if answer.at == driver_link.BEGINNING:
                raise errors.MachineError(_no_answer(answer.trouble))


def child_command(settings: Settings, kind: str) -> tuple[str, ...]:
    """Return the command of a child that talks to the driver; `kind` is `read` or `listen`."""
    library = () if settings.nvml_library is None else (str(settings.nvml_library),)
    return (sys.executable, "-P", "-m", "dibs.devices.driver_child", kind, *library)


def _no_answer(trouble: str) -> str:
    if trouble.startswith("did not answer"):
        return (
            f"the NVIDIA driver {trouble}; the GPUs are shown as last seen. "
            "Try nvidia-smi; if that hangs too, the machine needs a reboot."
        )
    return f"cannot read the GPUs: the process that asks the NVIDIA driver {trouble}."


def restrict(found: Inventory, words: Sequence[str], label: str, visible: str | None) -> Inventory:
    """Return `found` without what the setting `devices` (`label`) and CUDA_VISIBLE_DEVICES hide."""
    kept, texts, problem = found.devices, [], found.problem
    if words:
        named, unknown = _named(found, words)
        kept = tuple(device for device in kept if device.id in named)
        texts.append(label)
        # If the driver does not answer, report that; the names in the list cannot be judged.
        if unknown and problem is None:
            texts[-1] = f"{label}, but {'; '.join(unknown)}"
    if visible is not None:
        shown = cuda_visible(found, visible)
        kept = tuple(device for device in kept if device.id in shown)
        texts.append(f"CUDA_VISIBLE_DEVICES={visible}")
    if found.restriction:
        texts.append(found.restriction)
    return replace(found, devices=kept, restriction=" and ".join(texts) or None, problem=problem)


def _named(found: Inventory, words: Iterable[str]) -> tuple[set[DeviceId], list[str]]:
    """Return the devices that `words` name, and the errors in the other words."""
    named, unknown = set(), []
    for word in words:
        try:
            named.add(devices.find(found, word))
        except devices.UnknownDevice as error:
            unknown.append(str(error))
    return named, unknown


def cuda_visible(found: Inventory, text: str) -> tuple[DeviceId, ...]:
    """Return the devices CUDA would show for `text`: an invalid entry ends the list, a duplicate leaves none.

    Indices follow the driver's order (CUDA_DEVICE_ORDER=PCI_BUS_ID), the only one that can be known here.
    """
    shown: list[DeviceId] = []
    words = [word.strip() for word in text.split(",")]
    for word in words:
        # Indices and UUIDs cannot be mixed: the first entry decides.
        if _is_index(word) != _is_index(words[0]):
            break
        try:
            shown.append(devices.find(found, word))
        except devices.UnknownDevice:
            break
    return tuple(shown) if len(set(shown)) == len(shown) else ()


# --- parsing the child's answer ---


def parse_answer(lines: Sequence[Mapping[str, Any]], seen: Inventory, avoided: Mapping[str, str]) -> Inventory:
    """Return a child's answer as an inventory.

    `seen` identifies cards that the driver can no longer identify, and those in `avoided`, which were not queried.
    """
    try:
        return _understood(lines, seen, avoided)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise errors.MachineError(
            'cannot read the GPUs: expected lines about GPUs from "python -m dibs.devices.driver_child", '
            f"got {str(lines)[:60]}."
        ) from error


def _understood(lines: Sequence[Mapping[str, Any]], seen: Inventory, avoided: Mapping[str, str]) -> Inventory:
    problem = lines[-1]["end"]
    if problem is not None:
        return Inventory(problem=str(problem))
    records = [line["card"] for line in lines if "card" in line]
    hidden = [record["hidden"] for record in records if "hidden" in record]
    cards = [record for record in records if "hidden" not in record]
    ids = {record["id"] for record in cards}
    known = {device.index: device for device in seen.devices if device.id not in ids}
    found = [_device(record, known) for record in cards]
    count = next((line["count"] for line in lines if "count" in line), 0)
    for index in (int(at) for at in avoided if at.isdigit() and int(at) < count):
        found += _hanging(index, avoided[str(index)], known)
    close = next((line["close"] for line in lines if "close" in line), None)
    closeness = seen.closeness if close is None else {(a, b): rank for x, y, rank in close for a, b in ((x, y), (y, x))}
    told = f"GPU {', '.join(map(str, hidden))} cannot be opened here (container or batch system)" if hidden else None
    return Inventory(tuple(sorted(found, key=lambda d: d.index)), restriction=told, closeness=closeness)


def _device(record: Mapping[str, Any], known: Mapping[int, Device]) -> Device:
    if record["id"] is None:
        return _unreadable(record["index"], record["fault"], known)
    processes = tuple(Process(**process) for process in record.get("processes", ()))
    return Device(**{**record, "id": DeviceId(record["id"]), "processes": processes})


def _unreadable(index: int, fault: str, known: Mapping[int, Device]) -> Device:
    """Return a card that no longer reports its UUID as the last known one, or under a made-up id."""
    if before := known.get(index):
        return Device(before.id, index, before.name, before.memory_total, fault=fault, pci=before.pci)
    return Device(DeviceId(f"UNREADABLE-{index}"), index, "GPU that cannot be read", fault=fault)


def _hanging(index: int, why: str, known: Mapping[int, Device]) -> list[Device]:
    """Return the devices of a card that hung, as last seen: the card, or its slices."""
    fault = f"the NVIDIA driver {why} about this GPU: try nvidia-smi -i {index}; it may need a reset or a reboot"
    slices = [device for device in known.values() if device.parent and device.index // SLICES == index]
    return [replace(device, fault=fault) for device in slices] or [_unreadable(index, fault, known)]
