"""A place of its own for each run of a tool: an empty folder, a plain environment, and an end for all it started.

Whatever runs in a sandbox has the name of the folder in its environment; that is how it is found and ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import Failed

#: The virtual environment that the benchmark runs in; not resolved, a link there is part of it.
BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
#: Seconds a command of a tool may take when it does not say otherwise.
PATIENCE_S = 60.0
#: Seconds until everything that was killed must be gone.
END_FOR_S = 10.0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where one run of one tool happens."""

    folder: Path
    environ: dict[str, str]

    def run(self, words: Sequence[str], stdin: Path | None = None, patience_s: float = PATIENCE_S) -> str:
        """Run a command to its end and return its output; an error or no end is a failed run."""
        output, errors = self.folder / "stdout", self.folder / "stderr"
        with open(stdin or os.devnull, "rb") as given, open(output, "wb") as out, open(errors, "wb") as err:
            try:
                code = subprocess.run(
                    words, stdin=given, stdout=out, stderr=err, env=self.environ, cwd=self.folder, timeout=patience_s
                ).returncode
            except subprocess.TimeoutExpired:
                raise Failed(f"{words[0]} did not end within {patience_s:.0f} s") from None
        if code:
            raise Failed(f"{words[0]} exited {code}: {_last_line(errors).removeprefix(f'{words[0]}: ')}")
        return output.read_text(errors="replace")

    def write(self, name: str, lines: Sequence[str]) -> Path:
        """Write a file of lines in the folder."""
        path = self.folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


@contextlib.contextmanager
def opened(work: Path) -> Iterator[Sandbox]:
    """Make a sandbox below `work`; at the end nothing of it runs.

    Its files stay until the end of all: a file system that has just lost thousands of files is slow to make new ones
    (ext4 passes over each inode deleted a minute ago), and the next tool would pay for it.
    """
    folder = Path(tempfile.mkdtemp(prefix="", dir=work))
    environ = {
        "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        "USER": os.environ.get("USER", "bench"),
        "BENCH_FOLDER": str(folder),
    }
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    try:
        yield Sandbox(folder, environ)
    finally:
        end_all(folder)


def end_all(folder: Path) -> None:
    """Kill every process that has `folder` in its environment, and wait until none is left."""
    deadline = time.monotonic() + END_FOR_S
    while pids := _inside(folder):
        if time.monotonic() > deadline:
            print(f"   processes {pids} would not end", file=sys.stderr)
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _inside(folder: Path) -> list[int]:
    # The slash or the end after it: one folder's name may begin another's.
    marks = (f"={folder}/".encode(), f"={folder}\0".encode())
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                environ = Path(entry.path, "environ").read_bytes() + b"\0"
                if any(mark in environ for mark in marks):
                    found.append(int(entry.name))
    return found


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"
