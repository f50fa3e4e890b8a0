"""Fixtures for tests of the doors."""

from __future__ import annotations

import pytest
from keyboard import Typist


@pytest.fixture(scope="session")
def typist() -> Typist:
    """Somebody who types hundreds of command lines quickly."""
    return Typist()
