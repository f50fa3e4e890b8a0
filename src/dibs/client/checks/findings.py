"""What a check of `dibs doctor` gets and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dibs.client import connection
from dibs.system.settings import Settings

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True)
class Finding:
    """One line of `dibs doctor`."""

    check: str
    level: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Patient:
    """The environment that the checks examine."""

    environ: Mapping[str, str]
    home: Path
    note: str | None
    values: Settings
    place: str

    @property
    def queue(self) -> connection.Client:
        return connection.Client(self.home, self.environ)
