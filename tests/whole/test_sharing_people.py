"""Two users and a pipe share GPUs by memory: the sum never exceeds a card, and whoever wants one alone has it alone."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import people
from bench import wait_for
from people import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

GIB = 1024
#: MiB of a card, as in fake:4x24G; one who has it alone is counted with all of it.
CARD = 24 * GIB

#: Leaves a mark while it has its share, and looks at those of all others on the same card. The mark is made after the
#: share was taken and removed before it is given back, so what is seen is never more than what was given away.
MARK = """\
mark=$1/$CUDA_VISIBLE_DEVICES.$2.$$
: > "$mark"
sum=0 count=0
for other in "$1/$CUDA_VISIBLE_DEVICES".*; do
    rest=${other#"$1/$CUDA_VISIBLE_DEVICES".}
    sum=$((sum + ${rest%.*})) count=$((count + 1))
done
[ $sum -le 24576 ] && [ $count -le 4 ] || echo "$CUDA_VISIBLE_DEVICES: $count with $sum MiB" >> "$1-exceeded"
while [ ! -e "$1-open" ]; do sleep 0.01; done
rm "$mark"
echo "$2" >> "$1-done"
"""


class Town:
    """Two users who share four cards, and the marks of their jobs."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        leases, self.marks = folder / "leases", folder / "marks"
        for shared in (leases, self.marks):
            shared.mkdir()
            shared.chmod(0o1777)
        (folder / "mark.sh").write_text(MARK)
        for name in ("marks-exceeded", "marks-done"):
            (folder / name).touch()
            (folder / name).chmod(0o666)
        self.folder = folder
        self.ann, self.ben = (people.make_person(name, folder, leases, "fake:4x24G") for name in people.NAMES)

    def command(self, mib: int) -> str:
        return f"sh {self.folder}/mark.sh {self.marks} {mib}"

    def add(self, person: Person, mib: int, count: int) -> None:
        """Queue some equal jobs; one that wants all of a card wants it alone."""
        share = ["--vram", f"{mib}M"] if mib < CARD else []
        person.dibs("add", "--repeat", str(count), *share, self.command(mib))

    def open(self) -> None:
        """Let the jobs end that have begun, and those that begin."""
        Path(f"{self.marks}-open").touch()

    def ended(self) -> list[int]:
        return [int(line) for line in Path(f"{self.marks}-done").read_text().split()]

    def exceeded(self) -> str:
        return Path(f"{self.marks}-exceeded").read_text()


@pytest.fixture
def town() -> Iterator[Town]:
    # Not tmp_path: pytest keeps its folders for root alone.
    folder = Path(tempfile.mkdtemp(prefix="dibs-sharing-"))
    made = Town(folder)
    yield made
    made.ann.close()
    made.ben.close()
    shutil.rmtree(folder)


def shares(gpus: list[dict]) -> list[list[int | None]]:
    return [[holder["vram"] for holder in gpu["holders"]] for gpu in gpus]


def test_forty_jobs_of_two_users_and_a_pipe_never_have_more_than_there_is(town: Town) -> None:
    """All cards are full before the last one is queued, so every job behind has to be let in by the rule."""
    dice = random.Random(7)
    town.add(town.ann, 12 * GIB, 8)
    wait_for(lambda: shares(town.ben.gpus()), lambda seen: seen == [[12 * 2**30] * 2] * 4)
    town.add(town.ben, CARD, 2)
    town.add(town.ann, CARD, 2)
    with town.ben.popen("pipe", "--vram", "5G") as pipe:
        assert pipe.stdin is not None
        pipe.stdin.write((town.command(5 * GIB) + "\n") * 8)
        pipe.stdin.flush()
        for person in (town.ann, town.ben):
            for _ in range(2):
                town.add(person, dice.randrange(1 * GIB, 20 * GIB), 5)
        # A card with room was empty for nobody so far: both daemons and the pipe stand in the line.
        wait_for(lambda: len(town.ann.json("gpus")["waiters"]), lambda count: count == 3)
        town.open()
        pipe.stdin.close()
        assert pipe.wait(timeout=120) == 0
    town.ann.dibs("wait")
    town.ben.dibs("wait")
    assert town.exceeded() == ""
    assert len(town.ended()) == 40
    assert town.ended().count(CARD) == 4
    wait_for(lambda: shares(town.ann.gpus()), lambda seen: seen == [[]] * 4)
