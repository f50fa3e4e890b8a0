"""Marks of evictable holders, the bells of their daemons, and tickets of evictable jobs."""

import os
import select
import socket

import pytest

from dibs.leases import device_lease, evictable_marks, holders, own_ticket, served_records, tickets
from dibs.scheduling import choice
from dibs.system import locks


@pytest.fixture
def place(tmp_path):
    return locks.Folder(str(tmp_path))


def survey(place, device="FAKE-0"):
    return holders.survey(place, [device])[device]


def test_a_mark_shows_that_a_holder_is_evictable_until_it_ends(place):
    (lease,) = device_lease.take(place, ["FAKE-0"], device_lease.Note("7", is_evictable=True, evicted_by="1001"))
    assert not survey(place)[0].is_evictable
    (mark,) = evictable_marks.put(place, ["FAKE-0"])
    assert evictable_marks.marked(place, ["FAKE-0", "FAKE-1"]) == {"FAKE-0": os.geteuid()}
    (holder,) = survey(place)
    assert (holder.is_evictable, holder.evicted_by) == (True, "1001")
    os.close(mark)
    assert not survey(place)[0].is_evictable
    lease.close()


def test_a_second_mark_of_a_device_is_left_out(place):
    (mark,) = evictable_marks.put(place, ["FAKE-0"])
    assert evictable_marks.put(place, ["FAKE-0"]) == []
    os.close(mark)


def test_the_lease_of_an_evictable_job_does_not_count_as_being_served(place):
    (lease,) = device_lease.take(place, ["FAKE-0"], device_lease.Note("7", is_evictable=True))
    assert served_records.of_users(place, [os.geteuid()]) == {}
    lease.close()


def test_a_new_ticket_rings_the_bells(place):
    bell = evictable_marks.hang_bell(place)
    assert evictable_marks.hang_bell(place) is None
    assert select.select([bell], [], [], 0)[0] == []
    own_ticket.queue_up(place, 1, ["FAKE-0"], is_evictable=True).close()
    assert select.select([bell], [], [], 0)[0] == [], "an evictable job asks nobody to yield"
    own_ticket.queue_up(place, 1, ["FAKE-0"]).close()
    assert select.select([bell], [], [], 0)[0] == [bell]
    socket.socket(fileno=bell).close()


@pytest.mark.parametrize("mib", [0, 100])
@pytest.mark.parametrize("is_evictable", [False, True])
def test_a_ticket_says_whether_it_is_for_an_evictable_job(place, mib, is_evictable):
    own = own_ticket.queue_up(place, 1, ["FAKE-0"], mib=mib, is_evictable=is_evictable)
    (seen,) = tickets.line(place)
    assert (seen.is_evictable, seen.mib) == (is_evictable, mib)
    own.update(1, ["FAKE-0"], mib, not is_evictable)
    (seen,) = tickets.line(place)
    assert (seen.is_evictable, seen.since_ns) == (not is_evictable, own.ticket.since_ns)
    own.close()


def test_the_ticket_of_an_evictable_job_keeps_nothing_from_a_foreground_command(place):
    ahead = tickets.Ticket("1-2-3", 1, 2, 3, 1, ("FAKE-0",))
    rooms = {"FAKE-0": choice.room(None, 1)}
    assert tickets.choose(1, ["FAKE-0"], rooms, [ahead], 4) is None
    evictable = tickets.Ticket("1-2-3", 1, 2, 3, 1, ("FAKE-0",), is_evictable=True)
    assert tickets.choose(1, ["FAKE-0"], rooms, [evictable], 4) == ("FAKE-0",)
