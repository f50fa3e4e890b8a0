"""Nobody can queue in another user's name, get ahead of earlier tickets, or make the line slow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import lease_lab
from dibs.leases import own_ticket, tickets, waiters
from dibs.leases.device_lease import Folder, Note
from dibs.system import locks
from lease_lab import Puppet, needs_root

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

ANN, BEN = 61001, 61002
OLD_NS = 5

Puppets = Callable[..., Puppet]


def socket_text(place: Folder, name: str) -> str:
    """Return the name of a ticket's socket as a puppet expects it."""
    return tickets.socket_name(place, name)[1:].decode()


def write(place: Folder, name: str, text: str, uid: int, mode: int = 0o644) -> Path:
    """Write a file as a ticket that `uid` owns."""
    path = Path(place.line_file(tickets.TICKET + name))
    path.write_text(text)
    os.chown(path, uid, -1)
    path.chmod(mode)
    return path


def line(place: Folder) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(ticket.uid, ticket.count, ticket.devices) for ticket in tickets.line(place)]


# -- in another's name --------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("life", ["listen", "lock"])
def test_a_dead_users_ticket_cannot_be_revived(place: Folder, puppet: Puppets, life: str) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    name = ann.ask("ticket 1 A")
    ann.kill()
    what = socket_text(place, name) if life == "listen" else tickets.path_of(place, name)
    ben.ask(f"{life} {what}")
    assert line(place) == []


@needs_root
@pytest.mark.parametrize("life", ["listen", "lock", "hold"])
def test_a_link_to_a_file_of_another_user_is_no_ticket(place: Folder, puppet: Puppets, life: str) -> None:
    """All users may write and link a lease file, which belongs to the user who came first."""
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    ann.ask("take A")
    name = f"{ANN}-{ann.pid}-{OLD_NS}"
    Path(place.file(".dibs-lease-A")).write_text(f"{OLD_NS} 4 A,B,C,D root\n")
    os.link(place.file(".dibs-lease-A"), tickets.path_of(place, name))
    if life != "hold":
        ann.ask("release")
        ben.ask(f"{life} {socket_text(place, name) if life == 'listen' else tickets.path_of(place, name)}")
    assert line(place) == []
    # Without its other name it is still a file that others can write.
    os.unlink(place.file(".dibs-lease-A"))
    assert line(place) == []


@needs_root
def test_a_copy_of_a_ticket_does_not_count_though_its_owner_is_alive(place: Folder, puppet: Puppets) -> None:
    """A link to a ticket outlives it, and is then a file of that user with one name."""
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    name = ann.ask("ticket 1 A")
    copy = f"{ANN}-{ann.pid}-{OLD_NS}"
    os.link(tickets.path_of(place, name), tickets.path_of(place, copy))
    assert line(place) == []
    ann.ask("drop")
    ben.ask(f"listen {socket_text(place, copy)}")
    ben.ask(f"lock {tickets.path_of(place, copy)}")
    assert os.stat(tickets.path_of(place, copy)).st_nlink == 1
    assert line(place) == []


@needs_root
def test_a_line_break_in_a_socket_name_forges_no_listener(place: Folder, puppet: Puppets) -> None:
    """/proc/net/unix shows it as a separate line, with any inode that its author likes."""
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    name = ann.ask("ticket 1 A")
    inode = locks.bound(place, "ticket")[name][0]
    dead = write(place, f"{ANN}-1-{OLD_NS}", f"{OLD_NS} 1 A\n", ANN)
    row = f"0:%202%200%2000010000%200001%2001%20{inode}%20@{socket_text(place, dead.name.removeprefix(tickets.TICKET))}"
    ben.ask(f"bind x%0A{row}")
    assert dead.name.removeprefix(tickets.TICKET) in locks.bound(place, "ticket")
    assert [ticket.name for ticket in tickets.line(place)] == [name]


@needs_root
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_ticket_that_others_can_write_is_ignored(place: Folder, puppet: Puppets, mode: int) -> None:
    name = puppet(uid=ANN).ask("ticket 1 A")
    assert len(line(place)) == 1
    os.chmod(tickets.path_of(place, name), mode)
    assert line(place) == []


# -- the age ------------------------------------------------------------------------------------------------------


@needs_root
def test_a_ticket_is_never_older_than_its_file(place: Folder, puppet: Puppets) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    honest = ann.ask("ticket 1 A")
    since_ns = locks.boot_ns()
    name = f"{BEN}-{ben.pid}-{OLD_NS}"
    write(place, name, f"{OLD_NS} 1 A\n", BEN)
    ben.ask(f"listen {socket_text(place, name)}")
    seen = {ticket.name: ticket.since_ns for ticket in tickets.line(place)}
    assert seen[name] >= since_ns - 2 * 10**9
    assert seen.keys() == {honest, name}


def test_a_changed_ticket_proves_its_age_by_the_file_of_the_first_one(place: Folder) -> None:
    """However long after: here the first one seems to be an hour old."""
    own = own_ticket.queue_up(place, 1, ["A"])
    first = own.ticket.name
    own.update(1, ["A", "B"])
    own.update(2, ["A", "B"])
    assert [ticket.name for ticket in tickets.line(place)] == [own.ticket.name]
    assert sorted(os.listdir(place.line_path)) == sorted(tickets.TICKET + name for name in (first, own.ticket.name))
    own.close()
    assert os.listdir(place.line_path) == []


def test_a_renewed_ticket_cannot_prove_its_old_age(place: Folder) -> None:
    own = own_ticket.queue_up(place, 1, ["A"])
    own.update(1, ["A", "B"])
    own.renew()
    assert os.listdir(place.line_path) == [tickets.TICKET + own.ticket.name]
    assert own.ticket.origin == own.ticket.name
    own.close()


def test_the_age_file_of_a_dead_process_is_removed(place: Folder, puppet: Puppets) -> None:
    one = puppet()
    one.ask("ticket 1 A")
    one.ask("update 1 A,B")
    assert len(os.listdir(place.line_path)) == 2
    assert len(tickets.line(place)) == 1
    one.kill()
    assert tickets.line(place) == []
    assert os.listdir(place.line_path) == []


# -- how much is read ---------------------------------------------------------------------------------------------


def bytes_read(work: Callable[[], object]) -> int:
    """Return how many bytes this process reads, files and tables alike, while it does something."""

    def so_far() -> int:
        words = Path("/proc/self/io").read_text().split()
        return int(words[words.index("rchar:") + 1])

    before = so_far()
    work()
    return so_far() - before


@needs_root
def test_a_user_has_at_most_sixteen_tickets(place: Folder, puppet: Puppets) -> None:
    puppet(uid=BEN).ask("tickets_of 40 A")
    honest = puppet(uid=ANN).ask("ticket 1 A")
    seen = tickets.line(place)
    assert sum(ticket.uid == BEN for ticket in seen) == tickets.MOST_OF_USER
    assert honest in [ticket.name for ticket in seen]


@needs_root
def test_an_endless_ticket_file_is_not_read(place: Folder, puppet: Puppets) -> None:
    """Measured in bytes, because a slow machine is no attack."""
    puppet(uid=ANN).ask("ticket 1 A")
    devices = ",".join(f"X{n}" for n in range(9000))
    ben = puppet(uid=BEN)
    names = [f"{BEN}-{ben.pid}-{n}" for n in range(900)]
    for name in names:
        write(place, name, f"{OLD_NS} 9000 {devices}\n", BEN)
    for name in names[:50]:
        ben.ask(f"listen {socket_text(place, name)}")
    table = len(locks.table()) + len(locks.read_all("/proc/locks"))
    read = bytes_read(lambda: tickets.line(place, {"A"}))
    assert read < 2 * table + (tickets.MOST_OF_USER + 1) * tickets.MOST_BYTES + 65536


@needs_root
def test_unknown_devices_are_ignored(place: Folder, puppet: Puppets) -> None:
    ben = puppet(uid=BEN)
    name = f"{BEN}-{ben.pid}-{OLD_NS}"
    write(place, name, f"{OLD_NS} 2 {','.join(f'X{n}' for n in range(9000))}\n", BEN)
    ben.ask(f"listen {socket_text(place, name)}")
    assert line(place) == [(BEN, 2, tuple(f"X{n}" for n in range(tickets.MOST_DEVICES)))]
    assert tickets.line(place, {"A"}) == []
    assert [ticket.devices for ticket in tickets.line(place, {"A", "X7"})] == [("X7",)]


# -- a full backlog -----------------------------------------------------------------------------------------------


def test_endless_connections_delay_others_by_at_most_a_second(place: Folder, puppet: Puppets) -> None:
    holder, rude = puppet(), puppet()
    holder.ask("take A")
    assert rude.ask(f"fill {place.socket('gpu', 'A')[1:].decode()}") == "full"
    waiter = waiters.Waiter(place, Note(), 3600.0)
    # Its pauses grow meanwhile: it gets no event when the holder ends.
    for _ in range(20):
        assert waiter.ask(1, ["A"]) is None
        assert not waiter.fds
        waiter.hung_up(())
    assert waiter.sleep_s <= 1.0
    holder.ask("release")
    got = waiter.ask(1, ["A"])
    assert got is not None
    lease_lab.close(got)
