"""The drop-in `simple_gpu_scheduler` of dibs-compat, called exactly as the original."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import sandboxes
from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_pypi


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Give it leases of its own, and let its name mean ours."""
    leases = box.folder / "leases"
    leases.mkdir()
    # Not installed beside the original, whose name it has.
    box.environ.update(DIBS_LEASE_DIR=str(leases), PYTHONPATH=str(sandboxes.ROOT / "compat" / "src"))
    gpus = ",".join(str(gpu) for gpu in range(slots))

    def submit(commands: Path) -> None:
        box.run([sys.executable, "-m", "simple_gpu_scheduler.scheduler", "--gpus", gpus], commands)

    yield submit


TOOL = Tool("dibs-compat", "this project", "nothing", lambda: from_pypi("dibs"), opened)
