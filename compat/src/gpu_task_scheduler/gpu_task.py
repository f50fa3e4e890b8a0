"""`GPUTask`: what the code of one task looks like to the scheduler."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class GPUTask:
    """One instance of a configuration and the folder for its results; derive from it and write `main`."""

    def __init__(self, config: dict[str, Any], work_dir: str) -> None:
        self._config = config
        self._work_dir = work_dir

    def required_env(self) -> dict[str, str]:
        """Return variables that `main` needs; they are set before anything of it is imported."""
        return {}

    def main(self) -> None:
        """Do the work."""
