"""xargs -P: the floor. It starts processes and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_debian


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Nothing to prepare."""
    options = ["-d", "\\n", "-n", "1", "-P", str(slots), "--process-slot-var=BENCH_SLOT"]

    def submit(commands: Path) -> None:
        box.run(["xargs", *options, "sh", "-c"], commands)

    yield submit


TOOL = Tool("xargs", "Debian: findutils", "nothing", lambda: from_debian("xargs", "findutils"), opened)
