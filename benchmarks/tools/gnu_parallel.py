"""GNU parallel: commands from stdin, in the foreground, output kept in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_debian

#: Seconds for one run: thousands of lines take it minutes where others need seconds.
PATIENCE_S = 600.0


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Nothing to prepare."""

    def submit(commands: Path) -> None:
        box.run(["parallel", "-j", str(slots)], commands, PATIENCE_S)

    yield submit


TOOL = Tool("GNU parallel", "Debian: parallel", "nothing", lambda: from_debian("parallel", "parallel"), opened)
