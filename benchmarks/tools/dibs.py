"""dibs itself: a daemon in a state folder of its own, on pretend GPUs, all settings as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import queues
from benchmarks.sandboxes import Sandbox
from benchmarks.tools.tool import Submit, Tool, from_pypi


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Start the daemon; `dibs add -` takes the file."""
    queues.start(box, f"fake:{slots}")

    def submit(commands: Path) -> None:
        box.run(["dibs", "add", "-"], commands)

    yield submit


@contextmanager
def held(box: Sandbox) -> Iterator[list[str]]:
    """Keep both devices busy; some commands of the benchmark ask for two."""
    queue = queues.start(box, "fake:2")
    for _ in range(2):
        queue.wait_started(queue.add("sleep 600"))
    yield ["dibs", "add", "true"]


TOOL = Tool(
    "dibs", "this project", "queue, results, logs", lambda: from_pypi("dibs"), opened, is_server=True, held=held
)
