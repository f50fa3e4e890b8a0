"""How much of a device each job used, and how busy the devices were lately. Plain values and sums.

Every reading adds one sample. Samples are kept for an hour, and after that as one mean per minute.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Job, JobId

#: Samples of a device that are kept one by one: an hour at one in 5 s.
MOST_SAMPLES = 720
#: Minutes of a device that are kept: four weeks.
MOST_MINUTES = 28 * 24 * 60

#: An attempt on a device; a device in one minute since 1970.
Key = tuple[JobId, int, DeviceId]
Minute = tuple[DeviceId, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """A device at one moment, in wall-clock milliseconds; None: it does not tell."""

    at: int
    memory: int | None
    utilization: int | None
    power: float | None
    temperature: int | None


@dataclass(slots=True)
class Use:
    """How an attempt used one device so far."""

    peak: int | None = None
    looks: int = 0
    _total: int = 0
    _told: int = 0

    def add(self, memory: int | None, utilization: int | None) -> None:
        """Count one look."""
        self.looks += 1
        if memory is not None:
            self.peak = max(self.peak or 0, memory)
        if utilization is not None:
            self._total, self._told = self._total + utilization, self._told + 1

    @property
    def mean(self) -> float | None:
        """Return the mean use in percent; None where the device does not tell."""
        return self._total / self._told if self._told else None


@dataclass
class Ledger:
    """All that is counted: the uses of jobs under way, and the samples of the last hour."""

    uses: dict[Key, Use] = field(default_factory=dict)
    #: Bytes that each job uses on each of its devices now; for whoever must know whether it uses more than it may.
    memory: dict[JobId, dict[DeviceId, int]] = field(default_factory=dict)
    recent: dict[DeviceId, deque[Sample]] = field(default_factory=dict)
    _minutes: dict[DeviceId, list[Sample]] = field(default_factory=dict)

    def count(self, inventory: Inventory, jobs: Iterable[Job], job_of: Mapping[int, JobId], now: int) -> None:
        """Take in one look at the devices and at our jobs."""
        self.memory = {}
        for job in jobs:
            for device in (inventory.by_id[each] for each in job.allocation if each in inventory.by_id):
                memory = memory_of(job, device, job_of)
                if memory is not None:
                    self.memory.setdefault(job.id, {})[device.id] = memory
                self.uses.setdefault((job.id, job.attempt, device.id), Use()).add(memory, device.utilization)
        for device in inventory.devices:
            sample = Sample(now, device.memory_used, device.utilization, device.power, device.temperature)
            self.recent.setdefault(device.id, deque(maxlen=MOST_SAMPLES)).append(sample)
            self._minutes.setdefault(device.id, []).append(sample)

    def ended(self, active: Iterable[Job]) -> dict[Key, Use]:
        """Return the uses of attempts that are no longer under way, and forget them."""
        going = {(job.id, job.attempt) for job in active}
        over = {key: use for key, use in self.uses.items() if key[:2] not in going}
        for key in over:
            del self.uses[key]
        return over

    def whole_minutes(self, now: int) -> dict[Minute, Sample]:
        """Return the means of the minutes that are over, and forget their samples."""
        found = {}
        for device, samples in self._minutes.items():
            this = now // 60_000
            for minute in sorted({sample.at // 60_000 for sample in samples} - {this}):
                found[device, minute] = mean_of([s for s in samples if s.at // 60_000 == minute])
            self._minutes[device] = [s for s in samples if s.at // 60_000 == this]
        return found


def memory_of(job: Job, device: Device, job_of: Mapping[int, JobId]) -> int | None:
    """Return the bytes that a job uses on a device: of its processes, or all of it where it has it for itself."""
    own = [process.memory for process in device.processes if job_of.get(process.pid) == job.id]
    if own and None not in own:
        return sum(memory or 0 for memory in own)
    return None if job.spec.request.vram else device.memory_used


def mean_of(samples: list[Sample]) -> Sample:
    """Return the mean of samples, each field by those that tell it."""
    return Sample(
        samples[0].at,
        _mean([s.memory for s in samples]),
        _mean([s.utilization for s in samples]),
        _mean([s.power for s in samples]),
        _mean([s.temperature for s in samples]),
    )


def _mean(values: Iterable[float | None]) -> int | None:
    told = [value for value in values if value is not None]
    return round(sum(told) / len(told)) if told else None
