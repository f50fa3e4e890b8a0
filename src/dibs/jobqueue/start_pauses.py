"""When to try again after the machine refused a start.

Pure. A refusal pauses what its scope names: all starts, those on one device, or those of one job. Each further refusal
makes the next pause longer, unless the trouble is seen to be over. After a pause of all starts, one start is let
through to probe, if possible of a job not refused lately; when a command begins, what it needed is open again. Times
are monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from dibs.model.devices import DeviceId
from dibs.model.jobs import JobId
from dibs.scheduling.planner import Start
from dibs.system.refusals import DEVICE, JOB, Refusal

#: Seconds of the first pause, of the second, and so on; the last one repeats.
SPANS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
#: Seconds after which a pause that ended without another refusal is forgotten.
FORGET_S = 60.0
#: Seconds after a pause of all starts during which the job that was refused lets others probe.
YIELD_S = 30.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Why something waits, until when, and how often that happened in a row before."""

    why: str
    until: float
    before: int = 0

    def lasts(self, now: float) -> bool:
        """Tell whether it is not over."""
        return now < self.until

    def again(self, why: str, now: float) -> Pause:
        """Return the pause after one more refusal; one that was under way when this pause began changes nothing."""
        if self.lasts(now):
            return self
        count = self.before + 1
        return Pause(why, now + SPANS_S[min(count, len(SPANS_S) - 1)], count)

    def cut(self, now: float) -> Pause:
        """Return the pause with its end at once."""
        return replace(self, until=min(now, self.until))

    def told(self, now: float) -> str:
        """Return reason and next try as text."""
        left_s = math.ceil(self.until - now)
        return f"{self.why}; next try {f'in {left_s} s' if left_s > 0 else 'is under way'}"


def _after(before: Pause | None, why: str, now: float) -> Pause:
    return Pause(why, now + SPANS_S[0]) if before is None else before.again(why, now)


@dataclass(frozen=True, slots=True)
class StartPauses:
    """All pauses of a queue. Replaced as a whole, so that other threads can read it."""

    queue: Pause | None = None
    #: The job whose start was let through to probe the machine.
    probe: JobId | None = None
    devices: Mapping[DeviceId, Pause] = field(default_factory=dict)
    jobs: Mapping[JobId, Pause] = field(default_factory=dict)
    #: Jobs whose refusal paused all starts, and until when others probe before them: the trouble may be theirs alone.
    tried: Mapping[JobId, float] = field(default_factory=dict)

    def refused(self, refusal: Refusal, job: JobId, now: float) -> StartPauses:
        """Return the pauses after the start of a job was refused."""
        if refusal.scope == DEVICE:
            device = DeviceId(refusal.device)
            pause = _after(self.devices.get(device), refusal.why, now)
            return replace(self, devices={**_recent(self.devices, now), device: pause})
        if refusal.scope == JOB:
            pause = _after(self.jobs.get(job), refusal.why, now)
            return replace(self, jobs={**_recent(self.jobs, now), job: pause})
        queue = _after(self.queue, refusal.why, now)
        tried = {other: until for other, until in self.tried.items() if now < until}
        return replace(self, queue=queue, probe=None, tried={**tried, job: queue.until + YIELD_S})

    def new_spans(self, before: StartPauses, now: float) -> list[float]:
        """Return how long each pause lasts that was not there before."""
        new = [self.queue] if self.queue is not before.queue else []
        new += [pause for key, pause in self.devices.items() if pause is not before.devices.get(key)]
        new += [pause for key, pause in self.jobs.items() if pause is not before.jobs.get(key)]
        return [pause.until - now for pause in new if pause is not None]

    def begun(self, job: JobId, devices: Collection[DeviceId]) -> StartPauses:
        """Return the pauses after the command of a job has begun: the machine accepts starts."""
        is_probe = job == self.probe
        return StartPauses(
            queue=None if is_probe else self.queue,
            probe=None if is_probe else self.probe,
            devices={device: pause for device, pause in self.devices.items() if device not in devices},
            jobs={other: pause for other, pause in self.jobs.items() if other != job},
            tried={} if is_probe else self.tried,
        )

    def lasting(self, now: float) -> set[DeviceId | None]:
        """Return the devices on which nothing starts now; None stands for all starts."""
        found: set[DeviceId | None] = {*self.unusable(now)}
        return found if self.queue is None or not self.queue.lasts(now) else {*found, None}

    def over(self, ended: Collection[DeviceId | None], now: float) -> StartPauses:
        """Return the pauses after the causes of some are gone; another refusal still makes them longer."""
        devices = {device: pause.cut(now) if device in ended else pause for device, pause in self.devices.items()}
        queue = self.queue.cut(now) if self.queue is not None and None in ended else self.queue
        return replace(self, queue=queue, devices=devices)

    def told(self, active: Collection[JobId], now: float) -> str | None:
        """Return why nothing starts now beside the `active` jobs, as text; None if something may."""
        if self.queue is None or not (self.queue.lasts(now) or self.probe in active):
            return None
        return f"starts are paused: {self.queue.told(now)}"

    def let_through(self, starts: tuple[Start, ...]) -> tuple[Start, ...]:
        """Return the starts of a plan that may be made: all, or one that probes the machine.

        Each time another one, so that a job that has the trouble alone does not keep back all others.
        """
        if self.queue is None or not starts:
            return starts
        at = self.queue.before % len(starts)
        return starts[at : at + 1]

    def probed_by(self, starts: tuple[Start, ...]) -> StartPauses:
        """Return the pauses after a plan was carried out."""
        return self if self.queue is None or not starts else replace(self, probe=starts[0].id)

    def resting(self, now: float) -> dict[JobId, str]:
        """Return the jobs that must not start now, each with the reason."""
        return {job: pause.told(now) for job, pause in self.jobs.items() if pause.lasts(now)}

    def yielding(self, now: float) -> set[JobId]:
        """Return the jobs that start only if no other job can probe the machine."""
        return {job for job, until in self.tried.items() if now < until}

    def unusable(self, now: float) -> dict[DeviceId, str]:
        """Return the devices on which nothing may start now, each with the reason."""
        return {device: pause.why for device, pause in self.devices.items() if pause.lasts(now)}


def _recent(pauses: Mapping, now: float) -> dict:  # type: ignore[type-arg]
    return {key: pause for key, pause in pauses.items() if now < pause.until + FORGET_S}
