"""task-spooler, on Debian `tsp` (`ts` is a time stamper there): a server in memory, one client per waiting job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_debian

#: One call a job is the only way in. The words of our commands need no quoting.
LOOP = 'while read -r line; do tsp $line; done < "$1"'


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Start the server by telling it the number of slots."""
    box.environ["TS_SOCKET"] = str(box.folder / "socket")
    box.run(["tsp", "-S", str(slots)])

    def submit(commands: Path) -> None:
        box.run(["sh", "-c", LOOP, "sh", str(commands)])

    yield submit


@contextmanager
def held(box: Sandbox) -> Iterator[list[str]]:
    """Keep the only slot busy."""
    with opened(box, 1):
        box.run(["tsp", "sleep", "600"])
        yield ["tsp", "true"]


TOOL = Tool(
    "task-spooler",
    "Debian: task-spooler",
    "nothing",
    lambda: from_debian("tsp", "task-spooler"),
    opened,
    is_server=True,
    # It stops at about 990 waiting jobs, one connection each.
    most_jobs=900,
    held=held,
)
