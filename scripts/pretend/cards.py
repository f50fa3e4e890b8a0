"""The pretend cards: their names, and how busy each of them is at a given minute with a given job on it.

Pure. `machine` tells it to the pretend driver, `history` keeps it for the minutes that are over.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from pretend import day
from pretend.day import Work

GB = 2**30
NAME = "NVIDIA_A100-SXM4-80GB"
TOTAL = 80 * GB
IDLE_W, FULL_W = 58, 395
FOREIGN_GB, FOREIGN_USE = 21, 36


class Reading(NamedTuple):
    """A card at one moment."""

    memory: int
    utilization: int
    power_w: float
    temperature: int


def uuid(index: int) -> str:
    """Return the id of a card, always the same."""
    return f"GPU-{random.Random(index + 80).getrandbits(32):08x}-0d1b-5000-a100-{index:012d}"


def reading(index: int, at: float, work: Work | None) -> Reading:
    """Return what a card tells at a minute: with a job, with a stranger on it, or idle."""
    if work is not None:
        return _busy(index, at, work.kind.utilization, work.kind.memory_gb, warm_up=at - work.began)
    if index == day.FOREIGN and at >= day.FOREIGN_SINCE:
        return _busy(index, at, FOREIGN_USE, FOREIGN_GB, warm_up=9)
    return idle(index)


def idle(index: int) -> Reading:
    """Return what a card tells while nobody uses it."""
    return Reading(0, 0, float(IDLE_W - index % 3), 33 + index % 4)


def _busy(index: int, at: float, utilization: int, memory_gb: int, warm_up: float) -> Reading:
    chance = random.Random(f"{index} {at:.2f}")
    # Slow waves as of epochs, validation in between, and the noise of a counter.
    wave = 3 * math.sin(at / 4 + index) + chance.uniform(-2.5, 2.5) - (18 if int(at) % 23 == 11 else 0)
    use = max(0, min(100, round(utilization + wave)))
    memory = round(memory_gb * GB * (1 if warm_up > 1 else 0.4))
    return Reading(memory, use, float(round(IDLE_W + (FULL_W - IDLE_W) * use / 100)), 36 + use // 3 + index % 3)
