"""What one run of the benchmark does: which tools, how much of everything, and whose turn it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tools.tool import Tool

#: Jobs at once in every comparison: the GPUs of a usual server.
SLOTS = 4
#: When this program began.
BEGAN = time.monotonic()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    rounds: int
    #: Rounds of the parts that measure dibs alone, which take longer.
    own_rounds: int
    throughput_jobs: int
    gap_jobs: int
    pipe_lines: int
    #: Of a Python function that does nothing.
    calls: int
    submits: int
    #: Jobs in the queues in which verbs are timed, and jobs of one `dibs.submit`.
    verb_jobs: tuple[int, ...]
    python_jobs: int
    depths: tuple[int, ...]
    idle_for_s: float
    restart_queued: int
    restart_running: int
    #: Of the grid that is printed; a third power.
    points: int
    gpu_tasks: int
    #: Jobs and seconds under a crowd of readers: so many streams, and requests a second.
    load_jobs: int
    load_for_s: float
    load_streams: int
    load_rate: float
    #: On real clusters: of Slurm, of Ray, and of Ray through a broker.
    slurm_jobs: int
    ray_jobs: int
    broker_jobs: int
    #: Files that are made and deleted on the disk just before jobs are measured, as on people's machines.
    deleted_files: int = 0


FULL = Sizes(
    rounds=5,
    own_rounds=3,
    throughput_jobs=500,
    gap_jobs=200,
    pipe_lines=2_000,
    calls=500,
    submits=40,
    verb_jobs=(10, 100_000),
    python_jobs=10_000,
    depths=(1_000, 10_000, 100_000, 1_000_000),
    idle_for_s=5.0,
    restart_queued=10_000,
    restart_running=64,
    points=1_000_000,
    gpu_tasks=100,
    load_jobs=1_000,
    load_for_s=60.0,
    load_streams=200,
    load_rate=50.0,
    slurm_jobs=1_000,
    ray_jobs=12,
    broker_jobs=400,
)
#: To see whether it works, not how fast it is.
QUICK = Sizes(
    rounds=1,
    own_rounds=1,
    throughput_jobs=40,
    gap_jobs=24,
    pipe_lines=60,
    calls=30,
    submits=5,
    verb_jobs=(10, 1_000),
    python_jobs=100,
    depths=(1_000, 5_000),
    idle_for_s=1.0,
    restart_queued=500,
    restart_running=8,
    points=1_000,
    gpu_tasks=12,
    load_jobs=50,
    load_for_s=3.0,
    load_streams=20,
    load_rate=50.0,
    slurm_jobs=40,
    ray_jobs=6,
    broker_jobs=60,
)


def so_far() -> str:
    """Return how long it has taken until now, in minutes and seconds."""
    minutes, seconds = divmod(round(time.monotonic() - BEGAN), 60)
    return f"{minutes}:{seconds:02}"


def tell(text: str) -> None:
    """Say what is being done, to those who wait for it."""
    print(f"   {so_far():>5} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the benchmark."""

    sizes: Sizes
    tools: tuple[Tool, ...]
    #: Where sandboxes are made; on a real disk, or durability would cost nothing.
    work: Path
    #: The compiled `stamp.c`.
    stamp: Path

    def turns(self, failed: Collection[Tool]) -> Iterator[tuple[int, Tool]]:
        """Yield every round's tools, each round beginning with another one: drift hits all of them alike.

        One that has `failed` is not asked again: it may have taken minutes to do so.
        """
        for number in range(self.sizes.rounds):
            first = number % len(self.tools)
            for tool in self.tools[first:] + self.tools[:first]:
                if number < tool.most_rounds and tool not in failed:
                    tell(f"round {number + 1} of {self.sizes.rounds}: {tool.name}")
                    yield number, tool
