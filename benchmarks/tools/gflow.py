"""gflow (PyPI: runqd): its daemon as `gflowd start` makes it, jobs in tmux, without GPUs.

Its jobs report their end by calling `gcancel`, in a login shell: that must find the virtual environment too.
"""

from __future__ import annotations

import csv
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sandboxes import BIN, Sandbox
from benchmarks.tools.tool import Submit, Tool, from_pypi


@contextmanager
def opened(box: Sandbox, slots: int) -> Iterator[Submit]:
    """Start the daemon on a port of its own, in a tmux server of its own."""
    _start(box)

    def submit(commands: Path) -> None:
        # One group of jobs with a limit is how it runs so many at once without GPUs. A column is a word.
        rows = [line.split() for line in commands.read_text().splitlines()]
        names = [f"word{n}" for n in range(len(rows[0]))]
        with open(box.folder / "words.csv", "w", newline="") as table:
            csv.writer(table).writerows([names, *rows])
        words = [f"{{{name}}}" for name in names]
        box.run(["gbatch", "--param-file", "words.csv", "--max-concurrent", str(slots), *words])

    yield submit


@contextmanager
def held(box: Sandbox) -> Iterator[list[str]]:
    """Let jobs wait for one that goes on."""
    _start(box)
    box.run(["gbatch", "sleep", "600"])
    yield ["gbatch", "--depends-on", "1", "true"]


def _start(box: Sandbox) -> None:
    for name in ("config", "data", "run", "tmux"):
        (box.folder / name).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    box.environ.update(
        XDG_CONFIG_HOME=str(box.folder / "config"),
        XDG_DATA_HOME=str(box.folder / "data"),
        XDG_RUNTIME_DIR=str(box.folder / "run"),
        TMUX_TMPDIR=str(box.folder / "tmux"),
        GFLOW_DAEMON_HOST="127.0.0.1",
        GFLOW_DAEMON_PORT=str(port),
    )
    (box.folder / "home" / ".profile").write_text(f'export PATH="{BIN}:$PATH"\n')
    box.run(["gflowd", "start"])


def _version() -> str | None:
    return from_pypi("runqd") if shutil.which("tmux") else None


TOOL = Tool(
    "gflow",
    "PyPI: runqd; Debian: tmux",
    "queue, logs",
    _version,
    opened,
    is_server=True,
    # About one job a second: enough jobs to see that.
    most_jobs=12,
    most_rounds=1,
    held=held,
)
