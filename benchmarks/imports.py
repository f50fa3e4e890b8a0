"""Which modules a Python program imports, told by the interpreter itself (`python -v`)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.sandboxes import PATIENCE_S

#: What the submit path does without: each of them costs more than asking the daemon does.
UNWANTED = frozenset({"json", "re", "typing", "asyncio", "argparse", "subprocess", "socket"})

LINE = re.compile(r"^import '([\w.]+)' #", re.MULTILINE)


def of(script: str, words: Sequence[str], environ: Mapping[str, str]) -> set[str]:
    """Return the modules that a Python script imports beyond those of the bare interpreter."""
    # A script that starts its interpreter isolated does not listen to the variable: then it is started the same way.
    found = _told([script, *words], {**environ, "PYTHONVERBOSE": "1"})
    found = found or _told([sys.executable, "-I", "-S", "-v", script, *words], environ)
    return found - _told([sys.executable, "-v", "-c", "pass"], environ)


def _told(command: Sequence[str], environ: Mapping[str, str]) -> set[str]:
    run = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return set(LINE.findall(run.stderr))
