"""GNU parallel: commands from stdin, in the foreground, output kept in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_debian


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Nothing to prepare."""

    def submit(commands: Path) -> None:
        box.run(["parallel", "-j", str(slots)], commands)

    yield submit


TOOL = Tool("GNU parallel", "Debian: parallel", "nothing", lambda: from_debian("parallel", "parallel"), opened)
