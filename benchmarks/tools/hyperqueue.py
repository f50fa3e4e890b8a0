"""HyperQueue from its Python wheel: server and worker inside one process (`LocalCluster`), no journal.

The wheel has no `hq` program, so there is no submit from a shell to measure. A file of commands is one job of many
tasks, as an array is; a task's output goes to files, as is the default.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.errors import Failed
from benchmarks.sandboxes import PATIENCE_S, ROOT, Sandbox
from benchmarks.tools.tool import Submit, Tool, from_pypi


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Start the process and wait until it is ready."""
    words = [sys.executable, "-m", "benchmarks.tools.hyperqueue_server", str(box.folder), str(slots)]
    with (
        open(box.folder / "stderr", "wb") as errors,
        subprocess.Popen(
            words, cwd=ROOT, env=box.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        try:
            _expect(server, "ready")

            def submit(commands: Path) -> None:
                assert server.stdin is not None
                print(commands, file=server.stdin, flush=True)
                _expect(server, "submitted")

            yield submit
        finally:
            # It does not listen to SIGTERM.
            server.kill()


def _expect(server: subprocess.Popen[str], word: str) -> None:
    assert server.stdout is not None
    # Reading a pipe has no time limit; a dead server ends it.
    limit = threading.Timer(PATIENCE_S, server.kill)
    limit.start()
    try:
        for line in server.stdout:
            if line.strip() == word:
                return
    finally:
        limit.cancel()
    raise Failed(f"its server ended before it was {word}")


TOOL = Tool("hyperqueue", "PyPI: hyperqueue", "logs", lambda: from_pypi("hyperqueue"), opened, is_server=True)
