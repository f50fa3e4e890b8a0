"""Fixtures for all tests: a whole dibs of its own, real processes, no patching."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A queue of its own on four pretend GPUs; whatever it started is ended afterwards."""
    own = Bench(tmp_path)
    yield own
    own.close()
