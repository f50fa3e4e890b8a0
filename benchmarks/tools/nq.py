"""nq: no server, a folder is a queue with one slot; several slots are several folders, filled in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_debian

#: The words of our commands need no quoting.
LOOP = """
turn=0
while read -r line; do
    BENCH_SLOT=$turn NQDIR=$1/queue-$turn nq -q $line
    turn=$(((turn + 1) % $2))
done < "$3"
"""


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Nothing to prepare: it makes its folders by itself."""

    def submit(commands: Path) -> None:
        box.run(["sh", "-c", LOOP, "sh", str(box.folder), str(slots), str(commands)])

    yield submit


@contextmanager
def held(box: Sandbox) -> Iterator[list[str]]:
    """Keep one queue busy."""
    box.environ["NQDIR"] = str(box.folder / "queue")
    box.run(["nq", "-q", "sleep", "600"])
    yield ["nq", "-q", "true"]


TOOL = Tool(
    "nq",
    "Debian: nq",
    "logs",
    lambda: from_debian("nq", "nq"),
    opened,
    is_server=True,
    # One process per waiting job, and each looks at all files before it.
    most_jobs=2000,
    held=held,
)
