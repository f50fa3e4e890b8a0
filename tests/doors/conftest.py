"""Fixtures for tests of the doors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from keyboard import Typist


@pytest.fixture(scope="session")
def typist() -> Iterator[Typist]:
    """Somebody who types hundreds of command lines quickly."""
    own = Typist()
    yield own
    own.close()
