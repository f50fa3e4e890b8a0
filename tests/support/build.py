"""Values for tests, naming only what matters: `build.job(gpus=2)`, `build.inventory(4)`, `build.waiting(gpus=2)`.

Also the random lives that more than one test module draws, and how hard hypothesis tries: every property follows the
profile (`HYPOTHESIS_PROFILE=thorough` for a long night).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dibs.model import devices, lifecycle
from dibs.model.devices import Device, DeviceId, Inventory
from dibs.model.fields import JobSpec
from dibs.model.jobs import Job, JobId, Request
from dibs.scheduling.views import WaitingJob

T = TypeVar("T")

# No deadline: a busy machine is no failure.
settings.register_profile("quick", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

#: A time, in wall-clock milliseconds: 2026-11-15T12:00:00Z.
NOW = 1_794_744_000_000

_REQUEST_FIELDS = frozenset(field.name for field in dataclasses.fields(Request))
_JOB_FIELDS = frozenset(field.name for field in dataclasses.fields(Job))


def ids(*indices: int) -> tuple[DeviceId, ...]:
    """Return the ids of pretend GPUs."""
    return tuple(DeviceId(f"FAKE-{index}") for index in indices)


def inventory(count: int = 4, *, faulty: Collection[int] = (), names: dict[int, str] | None = None) -> Inventory:
    """Return `count` pretend GPUs, `FAKE-0` and on."""

    def made(device: Device) -> Device:
        fault = "reset required" if device.index in faulty else None
        return dataclasses.replace(device, fault=fault, name=(names or {}).get(device.index, device.name))

    return Inventory(tuple(made(device) for device in devices.pretend(count, 24 * 2**30)))


def spec(command: str = "python train.py", **wanted: Any) -> JobSpec:
    """Return the spec of a job; fields of the request may be given beside the others."""
    request = Request(**{name: wanted.pop(name) for name in list(wanted) if name in _REQUEST_FIELDS})
    return JobSpec(command, **{"argv": None, "cwd": "/home/ada", "request": request} | wanted)


def job(number: int = 1, **wanted: Any) -> Job:
    """Return a submitted job; its own fields may be given beside those of the spec."""
    own = {name: wanted.pop(name) for name in list(wanted) if name in _JOB_FIELDS}
    return Job(JobId(number), own.pop("asked", None) or spec(**wanted), own.pop("submitted_at", NOW), **own)


def lived(start: Job, *events: lifecycle.Event) -> Job:
    """Return a job after these events."""
    for event in events:
        start = lifecycle.advance(start, event)
    return start


def waiting(number: int = 1, gpus: int = 1, priority: int = 0, **request: Any) -> WaitingJob:
    """Return a queued job as the plan sees it; `gpu_ids` alone also set the count."""
    return WaitingJob(JobId(number), Request(len(request.get("gpu_ids", ())) or gpus, **request), priority)


class Dice:
    """Choices read from drawn bytes: one draw per value, which is ten times as fast as a draw per choice."""

    def __init__(self, drawn: bytes) -> None:
        self._left = list(drawn)

    def number(self, low: int, high: int) -> int:
        """Return a number, ends included; the lowest when the bytes are used up."""
        return low + (self._left.pop() if self._left else 0) % (high - low + 1)

    def one(self, options: Sequence[T]) -> T:
        """Return one of `options`."""
        return options[self.number(0, len(options) - 1)]

    def some(self, options: Sequence[T], low: int = 0, high: int = 255) -> list[T]:
        """Return some of `options` in any order, each at most once."""
        left = list(options)
        count = self.number(min(low, len(left)), min(high, len(left)))
        return [left.pop(self.number(0, len(left) - 1)) for _ in range(count)]


def drawn(make: Callable[[Dice], T]) -> st.SearchStrategy[T]:
    """Return a strategy of the values that `make` builds from the dice."""
    return st.binary(min_size=64, max_size=64).map(lambda data: make(Dice(data)))


def most_held(wants: Sequence[tuple[int, Collection[str]]], free: Collection[str]) -> list[int]:
    """Return how many of `free` the first of `wants`, the first two, ... can hold at most, by exhaustive search."""
    ways = {(0,) * len(wants)}
    for device in free:
        for held in list(ways):
            for n, (count, usable) in enumerate(wants):
                if device in usable and held[n] < count:
                    ways.add((*held[:n], held[n] + 1, *held[n + 1 :]))
    return [max(sum(held[: n + 1]) for held in ways) for n in range(len(wants))]


# -- random lives -------------------------------------------------------------------------------------------------

#: Each stands for one event of a life. Drawn as plain numbers because that is much faster than drawing events.
NUMBERS = st.integers(0, 2**16)

_ENDS = [
    {"exit_code": 0},
    {"exit_code": 3},
    {"signal": 9},
    {"exit_code": 127, "not_started": "no such file"},
]

_EVENTS: dict[type, list[dict[str, Any]]] = {
    lifecycle.Placed: [{"devices": ids(*indices)} for indices in ((), (0,), (2,), (1, 3), (0, 1, 2, 3))],
    lifecycle.GivenUp: [{"why": "its runner died", "runner_died": died} for died in (False, True)],
    lifecycle.Started: [{"pid": 77}, {"pid": 4_000_000}],
    lifecycle.Ended: [
        {**end, "timed_out": timed_out, "was_stopped": was_stopped, "started_at": started_at}
        for end, timed_out, was_stopped, started_at in itertools.product(
            _ENDS, (False, True), (False, True), (None, NOW)
        )
    ],
    lifecycle.LostTrack: [{"why": "no record"}],
    lifecycle.CannotStart: [{"why": "three runners died"}],
    lifecycle.Misused: [{"why": "uses a GPU that it was not given"}],
    lifecycle.StoppedEarly: [{"why": "other runs do better"}],
    lifecycle.EvictAsked: [{"user": "1001", "leaves_at": NOW + 30_000}],
    lifecycle.Evicted: [{"exit_code": 75}, {"signal": 9, "started_at": NOW}],
    lifecycle.NeedFailed: [{"need": JobId(7)}],
    lifecycle.NeedRetried: [{"need": JobId(7)}],
    lifecycle.RetryAsked: [{"is_automatic": automatic} for automatic in (False, True)],
}


#: Every kind of event.
EVENT_KINDS = tuple(
    kind for kind in vars(lifecycle).values() if isinstance(kind, type) and kind.__base__ is lifecycle.Event
)


def event(job: Job, number: int, at: int = NOW) -> lifecycle.Event:
    """Return one of the events that may happen to a job in its state."""
    allowed = [kind for state, kind in lifecycle.TRANSITIONS if state is job.state]
    kind = allowed[number % len(allowed)]
    ways = _EVENTS.get(kind, [{}])
    return kind(at=at, **ways[number // len(allowed) % len(ways)])
