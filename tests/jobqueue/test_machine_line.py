"""A daemon in the machine-wide line: what it watches, and when it looks again."""

import contextlib
import os
import select
import socket
import time

import pytest

import build
import lease_lab
from dibs.jobqueue import machine_line
from dibs.jobqueue.machine_line import MachineLine
from dibs.leases import blockers, device_lease, evictable_marks, holders, own_ticket, tickets
from dibs.model.jobs import Request
from dibs.scheduling.views import Active
from dibs.system import locks

OURS, THEIRS = build.ids(0, 1)


@pytest.fixture
def place(tmp_path):
    return locks.Folder(str(tmp_path))


@pytest.fixture
def watched():
    """Return what is watched, each with its callback; nothing is called automatically here."""
    return {}


@pytest.fixture
def line(place, watched):
    return MachineLine(place, "ann", 3600.0, watched.__setitem__)


def _bound(name):
    made = socket.socket(socket.AF_UNIX)
    made.bind(name)
    return made


def share(place, device, mib):
    return contextlib.closing(device_lease.take_shared(place, device, mib, 1000, 4, device_lease.Note("1")))


def test_next_to_foreign_shares_it_looks_again_once_and_then_waits(place, line, watched):
    """Looking in a loop would keep a core busy as long as anybody waits."""
    active = [Active(1, (OURS,), mib=100)]
    with share(place, OURS, 100), share(place, THEIRS, 200):
        outlook = line.look(build.inventory(4), active)
        assert list(outlook.sharers) == [THEIRS]
        assert line.watch(outlook, list) is True
        assert line.watch(line.look(build.inventory(4), active), list) is False
        assert len(watched) == 1


def test_a_share_released_before_it_was_watched_causes_another_look(place, line, watched):
    with share(place, THEIRS, 200):
        outlook = line.look(build.inventory(4), [])
    assert line.watch(outlook, list) is True
    assert line.watch(line.look(build.inventory(4), []), list) is False
    assert not watched


def test_a_device_refused_to_a_runner_in_a_row_counts_as_held_for_a_while(line):
    line.shun(THEIRS)

    def is_held():
        # Repeat it for each look: on a slow machine the time may be over before it.
        line.shun(THEIRS)
        return list(line.look(build.inventory(4), []).held) == [THEIRS]

    lease_lab.wait_for("held", is_held)


def test_a_device_whose_holder_left_before_we_looked_is_free_at_once(place, line):
    """It was refused to our runner because of a short job of another user, which is over."""
    with contextlib.closing(device_lease.take(place, [THEIRS], device_lease.Note("1"))[0]):
        pass
    assert line.shun(THEIRS) == 0.0
    assert not line.look(build.inventory(4), []).held


def test_a_holder_seen_before_it_listened_is_watched_as_soon_as_it_listens(place, line, watched):
    """A process binds its socket just before it listens. Its hang-up wakes us, and the device is free at once."""
    fd = _bound(holders.socket_name(place, THEIRS))
    outlook = line.look(build.inventory(2), [])
    assert list(outlook.held) == [THEIRS]
    assert line.watch(outlook, list) is False
    assert line.look_again_s(now=0.0) <= blockers.SHORTEST_PAUSE_S
    fd.listen()

    def is_watched():
        seen = line.look(build.inventory(2), [])
        line.watch(seen, list)
        return watched

    lease_lab.wait_for("watched", is_watched)
    fd.close()
    lease_lab.wait_for("hung up", lambda: all(lease_lab.hangs_up(each, 0) for each in watched))
    lease_lab.wait_for("free", lambda: not line.look(build.inventory(2), []).held)


def test_a_foreign_share_as_large_as_ours_is_still_counted(place, line):
    with share(place, OURS, 100), share(place, OURS, 100):
        assert line.look(build.inventory(4), [Active(1, (OURS,), mib=100)]).sharers.keys() == {OURS}
        assert not line.look(build.inventory(4), [Active(n, (OURS,), mib=100) for n in (1, 2)]).sharers


def test_the_ticket_is_kept_until_our_runners_hold_the_devices(place, line):
    """Otherwise another user, woken by its end, would find the devices free."""
    other = own_ticket.queue_up(place, 1, [THEIRS])
    line.look(build.inventory(4), [])
    line.update_ticket([OURS], Request(1), [])
    line.update_ticket([], None, [OURS])
    assert (line.is_waiting, line.is_granting) == (True, True)
    line.update_ticket([], None, [])
    assert (line.is_waiting, line.is_granting) == (False, False)
    other.close()


@pytest.fixture
def puppet(place):
    made = [lease_lab.Puppet(place.path)]
    yield made[0]
    made[0].close()


def test_a_bound_socket_without_a_listener_blocks_a_device_and_is_checked_again(place, line, puppet):
    puppet.ask(f"bind {place.socket('gpu', THEIRS)[1:].decode()}")
    outlook = line.look(build.inventory(2), [])
    assert list(outlook.held) == [THEIRS]
    assert line.watch(outlook, list) is False
    assert line.look_again_s(now=0.0) is not None
    # One timer is enough.
    assert line.look_again_s(now=0.0) is None


def test_a_device_stays_shunned_while_its_gate_is_locked(place, line, puppet):
    with contextlib.closing(device_lease.take(place, [THEIRS], device_lease.Note("1"))[0]):
        pass
    puppet.ask(f"lock {holders.gate_file(place, THEIRS)}")
    line.shun(THEIRS)
    until = time.monotonic() + 2 * blockers.LONGEST_PAUSE_S
    while time.monotonic() < until:
        assert THEIRS in line.look(build.inventory(2), []).held
    puppet.ask("unlock")
    lease_lab.wait_for("it is free again", lambda: THEIRS not in line.look(build.inventory(2), []).held)


def test_a_holder_with_a_full_backlog_is_checked_again(place, line, puppet):
    with contextlib.closing(device_lease.take(place, [THEIRS], device_lease.Note("1"))[0]):
        assert puppet.ask(f"fill {place.socket('gpu', THEIRS)[1:].decode()}") == "full"
        outlook = line.look(build.inventory(2), [])
        assert line.watch(outlook, list) is False
        assert line.look_again_s(now=0.0) is not None


def test_sockets_without_a_ticket_are_not_watched(place, line, watched, puppet):
    """Anybody can make any number of them, and each would cost a descriptor."""
    puppet.ask("ticket 1 A")
    for number in range(50):
        puppet.ask(f"listen {tickets.socket_name(place, f'1-1-{number}')[1:].decode()}")
    with contextlib.closing(own_ticket.queue_up(place, 1, [THEIRS])) as other:
        outlook = line.look(build.inventory(2), [])
        assert outlook.tickets == {other.ticket.name}
        line.watch(outlook, list)
        assert len(watched) == 1


def test_a_user_who_rings_without_pause_does_not_keep_the_queue_busy(place, line, watched, monkeypatch):
    monkeypatch.setattr(machine_line, "MOST_RINGS", 3)
    woken = []
    line.listen(lambda: woken.append(1))
    ((fd, rung),) = watched.items()
    (bell,) = locks.bound(place, evictable_marks.BELL)
    callers = [locks.connect(place.socket(evictable_marks.BELL, bell)) for _ in range(5)]
    rung()
    assert woken == [1]
    assert select.select([fd], [], [], 0)[0] == [fd], "the others are heard at the next look"
    rung()
    assert select.select([fd], [], [], 0)[0] == []
    for each in (*callers, fd):
        os.close(each)


def test_an_evictable_holder_who_does_not_yield_is_no_longer_counted_on(place, line, monkeypatch):
    (lease,) = device_lease.take(place, [THEIRS], device_lease.Note("7", is_evictable=True))
    (mark,) = evictable_marks.put(place, [THEIRS])
    inventory = build.inventory(4)
    assert line.look(inventory, []).held[THEIRS].is_evictable
    line.expect([THEIRS])
    assert line.look(inventory, []).held[THEIRS].is_evictable
    monkeypatch.setattr(machine_line, "OVERDUE_S", 0.0)
    assert not line.look(inventory, []).held[THEIRS].is_evictable
    os.close(mark)
    lease.close()
