"""The list of GPUs that a server was given: what each text of it means to dibs, and whose turn each is.

Pure. A text is free: one that names devices of this machine leases them, the empty one is a job without GPU, any other
is leased by itself. A device that several texts name is shared, an equal part of its memory each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dibs.foreground import slots

#: What a UUID begins with, of which people write only the first few letters.
UUIDS = ("GPU-", "MIG-", "FAKE-")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One text of the list, and what a job on it asks dibs for."""

    text: str
    gpu_ids: tuple[str, ...] = ()
    #: Bytes of each of them, where another text names one too; 0: all of it.
    vram: int = 0
    #: "index" or "uuid": how the devices are written so that it is the text.
    visible: str = "index"
    #: Whether dibs itself would not write the text as it stands.
    is_written: bool = False
    #: What is leased beside devices of this machine: texts that name none.
    keys: tuple[str, ...] = ()
    #: Whether any one of the devices will do, those in front first; else it is all of them.
    is_choice: bool = False

    @property
    def request(self) -> dict[str, Any]:
        """Return the fields of a job of dibs that ask for this."""
        return {
            "gpus": 1 if self.is_choice else len(self.gpu_ids),
            "gpu_ids": list(self.gpu_ids) or None,
            "prefer": list(self.gpu_ids) if self.is_choice else [],
            "vram": self.vram,
            "visible": self.visible,
        }


def read(texts: Sequence[str], gpus: Sequence[Mapping[str, Any]]) -> dict[str, Gpu]:
    """Return what each text means on a machine with these GPUs, as `GET /v1/gpus` tells of them."""
    found = {text: [_device(part, gpus) for part in _parts(text)] for text in texts}
    uses = Counter(device for text in texts for device in {one["id"] for one in found[text] if one is not None})
    return {text: _gpu(text, found[text], uses, texts.count(text)) for text in texts}


def common(texts: Sequence[str], gpus: Sequence[Mapping[str, Any]]) -> Gpu | None:
    """Return what a job asks for whom any text of the list would do; None where dibs has no way to say that.

    It has one if each text is another device, or as often the same, or if there is but one text. Groups, jobs without
    GPU beside others, and what has to be written or leased by the text must be dealt one by one.
    """
    found = list(read(texts, gpus).values())
    if not found or any(gpu.is_written or not gpu.gpu_ids for gpu in found):
        return None
    first = found[0]
    if len(found) == 1:
        return first
    if any(len(gpu.gpu_ids) != 1 or (gpu.vram, gpu.visible) != (first.vram, first.visible) for gpu in found):
        return None
    return replace(first, text="", gpu_ids=tuple(gpu.gpu_ids[0] for gpu in found), is_choice=True)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _device(part: str, gpus: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    for gpu in gpus:
        if part in (str(gpu["index"]), gpu["id"]):
            return gpu
    near = [gpu for gpu in gpus if part.startswith(UUIDS) and gpu["id"].startswith(part)]
    return near[0] if len(near) == 1 else None


def _gpu(text: str, found: Sequence[Mapping[str, Any] | None], uses: Mapping[str, int], times: int) -> Gpu:
    ours = {gpu["id"]: gpu for gpu in found if gpu is not None}
    is_number = all(part.isdigit() for part in _parts(text))
    # As dibs would write them.
    ids = sorted(ours)
    written = ",".join(str(ours[one]["index"]) if is_number else one for one in ids)
    most = max((uses[one] for one in ids), default=1)
    sizes = [gpu["memory_total"] for gpu in ours.values()]
    vram = min(sizes) // most if most > 1 and all(sizes) else 0
    strangers = [part for part, gpu in zip(_parts(text), found, strict=True) if gpu is None]
    # One who is named twice shares with itself, which a lease by a text cannot say.
    keys = tuple(dict.fromkeys(slots.key_of(part) for part in strangers)) if times == 1 else ()
    return Gpu(text, tuple(ids), vram, "index" if is_number else "uuid", written != text, keys)


def freed(free: Sequence[str], texts: Iterable[str], busy: Iterable[str]) -> list[str]:
    """Return the texts that are free now, those that were free before in their order, and then the others."""
    left = Counter(texts)
    left.subtract(busy)
    now = []
    for text in (*free, *texts):
        if left[text] > 0:
            left[text] -= 1
            now.append(text)
    return now
