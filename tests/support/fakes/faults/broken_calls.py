"""System calls that fail on demand in the processes that a daemon starts: builds the library, and sets faults."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_faults.c")


class BrokenCalls:
    """Which calls fail, as lines of a file that every call reads."""

    def __init__(self, folder: Path) -> None:
        self.library = folder / "libfaults.so"
        self._state = folder / "faults.txt"
        flags = ("-O1", "-Wall", "-Werror", "-shared", "-fPIC")
        subprocess.run(["gcc", *flags, "-o", str(self.library), str(SOURCE), "-ldl"], check=True)

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of a daemon whose children are to meet the faults."""
        return {"LD_PRELOAD": str(self.library), "FAKE_FAULTS": str(self._state)}

    def fail(self, call: str, number: int) -> None:
        """Let a call fail from now on."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(f"{call} {number}\n")
        os.rename(fresh, self._state)

    def work(self) -> None:
        """Let everything work again."""
        self._state.unlink(missing_ok=True)
