"""Finding the last checkpoint, as the real one does: by the number in the name."""

from __future__ import annotations

from pathlib import Path


def get_last_checkpoint(folder: str) -> str | None:
    """Return the folder with the highest number, None if there is none."""
    found = sorted(Path(folder).glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    return str(found[-1]) if found else None
