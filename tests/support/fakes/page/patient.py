"""Runs a script as python does, but `time.sleep` lasts until the typist lets time pass."""

import os
import runpy
import sys
import time
from pathlib import Path

GATE = Path(os.environ["HOME"], ".time-passes")
blink = time.sleep


def sleep(_seconds: float) -> None:
    """Wait until time passes."""
    while not GATE.exists():
        blink(0.02)


time.sleep = sleep
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
