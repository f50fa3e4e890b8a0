"""Fixtures for tests of the Python API."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench import Bench


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One queue for all tests of a module that ignore the jobs of the others."""
    own = Bench(tmp_path_factory.mktemp("api"))
    yield own
    own.close()


@pytest.fixture
def user_queue(shared: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The shared queue, with this process in the place of a user's program: in its folder, with its environment."""
    for name in os.environ:
        if name.startswith("DIBS_"):
            monkeypatch.delenv(name)
    for name, value in shared.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shared.folder)
    return shared
