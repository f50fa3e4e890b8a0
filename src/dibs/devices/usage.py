"""How much of a device each job used, and how busy the devices were recently.

Every reading adds one sample. Samples are kept for an hour, and after that as one mean per minute.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.jobs import Job, JobId

#: Samples kept per device: an hour at one per 5 s.
MOST_SAMPLES = 720
#: Minutes kept per device: four weeks.
MOST_MINUTES = 28 * 24 * 60

#: An attempt on a device; a device in one minute since 1970.
Key = tuple[JobId, int, DeviceId]
Minute = tuple[DeviceId, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """A device at one moment, in wall-clock milliseconds; None: not reported."""

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
        """Add one reading."""
        self.looks += 1
        if memory is not None:
            self.peak = max(self.peak or 0, memory)
        if utilization is not None:
            self._total, self._told = self._total + utilization, self._told + 1

    @property
    def mean(self) -> float | None:
        """Return the mean utilization in percent; None if the device does not report it."""
        return self._total / self._told if self._told else None


@dataclass
class Ledger:
    """All usage data: of running jobs, and the samples of the last hour."""

    uses: dict[Key, Use] = field(default_factory=dict)
    #: Bytes that each job uses on each of its devices now, to detect jobs that exceed their limit.
    memory: dict[JobId, dict[DeviceId, int]] = field(default_factory=dict)
    recent: dict[DeviceId, deque[Sample]] = field(default_factory=dict)
    _minutes: dict[DeviceId, list[Sample]] = field(default_factory=dict)

    def count(self, inventory: Inventory, jobs: Iterable[Job], job_of: Mapping[int, JobId], now: int) -> None:
        """Add one reading of the devices and our jobs."""
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
        """Return and remove the uses of attempts that have ended."""
        going = {(job.id, job.attempt) for job in active}
        over = {key: use for key, use in self.uses.items() if key[:2] not in going}
        for key in over:
            del self.uses[key]
        return over

    def whole_minutes(self, now: int) -> dict[Minute, Sample]:
        """Return the means of the minutes that are over, and remove their samples."""
        found = {}
        for device, samples in self._minutes.items():
            this = now // 60_000
            for minute in sorted({sample.at // 60_000 for sample in samples} - {this}):
                found[device, minute] = mean_of([s for s in samples if s.at // 60_000 == minute])
            self._minutes[device] = [s for s in samples if s.at // 60_000 == this]
        return found


def memory_of(job: Job, device: Device, job_of: Mapping[int, JobId]) -> int | None:
    """Return the bytes a job uses on a device: of its processes, or of the whole device if it is exclusive."""
    own = [process.memory for process in device.processes if job_of.get(process.pid) == job.id]
    if own and None not in own:
        return sum(memory or 0 for memory in own)
    return None if job.spec.request.vram else device.memory_used


def mean_of(samples: list[Sample]) -> Sample:
    """Return the mean of samples; each field ignores samples that do not report it."""
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
