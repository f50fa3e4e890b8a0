"""A machine with rules of root and several real accounts. Needs root."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import people
from people import Person


@dataclass
class Lab:
    """A machine whose root sets rules."""

    folder: Path
    leases: Path
    people: list[Person]

    def rule(self, text: str) -> None:
        """Write root's file for this machine."""
        path = self.folder / "etc" / "dibs" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)

    def person(self, name: str, devices: str) -> Person:
        """Return a new user of this machine."""
        self.people.append(people.make_person(name, self.folder, self.leases, devices))
        self.people[-1].environ["DIBS_COMPAT_STATE"] = str(self.leases / "info")
        return self.people[-1]


@pytest.fixture
def lab() -> Iterator[Lab]:
    # Not tmp_path: its folders are private to root.
    folder = Path(tempfile.mkdtemp(prefix="dibs-people-"))
    folder.chmod(0o755)
    leases = folder / "run" / "dibs"
    leases.mkdir(parents=True)
    leases.chmod(0o1777)
    found = Lab(folder, leases, [])
    yield found
    for person in found.people:
        person.close()
    shutil.rmtree(folder)
