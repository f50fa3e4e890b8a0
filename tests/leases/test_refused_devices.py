"""A device that was refused without a visible holder is left alone only while the kernel shows something in its way."""

import contextlib

import pytest

import lease_lab
from dibs.leases import device_lease, holders
from dibs.leases.blockers import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, RefusedDevices
from dibs.system import locks

NOW = 1000.0


@pytest.fixture
def place(tmp_path):
    """Return a lease folder with a device that was leased once."""
    made = locks.Folder(str(tmp_path))
    with contextlib.closing(device_lease.take(made, ["A"], device_lease.Note("1"))[0]):
        return made


@pytest.fixture
def refused(place):
    return RefusedDevices(place)


@pytest.fixture
def puppet(place):
    made = lease_lab.Puppet(place.path)
    yield made
    made.close()


def test_a_device_whose_holder_has_left_may_be_tried_at_once(place, refused):
    assert refused.refuse("A", NOW) == 0.0
    assert not refused.now(NOW)


def test_a_device_with_a_lease_that_we_cannot_watch_is_left_alone_shortly(place, refused, puppet):
    """Such as one in another network namespace: it has a lock, and no socket that we see."""
    puppet.ask(f"lock {holders.file(place, 'A')}")
    assert refused.refuse("A", NOW) == pytest.approx(SHORTEST_PAUSE_S)
    assert list(refused.now(NOW)) == ["A"]
    assert not refused.now(NOW + 2 * SHORTEST_PAUSE_S)


def test_each_refusal_in_a_row_doubles_the_pause(refused):
    """Whatever refuses it without being seen: it must not be tried in a loop."""
    now, pauses = NOW, []
    for _ in range(10):
        pauses.append(refused.refuse("A", now))
        now += pauses[-1]
    assert pauses[:4] == pytest.approx([0.0, SHORTEST_PAUSE_S, 2 * SHORTEST_PAUSE_S, 4 * SHORTEST_PAUSE_S])
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_S)


def test_a_refusal_much_later_is_not_in_a_row(refused):
    refused.refuse("A", NOW)
    refused.refuse("A", NOW)
    assert refused.refuse("A", NOW + 3 * LONGEST_PAUSE_S) == 0.0


def test_a_device_is_left_alone_while_its_gate_is_locked(place, refused, puppet):
    puppet.ask(f"lock {holders.gate_file(place, 'A')}")
    now = NOW + refused.refuse("A", NOW)
    for _ in range(10):
        assert list(refused.now(now)) == ["A"]
        now = refused.retry_at
    puppet.ask("unlock")
    assert not refused.now(now)
    assert refused.retry_at is None
