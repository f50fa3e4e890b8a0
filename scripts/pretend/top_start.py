"""`scripts/measure-top`: time from a command to what it shows, in a terminal, `dibs status` and `dibs top` in turn."""

from __future__ import annotations

import fcntl
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

DIBS = str(Path(sys.executable).with_name("dibs"))
ROUNDS = 15


def shown_after(verb: str, *texts: str) -> list[float]:
    """Return the seconds until each text is shown; then leave, and wait for the end."""
    began = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(DIBS, [DIBS, verb])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen, times = b"", []
    for text in texts:
        while text.encode() not in seen:
            seen += os.read(terminal, 65536)
        times.append(time.monotonic() - began)
    os.write(terminal, b"q")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        # The terminal is closed when the command ends.
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return times


def main() -> None:
    """Measure and print medians, and the ratio within each round."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(DIBS_HOME=f"{folder}/home", DIBS_LEASE_DIR=folder, DIBS_DEVICES="fake:4")
        os.environ.update(LANG="C.UTF-8", TERM="xterm-256color")
        try:
            subprocess.run([DIBS, "add", "-q", "--hold", "-n", "waiter", "true"], check=True)
            shown_after("status", "waiter")
            rounds = [[*shown_after("status", "waiter"), *shown_after("top", "waiter", "quit")] for _ in range(ROUNDS)]
        finally:
            subprocess.run([DIBS, "daemon", "stop"], check=False)
    status, first, keys = (statistics.median(each) for each in zip(*rounds, strict=True))
    ratio = statistics.median(one[1] / one[0] for one in rounds)
    print(
        f"dibs status {status * 1000:.0f} ms; dibs top: first screen {first * 1000:.0f} ms, keys {keys * 1000:.0f} ms"
    )
    print(f"first screen / dibs status: {ratio:.2f} (median of {ROUNDS} rounds)")


if __name__ == "__main__":
    main()
