"""A place in the machine-wide line: its ticket, and the sockets it watches."""

import contextlib

import pytest

from dibs.leases import device_lease, tickets
from dibs.leases.line import LinePlace
from dibs.system import locks


@pytest.fixture
def line(tmp_path):
    return LinePlace(locks.Folder(str(tmp_path)), 3600.0)


@pytest.fixture
def lease(line):
    taken = device_lease.take(line.folder, ["A"], device_lease.Note("1"))[0]
    with contextlib.closing(taken):
        yield taken


def test_joining_again_changes_the_ticket_and_keeps_its_age(line):
    first = line.join(1, ["A"], 0)
    assert line.join(2, ["A", "B"], 0) is None
    (second,) = tickets.line(line.folder)
    assert (second.count, second.devices, second.since_ns) == (2, ("A", "B"), first.since_ns)
    line.leave()
    assert not tickets.line(line.folder)


def test_a_socket_is_connected_once_until_it_hangs_up(line, lease):
    obstacles = line.obstacles(["A"], [])
    (fd,) = line.watch(obstacles)
    assert line.watch(obstacles) == []
    assert line.is_watching(obstacles)
    assert line.drop_hung_up([fd])
    assert not line.is_watching(obstacles)
    assert not line.drop_hung_up([fd])


def test_a_device_held_without_a_visible_socket_is_hidden(line, lease):
    obstacles = line.obstacles(["A", "B"], [])
    assert obstacles.hidden == {"B"}
    assert len(obstacles.names) == 1


def test_obstacles_can_be_unwatched(line, lease):
    line.watch(line.obstacles(["A"], []))
    line.watch_only(())
    assert not line.fds
