"""Forged tickets and records are reported with the user who acts in another's name; honest and dead ones are not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lease_lab
from dibs.client.checks import leases
from dibs.leases import served_records, tickets
from dibs.leases.device_lease import Folder
from lease_lab import Puppet, needs_root

pytestmark = needs_root
# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

ANN, BEN = 61001, 61002
Puppets = Callable[..., Puppet]


def test_honest_and_dead_tickets_are_no_forgeries(place: Folder, puppet: Puppets) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    ann.ask("take A")
    ann.ask("ticket 1 B")
    ann.ask("update 1 B,C")
    ben.ask("ticket 1 B")
    ben.kill()
    assert leases.forgeries(place) == {}


def test_a_user_who_acts_in_the_name_of_another_is_named(place: Folder, puppet: Puppets) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    heard, locked = ann.ask("ticket 1 A"), ann.ask("ticket 1 B")
    ann.kill()
    ben.ask(f"listen {tickets.socket_name(place, heard)[1:].decode()}")
    ben.ask(f"lock {tickets.path_of(place, locked)}")
    made = Path(place.line_file(f"{served_records.SERVED}{ANN}"))
    made.touch()
    os.chown(made, BEN, -1)
    open_to_all = Path(tickets.path_of(place, f"{ANN}-1-1"))
    open_to_all.touch()
    os.chown(open_to_all, ANN, -1)
    open_to_all.chmod(0o666)
    assert leases.forgeries(place) == {
        tickets.path_of(place, heard): f"{BEN} listens in the name of {ANN}",
        tickets.path_of(place, locked): f"{BEN} (pid {ben.pid}) holds its lock in the name of {ANN}",
        str(made): f"{BEN} made it in the name of {ANN}",
        str(open_to_all): "others can write to it",
    }


def test_a_second_name_of_a_file_is_reported(place: Folder, puppet: Puppets) -> None:
    name = puppet(uid=ANN).ask("ticket 1 A")
    copy = tickets.path_of(place, f"{ANN}-1-1")
    os.link(tickets.path_of(place, name), copy)
    assert leases.forgeries(place) == {copy: "it has 2 links", tickets.path_of(place, name): "it has 2 links"}
