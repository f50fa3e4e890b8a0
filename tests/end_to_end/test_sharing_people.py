"""Two users and a pipe share GPUs by memory: the sum never exceeds a card, and exclusive use is exclusive."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import people
from bench import PATIENCE_S, wait_for
from fakes.nvml.world import World
from people import Person, SharedMachine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

GIB = 1024
#: MiB of a card; an exclusive job counts with all of it.
CARD = 24 * GIB

#: Leaves a mark while it has its share, and reads the marks of all others on the same card and its foreign use.
#: The mark is made after the share was taken and removed before it is given back, so the sum of marks never exceeds
#: what was given away. It ends when its gate is open.
MARK = """\
mark=$1/$CUDA_VISIBLE_DEVICES.$2.$$
: > "$mark"
sum=$(cat "$1-foreign.$CUDA_VISIBLE_DEVICES" 2> /dev/null || echo 0) count=0
for other in "$1/$CUDA_VISIBLE_DEVICES".*; do
    rest=${other#"$1/$CUDA_VISIBLE_DEVICES".}
    sum=$((sum + ${rest%.*})) count=$((count + 1))
done
[ $sum -le 24576 ] && [ $count -le 4 ] || echo "$CUDA_VISIBLE_DEVICES: $count with $sum MiB" >> "$1-exceeded"
echo "$2" >> "$1-begun"
while [ ! -e "$1-open.$3" ]; do sleep 0.01; done
rm "$mark"
echo "$2" >> "$1-done"
"""


class Town:
    """Two users who share cards, and the marks of their jobs."""

    def __init__(self, machine: SharedMachine, environ: dict[str, str]) -> None:
        self.folder = folder = machine.folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.marks.chmod(0o1777)
        (folder / "mark.sh").write_text(MARK)
        for name in ("marks-exceeded", "marks-begun", "marks-done"):
            (folder / name).touch()
            (folder / name).chmod(0o666)
        self.ann, self.ben = machine.pair("")
        for person in (self.ann, self.ben):
            person.environ |= environ

    def command(self, mib: int, gate: str = "first") -> str:
        return f"sh {self.folder}/mark.sh {self.marks} {mib} {gate}"

    def add(self, person: Person, mib: int, count: int, gate: str = "first") -> int:
        """Submit some equal jobs and return the id of the first; a job for a whole card is exclusive."""
        share = ["--vram", f"{mib}M"] if mib < CARD else []
        return int(person.dibs("add", "--repeat", str(count), *share, self.command(mib, gate)).split()[0])

    def open(self, gate: str = "first") -> None:
        """Let the jobs that have started end, and those that start later."""
        Path(f"{self.marks}-open.{gate}").touch()

    def begun(self) -> list[int]:
        return [int(line) for line in Path(f"{self.marks}-begun").read_text().split()]

    def ended(self) -> list[int]:
        return [int(line) for line in Path(f"{self.marks}-done").read_text().split()]

    def exceeded(self) -> str:
        return Path(f"{self.marks}-exceeded").read_text()


class Stranger:
    """A process that uses cards of a fake driver without a lease."""

    CARDS = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")

    def __init__(self, town: Town, nvml: World, pid: int) -> None:
        self._town = town
        self._nvml = nvml
        self._pid = pid

    def uses(self, *mib: int) -> None:
        """Use the given amount of each card from now on; return when both users know."""
        for card, amount in zip(self.CARDS, mib, strict=True):
            # Written before the driver reports it: nobody may know of freed memory earlier than the jobs do.
            Path(f"{self._town.marks}-foreign.{card}").write_text(str(amount))
        self._nvml.is_now(*lines(self.CARDS, mib, self._pid))
        for look in (self._town.ann.gpus, self._town.ben.gpus):
            wait_for(lambda look=look: [gpu["foreign_memory"] // 2**20 for gpu in look()], lambda seen: seen == [*mib])


def lines(cards: Sequence[str], mib: Sequence[int], pid: int = 0) -> Iterator[str]:
    """Return cards of a fake driver of which a process uses the given amount."""
    for index, (card, amount) in enumerate(zip(cards, mib, strict=True)):
        yield f"gpu {index} uuid={card} total={CARD * 2**20} used={amount * 2**20}"
        if amount:
            yield f"proc {index} pid={pid} mem={amount * 2**20}"


@pytest.fixture
def machine(library: Path) -> Iterator[tuple[Town, Stranger]]:
    """Two users who share four cards of a fake driver with a foreign process."""
    with people.shared_machine() as shared, subprocess.Popen(["sleep", "1000"]) as process:
        nvml = World(Path(shutil.copy(library, shared.folder)), shared.folder / "state.txt")
        nvml.is_now(*lines(Stranger.CARDS, (0, 0, 0, 0)))
        town = Town(shared, nvml.environ)
        yield town, Stranger(town, nvml, process.pid)
        process.kill()


def shares(gpus: list[dict]) -> list[list[int | None]]:
    return [[holder["vram"] for holder in gpu["holders"]] for gpu in gpus]


def waiters(town: Town) -> int:
    return len(town.ann.json("gpus")["waiters"])


def test_jobs_of_two_users_and_a_pipe_never_exceed_what_foreign_use_leaves(
    machine: tuple[Town, Stranger],
) -> None:
    """Foreign use grows only while no card has room for a waiting job: an increase during a start cannot be known."""
    town, stranger = machine
    both = (town.ann, town.ben)
    dice = random.Random(7)
    for person in both:
        town.add(person, 12 * GIB, 4)
    wait_for(town.begun, lambda begun: len(begun) == 8)
    wait_for(lambda: shares(town.ben.gpus()), lambda seen: seen == [[12 * 2**30] * 2] * 4)
    # All cards are full, so every later job has to be admitted by the rule.
    stranger.uses(8 * GIB, 9 * GIB, 6 * GIB, 5 * GIB)
    with town.ben.popen("pipe", "--vram", "5G") as pipe:
        assert pipe.stdin is not None
        pipe.stdin.write((town.command(5 * GIB) + "\n") * 4)
        pipe.stdin.flush()
        for person in both:
            for _ in range(2):
                town.add(person, dice.randrange(1 * GIB, 15 * GIB), 4)
        wait_for(lambda: waiters(town), lambda count: count == 3)
        town.open()
        wait_for(town.ended, lambda ended: len(ended) == 28)
        assert town.exceeded() == ""
        # The rest of the cards is too small for these, until the foreign process is gone.
        large = [town.add(person, 20 * GIB, 2, "second") for person in both]
        for person in both:
            town.add(person, CARD, 2)

        def reasons() -> list[str]:
            return [str(person.show(job)["reason"]) for person, job in zip(both, large, strict=True)]

        wait_for(reasons, lambda seen: all("0 of 4 have room" in reason for reason in seen))
        stranger.uses(0, 0, 0, 0)
        wait_for(town.begun, lambda begun: begun.count(20 * GIB) == 4)
        pipe.stdin.write((town.command(5 * GIB) + "\n") * 4)
        pipe.stdin.close()
        # It returns while each card has one of them: that card has less for the others.
        stranger.uses(0, 7 * GIB, 0, 0)
        town.open("second")
        assert pipe.wait(timeout=PATIENCE_S) == 0
    for person in both:
        person.dibs("wait")
    assert town.exceeded() == ""
    assert len(town.ended()) == 40
    assert [town.ended().count(mib) for mib in (5 * GIB, 20 * GIB, CARD)] == [8, 4, 4]
    wait_for(lambda: shares(town.ann.gpus()), lambda seen: seen == [[]] * 4)
