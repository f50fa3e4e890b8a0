"""A queue with a cluster `lab`, for tests of what only one kind of engine does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import Bench


class Lab(Bench):
    """One user's dibs with engines in the settings; the shared folders are beside the state folder."""

    def __init__(self, folder: Path, engines: dict[str, dict[str, Any]], **environ: str) -> None:
        super().__init__(folder, DIBS_CONFIG=str(folder / "config.toml"), DIBS_GRACE="2s", **environ)
        self.configure(engines)

    def configure(self, engines: dict[str, dict[str, Any]], **settings: str) -> None:
        """Write the settings; a running daemon keeps its engines."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        for name, keys in engines.items():
            lines.append(f"[engines.{name}]")
            own = {"shared": str(self.folder / f"shared-{name}")} | keys
            lines += [f"{key} = {json.dumps(value)}" for key, value in own.items()]
        path = self.folder / "config.toml"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)

    def send(self, command: str | list[str], **fields: Any) -> int:
        """Queue one job on `lab`; return its id."""
        return self.add(command, **{"engine": "lab", "gpus": 0} | fields)
