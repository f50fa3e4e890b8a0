"""Reading the GPUs of this machine into one plain `Inventory`.

A driver call may hang for ever or take its process with it, so all of them are made by a disposable child
(`driver`) which prints one JSON document. The parent waits for it until a deadline and not longer.
Who may use a device is not decided here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dibs import devices, errors, units
from dibs.devices import Device, DeviceId, Inventory, Process

if TYPE_CHECKING:
    from dibs.settings import Settings

#: Seconds. A driver under load answers in less than one.
DEADLINE_S = 5.0

#: Seconds. Without persistence mode the first call wakes every card.
FIRST_DEADLINE_S = 20.0

#: Seconds between two tries while a child is stuck in the driver.
RETRY_S = 60.0

#: Children that even SIGKILL does not end (asleep in the driver) before we stop trying.
MOST_STUCK = 4

GONE = "the NVIDIA driver shows no GPU any more; they are shown as last seen. Is it being upgraded?"

MOST_PRETEND = 64
PRETEND_SIZE = "24G"


@dataclass(frozen=True)
class Pretend:
    """`fake:4x24G`: devices that exist on paper only."""

    count: int
    memory_bytes: int


@dataclass(frozen=True)
class Nothing:
    """`none`: leave the GPUs of this machine alone."""


@dataclass(frozen=True)
class Real:
    """The GPUs that the driver shows; `words` names those to keep, none means all."""

    words: tuple[str, ...] = ()


Choice = Pretend | Nothing | Real


def parse_devices(text: str, label: str) -> Choice:
    """Return what the setting `devices` asks for; `label` says in the error where it was asked."""
    text = text.strip()
    if text.startswith("fake"):
        return _parse_pretend(text, label)
    if text == "none":
        return Nothing()
    words = tuple(word.strip() for word in text.split(",")) if text else ()
    for word in words:
        if not (_is_index(word) or word.upper().startswith(("GPU-", "MIG-"))):
            raise errors.UserError(
                f'{label}: expected GPUs as indices or UUIDs (0,1 or GPU-8f4a...), none, or fake:4, got "{word}".'
            )
    return Real(words)


def _parse_pretend(text: str, label: str) -> Pretend:
    count, cross, size = text.removeprefix("fake:").partition("x")
    if not text.startswith("fake:") or not _is_index(count) or not 1 <= int(count) <= MOST_PRETEND:
        raise errors.UserError(
            f'{label}: expected fake:N or fake:NxSIZE, N from 1 to {MOST_PRETEND}, such as fake:4x24G, got "{text}".'
        )
    try:
        return Pretend(int(count), units.parse_size(size if cross else PRETEND_SIZE))
    except errors.UserError as error:
        raise errors.UserError(f"{label}: {error.message}", error.hint) from None


def as_written(settings: Settings) -> str:
    """Return the setting `devices` as the user wrote it, with its place: `DIBS_DEVICES=0,1`."""
    source = settings.sources.get("devices", "DIBS_DEVICES")
    if source.startswith("DIBS_"):
        return f"{source}={settings.devices}"
    return f'devices = "{settings.devices}" in {source}'


def _is_index(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 4


def read(settings: Settings, visible: str | None = None) -> Inventory:
    """Return the devices once, for a door that does not stay."""
    return Probe(settings, visible).read()


class Probe:
    """Reads the devices again and again, for one thread; `latest` may be looked at from any.

    `visible` is the CUDA_VISIBLE_DEVICES that restricts us, if it does. A wrong `devices` setting raises here.
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
    ) -> None:
        self.deadline_s = deadline_s
        self.first_deadline_s = first_deadline_s
        self._label = as_written(settings)
        self._choice = parse_devices(settings.devices, self._label)
        self._visible = visible
        self._command = command or child_command(settings)
        self._clock = clock
        self._stuck: list[subprocess.Popen[bytes]] = []
        self._missed_at = float("-inf")
        #: The last whole answer of the driver, before any restriction.
        self._seen = Inventory(is_known=False)
        self.latest = Inventory(is_known=False)

    def read(self) -> Inventory:
        """Return the devices now, or as last seen with the `problem` that keeps us from seeing them now."""
        match self._choice:
            case Pretend(count, memory_bytes):
                self.latest = restrict(Inventory(devices.pretend(count, memory_bytes)), (), self._label, self._visible)
            case Nothing():
                self.latest = Inventory(restriction=self._label)
            case Real(words):
                self.latest = restrict(self._ask(), words, self._label, self._visible)
        return self.latest

    @property
    def stuck(self) -> int:
        """Return how many children have been given up and are not gone yet."""
        self._stuck = [child for child in self._stuck if child.poll() is None]
        return len(self._stuck)

    def _ask(self) -> Inventory:
        """Ask the driver through a child, unless earlier ones still hang in it."""
        if not may_ask(self.stuck, self._clock() - self._missed_at):
            return replace(self._seen, problem=_no_answer(self._deadline()))
        try:
            found = parse_answer(self._run_child(), self._seen)
        except errors.MachineError as error:
            return replace(self._seen, problem=error.message)
        if found.problem is None and self._seen.devices and not found.devices:
            # The library is away for some seconds while the driver is upgraded. Cards do not vanish like that.
            found = replace(found, problem=GONE)
        if found.problem is not None:
            return replace(self._seen, problem=found.problem)
        self._seen = found
        return found

    def _run_child(self) -> bytes:
        """Return what a child printed; MachineError if it did not answer in time or at all."""
        try:
            # Its own session, so that Ctrl-C at a terminal is not for it. All other descriptors are closed, so
            # that a child stuck in the driver cannot hold a lease.
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise errors.MachineError(f"cannot read the GPUs: {error.strerror} ({self._command[0]}).") from error
        try:
            output, complaint = child.communicate(timeout=self._deadline())
        except subprocess.TimeoutExpired:
            self._give_up(child)
            raise errors.MachineError(_no_answer(self._deadline())) from None
        if child.returncode != 0:
            raise errors.MachineError(_crash(child.returncode, complaint))
        return output

    def _give_up(self, child: subprocess.Popen[bytes]) -> None:
        """Kill a child and do not wait: in the driver it may be deaf to that for hours."""
        child.kill()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        self._stuck.append(child)
        self._missed_at = self._clock()

    def _deadline(self) -> float:
        return self.deadline_s if self._seen.is_known else self.first_deadline_s


def child_command(settings: Settings) -> tuple[str, ...]:
    """Return the command of the child that talks to the driver."""
    library = () if settings.nvml_library is None else (str(settings.nvml_library),)
    return (sys.executable, "-P", "-m", "dibs.driver", *library)


def may_ask(stuck: int, since_miss_s: float) -> bool:
    """Tell whether another child may be started while `stuck` ones have not ended."""
    return stuck == 0 or (stuck < MOST_STUCK and since_miss_s >= RETRY_S)


def _no_answer(deadline_s: float) -> str:
    return (
        f"the NVIDIA driver did not answer for {deadline_s:g} s; the GPUs are shown as last seen. "
        "Try nvidia-smi; if that hangs too, the machine needs a reboot."
    )


def _crash(code: int, complaint: bytes) -> str:
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"cannot read the GPUs: the process that asks the NVIDIA driver {how}" + (f" ({last})." if last else ".")


def restrict(found: Inventory, words: Sequence[str], label: str, visible: str | None) -> Inventory:
    """Return `found` without what the setting `devices` (`label`) and CUDA_VISIBLE_DEVICES hide."""
    kept, texts, problem = found.devices, [], found.problem
    if words:
        named, unknown = _named(found, words)
        kept = tuple(device for device in kept if device.id in named)
        texts.append(label)
        # While the driver is silent that is the thing to say, and what the list names cannot be judged.
        if unknown and problem is None:
            texts[-1] = f"{label}, but {'; '.join(unknown)}"
    if visible is not None:
        shown = cuda_visible(found, visible)
        kept = tuple(device for device in kept if device.id in shown)
        texts.append(f"CUDA_VISIBLE_DEVICES={visible}")
    return replace(found, devices=kept, restriction=" and ".join(texts) or None, problem=problem)


def _named(found: Inventory, words: Iterable[str]) -> tuple[set[DeviceId], list[str]]:
    """Return the devices that `words` name, and what is wrong with the other words."""
    named, unknown = set(), []
    for word in words:
        try:
            named.add(devices.find(found, word))
        except devices.UnknownDevice as error:
            unknown.append(str(error))
    return named, unknown


def cuda_visible(found: Inventory, text: str) -> tuple[DeviceId, ...]:
    """Return the devices that CUDA would show for `text`: the first invalid entry cuts, a duplicate leaves none.

    Indices are taken in the driver's order (CUDA_DEVICE_ORDER=PCI_BUS_ID), the only one that can be known here.
    """
    shown: list[DeviceId] = []
    words = [word.strip() for word in text.split(",")]
    for word in words:
        # Indices and UUIDs do not mix: the first entry decides.
        if _is_index(word) != _is_index(words[0]):
            break
        try:
            shown.append(devices.find(found, word))
        except devices.UnknownDevice:
            break
    return tuple(shown) if len(set(shown)) == len(shown) else ()


# --- what the child prints, and how it is read back ---


def parse_answer(output: bytes, seen: Inventory) -> Inventory:
    """Return what a child printed as an inventory; `seen` names cards that the driver can no longer identify."""
    try:
        answer = json.loads(output)
        ids = {record["id"] for record in answer["devices"]}
        known = {device.index: device for device in seen.devices if device.id not in ids}
        return Inventory(tuple(_device(record, known) for record in answer["devices"]), problem=answer["problem"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        start = output[:60].decode("utf-8", "replace")
        raise errors.MachineError(
            f'cannot read the GPUs: expected one JSON document from "python -m dibs.driver", got {start!r}.'
        ) from error


def _device(record: Any, known: Mapping[int, Device]) -> Device:
    if record["id"] is None:
        return _unreadable(record["index"], record["fault"], known)
    processes = tuple(Process(**process) for process in record["processes"])
    return Device(**{**record, "id": DeviceId(record["id"]), "processes": processes})


def _unreadable(index: int, fault: str, known: Mapping[int, Device]) -> Device:
    """Return a card that does not tell its UUID any more as the one it was, or else under a name of its own."""
    if before := known.get(index):
        return Device(before.id, index, before.name, before.memory_total, fault=fault)
    return Device(DeviceId(f"UNREADABLE-{index}"), index, "GPU that cannot be read", fault=fault)
