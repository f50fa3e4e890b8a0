"""`dibs pipe`: commands from stdin, in the foreground, on pretend GPUs. Leases and the line are those of every door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_pypi


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Give it leases of its own."""
    leases = box.folder / "leases"
    leases.mkdir()
    box.environ.update(DIBS_LEASE_DIR=str(leases), DIBS_DEVICES=f"fake:{slots}")

    def submit(commands: Path) -> None:
        box.run(["dibs", "pipe"], commands)

    yield submit


TOOL = Tool("dibs pipe", "this project", "nothing", lambda: from_pypi("dibs"), opened)
