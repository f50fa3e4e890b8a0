"""A user in tmux: a real terminal of any size, keys that are pressed, and the screen as it looks."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import PATIENCE_S, Bench
from waits import wait_for

DIBS = (sys.executable, "-m", "dibs")


class Tmux:
    """One command in the only window of a tmux server of its own."""

    def __init__(
        self,
        bench: Bench,
        *words: str,
        columns: int = 80,
        lines: int = 24,
        program: Sequence[str] = DIBS,
        **environ: str,
    ) -> None:
        # A socket's path must be short.
        self._folder = tempfile.TemporaryDirectory(prefix="tm", dir="/tmp")
        self._socket = Path(self._folder.name) / "s"
        self._environ = bench.environ | {"LANG": "C.UTF-8", "TERM": "xterm-256color"} | environ
        command = shlex.join([*program, *words])
        # The shell stays, so that the exit code and what was left on the screen can be read.
        script = f'{command}; echo "exit $?"; cat'
        self._tmux(
            *("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "-c", str(bench.folder)),
            script,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tmux("kill-server")
        self._folder.cleanup()

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        """Return the screen as it is now."""
        return self._tmux("capture-pane", "-p", "-t", "0")

    def until(self, *texts: str) -> str:
        """Wait until the screen has all of these texts; return it."""
        return wait_for(self.screen, lambda shown: all(text in shown for text in texts))

    def until_gone(self, text: str) -> str:
        """Wait until the screen no longer has a text; return it."""
        return wait_for(self.screen, lambda shown: text not in shown)

    def press(self, *keys: str) -> None:
        """Press keys, by the names that tmux has for them."""
        self._tmux("send-keys", "-t", "0", *keys)

    def type(self, text: str) -> None:
        """Type a text as it is."""
        self._tmux("send-keys", "-t", "0", "-l", "--", text)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        self._tmux("resize-window", "-t", "0", "-x", str(columns), "-y", str(lines))
