"""A process that blocks a device without holding it is named by the kernel, with the way to end it."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Callable

import pytest

import lease_lab
from dibs.leases import blockers, device_lease, holders, waiters
from dibs.leases.device_lease import Folder, Note
from dibs.scheduling.choice import Terms
from dibs.system import locks
from lease_lab import Puppet, close, needs_root

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

ANN, BEN = 61001, 61002
Puppets = Callable[..., Puppet]


@pytest.fixture
def gate(place: Folder) -> str:
    """The gate of a device that was used before."""
    close(device_lease.take(place, ["A"], Note()))
    return holders.gate_file(place, "A")


def socket_text(place: Folder, rest: str) -> str:
    return place.socket("gpu", rest)[1:].decode()


def test_a_free_or_leased_device_has_no_blocker(place: Folder, gate: str, puppet: Puppets) -> None:
    assert blockers.find(place, ["A"]) == {}
    puppet().ask("take A")
    assert blockers.find(place, ["A"]) == {}


@needs_root
def test_a_process_that_locks_a_gate_is_named(place: Folder, gate: str, puppet: Puppets) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    ben.ask(f"lock {gate}")
    found = blockers.find(place, ["A"])["A"]
    assert (found.uid, found.pid, found.how) == (BEN, ben.pid, blockers.GATE)
    assert found.cure == f"`sudo kill {ben.pid}` ends it."
    assert ann.ask("blocked A") == f"{BEN} {ben.pid} {blockers.GATE}"
    ben.ask("unlock")
    assert ann.ask("blocked A") == "free"


@needs_root
@pytest.mark.parametrize("rest", ["A", "A.0.100"])
def test_a_process_that_binds_a_socket_name_without_listening_is_named(
    place: Folder, puppet: Puppets, rest: str
) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    ben.ask(f"bind {socket_text(place, rest)}")
    found = blockers.find(place, ["A"])["A"]
    assert (found.uid, found.pid, found.how) == (BEN, ben.pid, blockers.SOCKET)
    # Only root sees which process it is; everybody sees its user.
    assert ann.ask("blocked A") == f"{BEN} None {blockers.SOCKET}"


@needs_root
def test_a_child_that_keeps_the_lock_of_a_dead_process_is_named(place: Folder, gate: str, puppet: Puppets) -> None:
    """The table of locks names the process that took it, which is gone."""
    ben = puppet(uid=BEN)
    ben.ask(f"lock {gate}")
    child = int(ben.ask("fork"))
    ben.children.append(child)
    ben.kill()
    found = blockers.find(place, ["A"])["A"]
    assert (found.uid, found.pid) == (BEN, child)
    assert puppet(uid=ANN).ask("blocked A") == f"None None {blockers.GATE}"


def test_the_text_names_the_user_and_the_method() -> None:
    root = blockers.Blocker("A", blockers.GATE, 0, 42)
    assert root.text == f"blocked by {pwd.getpwuid(0).pw_name} (pid 42), who keeps the lock of the GPU without a lease"
    unseen = blockers.Blocker("A", blockers.SOCKET, None, None)
    assert unseen.text == "blocked by somebody, who occupies the name of its socket"
    assert "sudo dibs doctor" in unseen.cure


def test_a_line_break_in_a_socket_name_blocks_nothing(place: Folder, puppet: Puppets) -> None:
    """Neither as a holder nor as a blocker: the kernel knows no such socket."""
    for flags in ("00010000", "00000000"):
        row = f"0:%202%200%20{flags}%200001%2001%2077%20@{socket_text(place, 'A')}"
        puppet().ask(f"bind {flags}%0A{row}")
    assert b"@" + socket_text(place, "A").encode() + b"\n" in locks.table()
    assert holders.held(place, ["A"]) == set()
    assert holders.survey(place, ["A"]) == {"A": ()}
    assert blockers.find(place, ["A"]) == {}
    close(device_lease.take(place, ["A"], Note()))


@pytest.mark.parametrize("is_listening", [False, True])
def test_of_many_socket_names_only_some_are_examined(place: Folder, is_listening: bool) -> None:
    with contextlib.ExitStack() as bound:
        for slot in range(3 * holders.MOST_NAMES):
            sock = bound.enter_context(socket.socket(socket.AF_UNIX))
            sock.bind(holders.socket_name(place, "A", f".{slot}.1"))
            if is_listening:
                sock.listen(1)
        if is_listening:
            assert len(holders.sockets(place, ["A", "B"])) == holders.MOST_NAMES + 1
            assert set(holders.rooms(place, ["A", "B"], Terms(mib=1, most=1000))) == {"B"}
        else:
            assert list(blockers.find(place, ["A", "B"])) == ["A"]
            assert len(holders.genuine(place, locks.deaf(place, "gpu"), ["A"])) == holders.MOST_NAMES + 1


def test_a_forged_line_does_not_hide_a_holder(place: Folder, puppet: Puppets) -> None:
    puppet().ask("take A")
    row = f"0:%202%200%2000010000%200001%2001%2077%20@{socket_text(place, 'A')}"
    puppet().ask(f"bind x%0A{row}")
    assert holders.held(place, ["A"]) == {"A"}
    assert len(holders.survey(place, ["A"])["A"]) == 1


@pytest.mark.parametrize("how", ["gate", "socket"])
def test_another_device_is_used_meanwhile(place: Folder, gate: str, puppet: Puppets, how: str) -> None:
    puppet().ask(f"lock {gate}" if how == "gate" else f"bind {socket_text(place, 'A')}")
    taken = waiters.acquire(place, 1, ["A", "B"], Note(), timeout_s=lease_lab.DEADLINE_S)
    assert [lease.device for lease in taken] == ["B"]
    close(taken)


@needs_root
def test_a_share_is_not_shown_in_the_name_of_another_user(place: Folder, puppet: Puppets) -> None:
    """Anybody can write the note of a share; the kernel says whose socket it is."""
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    ann.ask("share A 100 1000 4")
    ben.ask(f"listen {socket_text(place, 'A.1.100')}")
    path = holders.file(place, "A")
    with open(path, "r+b") as file:
        first = file.read(holders.NOTE_BYTES)
        file.seek(holders.NOTE_BYTES)
        file.write(first)
    assert sorted((who.uid or 0, who.pid) for who in holders.survey(place, ["A"])["A"]) == [
        (ANN, ann.pid),
        (BEN, ben.pid),
    ]
    assert os.stat(path).st_uid == ANN
