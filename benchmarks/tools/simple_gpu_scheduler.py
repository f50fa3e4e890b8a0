"""simple_gpu_scheduler: commands from stdin, one GPU each, in the foreground. It keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_pypi


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Nothing to prepare."""
    gpus = ",".join(str(gpu) for gpu in range(slots))

    def submit(commands: Path) -> None:
        box.run(["simple_gpu_scheduler", "--gpus", gpus], commands)

    yield submit


TOOL = Tool(
    "simple_gpu_scheduler",
    "PyPI: simple-gpu-scheduler",
    "nothing",
    lambda: from_pypi("simple-gpu-scheduler"),
    opened,
)
