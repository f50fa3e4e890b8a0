"""Fixtures for tests of the doors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from keyboard import Typist

from bench import Bench


@pytest.fixture(scope="session")
def typist() -> Typist:
    """Somebody who types hundreds of command lines quickly."""
    return Typist()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One queue for all tests of a module, to which the environment of this process leads."""
    own = Bench(tmp_path_factory.mktemp("queue"))
    own.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.environ.items():
            patch.setenv(name, value)
        yield own
    own.close()
