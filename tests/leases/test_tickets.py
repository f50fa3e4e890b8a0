"""The machine-wide line: whose turn it is, which tickets are ignored, and that waiting does not poll."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lease_lab
from dibs.leases import device_lease, holders, own_ticket, tickets, waiters
from dibs.scheduling import choice
from dibs.system import users
from lease_lab import DEADLINE_S, close, hangs_up, needs_root, wait_for

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

NOTE = device_lease.Note("job 7", user="me")
HOUR_NS = 3600 * 10**9


def names(line: list[tickets.Ticket]) -> list[str]:
    return [ticket.name for ticket in line]


def ticket(count: int, devices: Sequence[str], since_ns: int = 0, name: str = "1-1-1") -> tickets.Ticket:
    return tickets.Ticket(name, 1, 1, since_ns, count, tuple(devices))


# -- the line -----------------------------------------------------------------------------------------------------


def test_an_empty_folder_has_no_line(place):
    assert tickets.line(place) == []


#: Prints the files that are opened while a line is read in which all tickets have a listener.
LOOK = """
import sys
opened = []
sys.addaudithook(lambda event, words: opened.append(str(words[0])) if event == "open" else None)
from dibs.system import locks; from dibs.leases import own_ticket, tickets
place = locks.Folder(sys.argv[1])
own = own_ticket.queue_up(place, 1, ["A"])
opened.clear()
assert len(tickets.line(place)) == 1
own.close()
print(*opened, sep="\\n")
"""


def test_the_slow_lock_table_is_not_read_for_tickets_with_a_listener(place):
    """The kernel needs 10 ms and more to write it; a daemon in the line would pay that in every turn."""
    found = subprocess.run([sys.executable, "-c", LOOK, place.path], capture_output=True, text=True, check=True)
    assert "/proc/net/unix" in found.stdout.split()
    assert "/proc/locks" not in found.stdout.split()


def test_a_ticket_names_its_user_and_the_devices_it_waits_for(place):
    own = own_ticket.queue_up(place, 2, ["A", "B", "C"])
    (seen,) = tickets.line(place)
    assert (seen.uid, seen.user, seen.pid) == (os.geteuid(), users.own(), os.getpid())
    assert (seen.count, seen.devices, seen.since_ns) == (2, ("A", "B", "C"), own.ticket.since_ns)
    own.close()
    assert tickets.line(place) == []
    own.close()


def test_the_older_ticket_comes_first(place, puppet):
    first = puppet().ask("ticket 1 A")
    second = puppet().ask("ticket 1 A")
    assert names(tickets.line(place)) == [first, second]


def test_a_renewed_ticket_goes_to_the_back(place, puppet):
    one, two = puppet(), puppet()
    one.ask("ticket 1 A")
    second = two.ask("ticket 1 A")
    renewed = one.ask("renew")
    assert names(tickets.line(place)) == [second, renewed]


def test_a_changed_ticket_keeps_its_age(place, puppet):
    own = own_ticket.queue_up(place, 1, ["A"])
    other = puppet().ask("ticket 1 A")
    own.update(2, ["A", "B"])
    assert names(tickets.line(place)) == [own.ticket.name, other]
    assert (own.ticket.count, own.ticket.devices) == (2, ("A", "B"))
    own.close()


def test_requesting_the_same_again_changes_nothing(place):
    own = own_ticket.queue_up(place, 1, ["A"])
    name = own.ticket.name
    own.update(1, ["A"])
    assert own.ticket.name == name
    own.close()


@pytest.mark.parametrize("end", ["drop", "renew"])
def test_later_tickets_are_woken_when_a_ticket_is_closed(place, puppet, end):
    other = puppet()
    other.ask("ticket 1 A")
    (watch,) = lease_lab.watch_line(place, tickets.line(place))
    assert not hangs_up(watch, 0)
    other.ask(end)
    assert hangs_up(watch, 0)
    os.close(watch)


def test_later_tickets_are_woken_when_the_owner_of_a_ticket_dies(place, puppet):
    other = puppet()
    other.ask("ticket 1 A")
    (watch,) = lease_lab.watch_line(place, tickets.line(place))
    other.kill()
    assert hangs_up(watch, 10)
    os.close(watch)


def test_the_ticket_of_a_dead_process_vanishes(place, puppet):
    dead, living = puppet(), puppet()
    path = place.file(tickets.TICKET + dead.ask("ticket 1 A"))
    left = living.ask("ticket 1 A")
    dead.kill()
    assert names(tickets.line(place)) == [left]
    assert not os.path.exists(path)


def test_a_suspended_terminal_does_not_hold_up_the_line(place, puppet):
    other = puppet()
    name = other.ask("ticket 1 A")
    other.stop()
    assert tickets.line(place) == []
    os.kill(other.pid, signal.SIGCONT)
    wait_for("it counts again", lambda: names(tickets.line(place)) == [name])


def test_a_ticket_being_replaced_never_disappears_from_the_line(place, puppet):
    other = puppet()
    other.ask("ticket 1 A")
    for _ in range(300):
        other.tell("renew")
        seen = tickets.line(place)
        assert {ticket.pid for ticket in seen} == {other.pid}
        other.hear()


def test_tickets_are_world_readable_and_safe_from_tmp_cleaners(place):
    own = own_ticket.queue_up(place, 1, ["A"])
    assert stat.S_IMODE(os.stat(place.file(tickets.TICKET + own.ticket.name)).st_mode) == 0o1644
    assert [name for name in os.listdir(place.path) if name.startswith(".dibs-new")] == []
    own.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x y z",
        "5 1",
        "5 -1 A",
        "5 1 A\n" * 2000,
        "\0" * 100,
        "9" * 5000 + " 1 A",
        "5 " + "9" * 5000 + " A",
        "5 ² A",
        "5 1 A x\n" + "9" * 400 + " MiB",
        "5 0 A",
        "5 2 A",
        "5 2 A,A",
        "5 1 a/b",
        "5 1 B\0A",
    ],
)
def test_files_that_are_no_tickets_are_ignored(place, text):
    """Even if their lock is held. (The last line of a ticket is the user, so extra lines are one odd user name.)"""
    path = Path(place.file(f"{tickets.TICKET}{os.geteuid()}-1-1"))
    path.write_text(text)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert len(tickets.line(place)) == (1 if text.startswith("5 1 A\n") else 0)


def test_the_user_is_the_owner_of_the_file_whatever_its_text_says(place):
    path = Path(place.line_file(f"{tickets.TICKET}{os.geteuid()}-1-1"))
    path.write_text("5 1 A somebody else\n")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (seen,) = tickets.line(place)
        assert (seen.uid, seen.user) == (os.geteuid(), users.own())


@pytest.mark.parametrize("plant", ["symlink", "fifo", "directory", "name"])
def test_planted_tickets_are_ignored(place, plant):
    path = Path(place.file(f"{tickets.TICKET}{os.geteuid()}-1-1"))
    match plant:
        case "symlink":
            path.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "name":
            Path(place.file(f"{tickets.TICKET}nonsense")).write_text("5 1 A x\n")
    assert tickets.line(place) == []


@needs_root
def test_root_does_not_remove_dead_tickets_of_other_users(place):
    path = Path(place.file(f"{tickets.TICKET}61001-1-1"))
    path.write_text("5 1 A x\n")
    os.chown(path, 61001, -1)
    assert tickets.line(place) == []
    assert path.exists()


@needs_root
def test_nobody_can_write_a_ticket_in_the_name_of_another_user(place, puppet):
    puppet(uid=61001).ask("ticket 1 A")
    (seen,) = tickets.line(place)
    assert seen.uid == 61001
    os.chown(place.file(tickets.TICKET + seen.name), 61002, -1)
    assert tickets.line(place) == []


def test_a_count_above_the_number_of_devices_is_an_error(place):
    with pytest.raises(ValueError, match="count from 1 to 1"):
        own_ticket.queue_up(place, 2, ["A", "A"])


# -- fairness between users ---------------------------------------------------------------------------------------


@needs_root
def test_the_user_served_least_recently_goes_first(place, puppet):
    one, two, three = puppet(uid=61001), puppet(uid=61002), puppet(uid=61003)
    for user, device in ((two, "X"), (one, "Y")):
        user.ask(f"take {device}")
        user.ask("release")
    assert list(lease_lab.served(place)) != []
    first, second, third = one.ask("ticket 1 A"), two.ask("ticket 1 A"), three.ask("ticket 1 A")
    assert names(tickets.line(place)) == [third, second, first]
    two.ask("take X")
    assert names(tickets.line(place)) == [third, first, second]


@needs_root
def test_users_take_turns_however_many_tickets_one_has(place, puppet):
    keeper = puppet()
    keeper.ask("take A")
    greedy = [puppet(uid=61001) for _ in range(3)]
    for one in greedy:
        one.tell("acquire 1 A")
        assert one.hear() == "waits"
    modest = puppet(uid=61002)
    modest.tell("acquire 1 A")
    assert modest.hear() == "waits"
    keeper.ask("release")
    assert greedy[0].hear() == "took A"
    greedy[0].ask("release")
    assert modest.hear() == "took A"
    modest.ask("release")
    assert greedy[1].hear() == "took A"


@needs_root
def test_dead_tickets_of_other_users_are_ignored_though_we_cannot_remove_them(place, puppet):
    dead = puppet(uid=61001)
    dead.ask("ticket 1 A")
    dead.kill()
    reader = puppet(uid=61002)
    reader.tell("acquire 1 A")
    assert reader.hear() == "took A"


# -- the choice of devices ----------------------------------------------------------------------------------------


def whole(devices: Iterable[str]) -> dict[str, choice.Room]:
    """Return devices that nobody holds."""
    return {device: choice.room(1000, 4) for device in devices}


def choose(count: int, wanted: str, free: str, *ahead: tickets.Ticket, now_ns: int = 0) -> str | None:
    chosen = tickets.choose(count, list(wanted), whole(free), ahead, now_ns, 3600)
    return None if chosen is None else "".join(chosen)


def test_without_competition_the_preferred_device_is_taken():
    assert choose(2, "CAB", "ABC") == "CA"


def test_the_ticket_ahead_keeps_the_only_device_it_can_use():
    assert choose(1, "AB", "AB", ticket(1, "A")) == "B"
    assert choose(1, "A", "A", ticket(1, "A")) is None


def test_the_ticket_ahead_may_be_moved_to_another_device():
    assert choose(1, "A", "AB", ticket(1, "AB")) == "A"
    assert choose(2, "AB", "ABC", ticket(1, "ABC")) == "AB"


def test_a_ticket_for_several_devices_collects_for_a_while_and_then_pauses():
    big = ticket(2, "AB")
    assert choose(1, "A", "A", big, now_ns=0) is None
    assert choose(1, "A", "A", big, now_ns=HOUR_NS - 1) is None
    assert choose(1, "A", "A", big, now_ns=HOUR_NS) == "A"
    assert choose(1, "A", "A", big, now_ns=2 * HOUR_NS) is None


def test_a_ticket_for_one_device_never_pauses():
    assert choose(1, "A", "A", ticket(1, "A"), now_ns=HOUR_NS) is None


def test_a_ticket_with_a_future_time_counts_as_new():
    assert choose(1, "A", "A", ticket(2, "AB", since_ns=9 * HOUR_NS), now_ns=0) is None


def test_with_a_collect_time_of_zero_nothing_is_collected():
    assert not ticket(2, "AB").is_collecting(0, 0)
    assert ticket(1, "AB").is_collecting(0, 0)


def shares(free: Collection[str], ahead: Sequence[tickets.Ticket]) -> tuple[int, ...]:
    """Return how many devices each ticket can get at most, earlier tickets first, by exhaustive search."""
    if not ahead:
        return ()
    usable = [device for device in sorted(set(ahead[0].devices)) if device in free]
    return max(
        (size, *shares(set(free) - set(given), ahead[1:]))
        for size in range(min(ahead[0].count, len(usable)) + 1)
        for given in itertools.combinations(usable, size)
    )


some_devices = st.lists(st.sampled_from("ABCDE"), unique=True, min_size=1)
some_tickets = st.lists(st.builds(ticket, st.integers(1, 3), some_devices, st.integers(0, 2 * HOUR_NS)), max_size=3)


@given(st.integers(1, 3), some_devices, st.sets(st.sampled_from("ABCDE")), some_tickets)
def test_the_choice_takes_nothing_from_tickets_ahead_and_finds_every_possible_set(count, wanted, free, ahead):
    now_ns = 2 * HOUR_NS
    chosen = tickets.choose(count, wanted, whole(free), ahead, now_ns, 3600)
    collecting = [one for one in ahead if one.is_collecting(now_ns, 3600)]
    due = shares(free, collecting)
    harmless = [
        some
        for some in itertools.combinations([device for device in wanted if device in free], count)
        if shares(free - set(some), collecting) == due
    ]
    if chosen is None:
        assert harmless == []
    else:
        assert len(chosen) == count
        assert chosen in harmless
        assert chosen == tickets.choose(count, wanted, whole(free), ahead, now_ns, 3600)


# -- shares -------------------------------------------------------------------------------------------------------


def terms(mib: int, most: int = 4) -> choice.Terms:
    return choice.Terms(mib, {"A": 1000, "B": 1000}, most)


def test_a_ticket_states_the_memory_it_needs_per_device(place):
    own = own_ticket.queue_up(place, 1, ["A", "B"], mib=300)
    assert [(one.count, one.mib) for one in tickets.line(place)] == [(1, 300)]
    own.update(1, ["A", "B"])
    assert [(one.count, one.mib) for one in tickets.line(place)] == [(1, 0)]
    own.close()


def test_a_renewed_ticket_for_a_share_keeps_its_memory(place):
    own = own_ticket.queue_up(place, 1, ["A"], mib=300)
    own.renew()
    assert [one.mib for one in tickets.line(place)] == [300]
    own.close()


def test_a_share_that_fits_beside_others_is_taken_at_once(place, puppet):
    puppet().ask("share A 400 1000 4")
    taken = waiters.acquire(place, 1, ["A"], NOTE, terms=lambda: terms(600), timeout_s=0)
    assert lease_lab.shares(place, "A") == {0: 400, 1: 600}
    close(taken)


def test_a_share_waits_until_there_is_room(place, puppet):
    other = puppet()
    other.ask("share A 700 1000 4")
    waits: list[tickets.Ticket] = []

    def on_wait(ticket: tickets.Ticket) -> None:
        waits.append(ticket)
        other.ask("release")

    taken = waiters.acquire(place, 1, ["A"], NOTE, terms=lambda: terms(600), timeout_s=DEADLINE_S, on_wait=on_wait)
    assert [one.mib for one in waits] == [600]
    assert lease_lab.shares(place, "A") == {0: 600}
    close(taken)


def test_an_exclusive_request_is_not_overtaken_for_ever_by_shares(place, puppet):
    small = puppet()
    small.ask("share A 100 1000 4")
    alone = own_ticket.queue_up(place, 1, ["A"])
    with pytest.raises(waiters.TimedOut):
        waiters.acquire(place, 1, ["A"], NOTE, terms=lambda: terms(100), timeout_s=0)
    alone.close()
    close(waiters.acquire(place, 1, ["A"], NOTE, terms=lambda: terms(100), timeout_s=0))


def test_a_waiting_ticket_names_the_device_it_empties_first(place, puppet):
    puppet().ask("share A 100 1000 4")
    other = puppet()
    other.ask("share A 100 1000 4")
    other.ask("share B 100 1000 4")
    seen: list[tuple[str, ...]] = []

    def on_wait(ticket: tickets.Ticket) -> None:
        seen.append(ticket.devices)
        other.ask("release")

    taken = waiters.acquire(place, 1, ["A", "B"], NOTE, timeout_s=DEADLINE_S, on_wait=on_wait)
    assert seen == [("B", "A")]
    assert [lease.device for lease in taken] == ["B"]
    close(taken)


def test_several_shares_are_taken_all_or_none(place, puppet):
    puppet().ask("share B 900 1000 4")
    share = device_lease.Share(200, {"A": 1000, "B": 1000}, 4)
    with pytest.raises(device_lease.Refused) as refused:
        device_lease.take(place, ["A", "B"], NOTE, share)
    assert (refused.value.device, refused.value.why) == ("B", "full")
    assert lease_lab.shares(place, "A") == {}


def test_a_higher_share_limit_of_another_user_does_not_raise_ours(place):
    """Their slots may lie beyond our limit and are still counted."""
    theirs = [device_lease.take_shared(place, "A", 10, 1000, 8, NOTE) for _ in range(6)]
    close(theirs[:3])
    with pytest.raises(device_lease.Refused):
        device_lease.take_shared(place, "A", 10, 1000, 3, NOTE)
    ours = device_lease.take_shared(place, "A", 10, 1000, 4, NOTE)
    assert lease_lab.shares(place, "A") == {0: 10, 3: 10, 4: 10, 5: 10}
    close([ours, *theirs[3:]])


# -- waiting ------------------------------------------------------------------------------------------------------


def test_a_free_device_is_taken_without_a_ticket(place):
    waits: list[tickets.Ticket] = []
    taken = waiters.acquire(place, 1, ["A"], NOTE, on_wait=waits.append)
    assert [lease.device for lease in taken] == ["A"]
    assert waits == []
    close(taken)


def test_a_request_that_does_not_wait_leaves_no_ticket(place, puppet):
    puppet().ask("take A")
    with pytest.raises(waiters.TimedOut):
        waiters.acquire(place, 1, ["A"], NOTE, timeout_s=0)
    assert [name for name in os.listdir(place.path) if name.startswith(tickets.TICKET)] == []


def test_a_wait_ends_at_its_timeout_and_leaves_no_ticket(place, puppet):
    puppet().ask("take A")
    waits: list[tickets.Ticket] = []
    began = time.monotonic()
    with pytest.raises(waiters.TimedOut):
        waiters.acquire(place, 1, ["A"], NOTE, timeout_s=0.1, on_wait=waits.append)
    assert 0.1 <= time.monotonic() - began < 25
    assert len(waits) == 1
    assert tickets.line(place) == []


def test_a_waiter_can_be_woken_through_its_descriptor(place, puppet):
    puppet().ask("take A")
    reading, writing = os.pipe()

    def wake(_: tickets.Ticket) -> None:
        os.write(writing, b"x")

    with pytest.raises(waiters.Interrupted):
        waiters.acquire(place, 1, ["A"], NOTE, wake_fd=reading, on_wait=wake, timeout_s=20)
    os.close(reading)
    os.close(writing)
    assert tickets.line(place) == []


@pytest.mark.parametrize("end", ["release", "kill"])
def test_a_waiter_gets_the_device_when_its_holder_ends_without_polling(place, puppet, end):
    holder, waiter = puppet(), puppet()
    holder.ask("take A")
    waiter.tell("acquire 1 A")
    assert waiter.hear() == "waits"
    if end == "kill":
        holder.kill()
    else:
        holder.ask("release")
    # Its own timer would wake it only after 30 s.
    assert waiter.hear(10) == "took A"
    assert tickets.line(place) == []


def test_waiting_uses_no_cpu_time(place, puppet):
    puppet().ask("take A")
    waiter = puppet()
    waiter.tell("acquire 1 A")
    assert waiter.hear() == "waits"
    wait_for("it sleeps in poll", lambda: "poll" in Path(f"/proc/{waiter.pid}/wchan").read_text())
    before = Path(f"/proc/{waiter.pid}/status").read_text()
    assert not hangs_up(waiter.process.stdout.fileno(), 0.5)
    after = Path(f"/proc/{waiter.pid}/status").read_text()
    assert before.partition("voluntary_ctxt")[2] == after.partition("voluntary_ctxt")[2]


def test_a_holder_without_a_socket_is_noticed_too(place, puppet):
    close(device_lease.take(place, ["A"], NOTE))
    waiter = puppet()
    with open(holders.file(place, "A")) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiter.tell("acquire 1 A")
        assert waiter.hear() == "waits"
    assert waiter.hear(10) == "took A"


def test_the_line_is_served_in_order(place, puppet):
    holder = puppet()
    holder.ask("take A")
    waiters = [puppet() for _ in range(4)]
    for waiter in waiters:
        waiter.tell("acquire 1 A")
        assert waiter.hear() == "waits"
    holder.ask("release")
    for waiter in waiters:
        assert waiter.hear(10) == "took A"
        assert waiter.ask("release") == "released"


def test_a_large_ticket_gets_its_devices_though_small_ones_keep_coming(place, puppet):
    one, two, big, small = puppet(), puppet(), puppet(), puppet()
    one.ask("take A")
    two.ask("take B")
    big.tell("acquire 2 A,B")
    assert big.hear() == "waits"
    one.ask("release")
    small.tell("acquire 1 A,B")
    assert small.hear() == "waits"
    assert holders.held(place, ["A"]) == set()
    two.ask("release")
    assert big.hear(10) == "took A,B"
    big.ask("release")
    assert small.hear(10).startswith("took")


def test_a_later_ticket_may_take_devices_that_earlier_ones_cannot_use(place, puppet):
    puppet().ask("take A")
    ahead = puppet()
    ahead.tell("acquire 1 A")
    assert ahead.hear() == "waits"
    assert puppet().ask("acquire 1 A,B") == "took B"
