"""Jobs that note their own times (`stamp.c`): making the program, writing its command lines, reading what it noted.

Every moment is CLOCK_MONOTONIC in nanoseconds, the clock of `time.monotonic_ns`.
"""

from __future__ import annotations

import itertools
import struct
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import Failed

SOURCE = Path(__file__).with_name("stamp.c")
RECORD = struct.Struct("=QQQ40s")
#: Seconds between two looks at the size of the file. The times are in the records, so this decides nothing.
LOOK_EVERY_S = 0.005


@dataclass(frozen=True, slots=True)
class Stamp:
    """What one job noted."""

    number: int
    started_ns: int
    ended_ns: int
    slot: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """A file that jobs write to, and the program that does it."""

    program: Path
    file: Path

    def command(self, number: int, sleep_us: int = 0) -> str:
        """Return the command line of a job; it has no characters that a shell would read."""
        return f"{self.program} {self.file} {sleep_us} {number}"

    def read(self) -> list[Stamp]:
        """Return what was noted so far, in order of start."""
        data = self.file.read_bytes()
        whole = data[: len(data) // RECORD.size * RECORD.size]
        found = [
            Stamp(number, started_ns, ended_ns, slot.rstrip(b"\0").decode())
            for number, started_ns, ended_ns, slot in RECORD.iter_unpack(whole)
        ]
        return sorted(found, key=lambda stamp: stamp.started_ns)

    def wait(self, count: int, patience_s: float) -> list[Stamp]:
        """Return the stamps of `count` jobs when all have ended."""
        deadline = time.monotonic() + patience_s
        while self.file.stat().st_size < count * RECORD.size:
            if time.monotonic() > deadline:
                raise Failed(f"{len(self.read())} of {count} jobs ended within {patience_s:.0f} s")
            time.sleep(LOOK_EVERY_S)
        return self.read()


def build(folder: Path) -> Path:
    """Compile the program, statically where the C library allows: a dynamic linker is no part of any scheduler."""
    program = folder / "stamp"
    flags = ["-O2", "-Wall", "-Werror", "-o", str(program), str(SOURCE)]
    if subprocess.run(["gcc", "-static", *flags], capture_output=True, check=False).returncode:
        subprocess.run(["gcc", *flags], check=True)
    return program


def sheet(program: Path, folder: Path, name: str = "stamps") -> Sheet:
    """Return an empty sheet in `folder`."""
    file = folder / name
    file.touch()
    return Sheet(program, file)


def check(found: Sequence[Stamp], numbers: Iterable[int], slots: int) -> None:
    """Refuse a run in which a job ran twice or not at all, or more ran at once than there are slots."""
    if sorted(stamp.number for stamp in found) != sorted(numbers):
        raise Failed(f"expected every job once, got {len(found)} ends of {len({s.number for s in found})} jobs")
    moves = sorted([(s.started_ns, 1) for s in found] + [(s.ended_ns, -1) for s in found])
    running = most = 0
    for _, change in moves:
        running += change
        most = max(most, running)
    if most > slots:
        raise Failed(f"{most} jobs ran at once on {slots} slots")


def gaps_ns(found: Sequence[Stamp], slots: int) -> list[int]:
    """Return how long each slot was empty between two jobs.

    Where every job names its slot, its predecessor there is meant. Where a tool has no names for its slots, the end
    that made the start possible is: with `slots` of them, start number k + slots waits for end number k.
    """
    by_slot: dict[str, list[Stamp]] = {}
    for stamp in found:
        by_slot.setdefault(stamp.slot, []).append(stamp)
    if "" not in by_slot and len(by_slot) == slots:
        pairs = [pair for line in by_slot.values() for pair in itertools.pairwise(line)]
        return [after.started_ns - before.ended_ns for before, after in pairs]
    ends = sorted(stamp.ended_ns for stamp in found)
    starts = [stamp.started_ns for stamp in found][slots:]
    return [start - end for start, end in zip(starts, ends, strict=False)]
