"""A machine with rules of root and several real accounts. Needs root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import people
from people import Person, SharedMachine


class Lab(SharedMachine):
    """A machine whose root sets rules."""

    def rule(self, text: str) -> None:
        """Write root's file for this machine."""
        path = self.folder / "etc" / "dibs" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)

    def person(self, name: str, devices: str) -> Person:
        """Return a new user of this machine."""
        person = super().person(name, devices)
        person.environ["DIBS_COMPAT_STATE"] = str(self.leases / "info")
        return person


@pytest.fixture
def lab() -> Iterator[Lab]:
    with people.shared_machine("run/dibs") as found:
        yield Lab(found.folder, found.leases, found.people)
