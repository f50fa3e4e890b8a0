"""A fake NVIDIA driver: builds the fake library, and changes what it reports."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")

#: The UUID that the fake gives to a card when the state does not name one.
UUID = "GPU-00000000-0000-0000-0000-{:012d}"


def build(folder: Path) -> Path:
    """Compile the fake library into `folder` and return its path; without a C compiler the test fails."""
    library = folder / "libnvidia-ml.so.1"
    flags = ("-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
    subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


class World:
    """What the fake library reports, as lines of its state file (see the head of fake_nvml.c)."""

    def __init__(self, library: Path, state: Path) -> None:
        self.library = library
        self.state = state
        self.log = state.with_suffix(".log")

    def is_now(self, *lines: str) -> None:
        """Replace the whole state at once."""
        new = self.state.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.state)

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables with which a daemon and its children find this driver."""
        return {"DIBS_NVML_LIBRARY": str(self.library), "DIBS_FAKE_NVML_STATE": str(self.state)}

    def calls(self) -> list[str]:
        """Return the C functions that were called so far."""
        return [line.split()[1] for line in self.log.read_text().splitlines()] if self.log.exists() else []
