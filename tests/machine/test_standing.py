"""A daemon in the machine-wide line: what it watches, and when it looks once more."""

import contextlib

import pytest

import build
from dibs import leases, locks
from dibs.standing import Standing
from dibs.views import Active

OURS, THEIRS = build.ids(0, 1)


@pytest.fixture
def place(tmp_path):
    return locks.Folder(str(tmp_path))


@pytest.fixture
def watched():
    """What is watched, each with what to call when it hangs up; nobody calls by itself here."""
    return {}


@pytest.fixture
def standing(place, watched):
    return Standing(place, "ann", 3600.0, watched.__setitem__)


def share(place, device, mib):
    return contextlib.closing(leases.take_shared(place, device, mib, 1000, 4, leases.Note("1")))


def test_with_jobs_that_share_beside_strangers_it_looks_once_more_and_then_waits(place, standing, watched):
    """One that looked for ever would keep a core busy as long as anybody waits."""
    active = [Active(1, (OURS,), mib=100)]
    with share(place, OURS, 100), share(place, THEIRS, 200):
        outlook = standing.look(build.inventory(4), active)
        assert list(outlook.sharers) == [THEIRS]
        assert standing.watch(outlook, list) is True
        assert standing.watch(standing.look(build.inventory(4), active), list) is False
        assert len(watched) == 1


def test_a_share_that_went_before_it_was_watched_is_looked_at_once_more(place, standing, watched):
    with share(place, THEIRS, 200):
        outlook = standing.look(build.inventory(4), [])
    assert standing.watch(outlook, list) is True
    assert standing.watch(standing.look(build.inventory(4), []), list) is False
    assert not watched
