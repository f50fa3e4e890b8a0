"""`/v1/reservations`: GPUs that are kept for a user for a time; list, make and cancel them.

Reservations are files that all users share, which `dibs reserve` writes too: the daemon is not needed for them.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.foreground import reservation
from dibs.foreground.reservation import Wanted
from dibs.http_api.schemas.machine_answers import Reservation, Reservations
from dibs.leases import reservations, rules_file
from dibs.leases.reservations import Reservation as Stored
from dibs.model import serialization, units
from dibs.model.devices import DeviceId, Inventory
from dibs.scheduling import feasibility
from dibs.store.writer import Reader


class ReservationIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename={"begin": "from"}):
    """GPUs to keep for a time."""

    #: How many; default: those of `gpu_ids`, else one.
    gpus: Annotated[int, Meta(ge=1, le=4096)] | None = None
    #: Only these: indices or UUIDs.
    gpu_ids: list[str] = []
    #: A time such as 2026-11-20T18:00:00Z.
    begin: str
    for_s: Annotated[float, Meta(gt=0, lt=1e9)]
    #: Repeat it.
    every: Literal["", "day", "week"] = ""
    #: What it is for.
    name: Annotated[str, Meta(max_length=reservations.LONGEST_NAME)] = ""
    #: For whom; only root reserves for somebody else.
    user: str | None = None


def get_reservations(daemon: Daemon, reader: Reader) -> Reservations:
    """Return the reservations of all users of this machine, the next one first."""
    return Reservations(_all(daemon, time.time(), None))


def until(daemon: Daemon, until_s: float) -> list[Reservation]:
    """Return the reservations that are for now or begin before a time; a repeated one with each of its times."""
    return _all(daemon, time.time(), until_s)


def begun(daemon: Daemon) -> dict[str, Reservation]:
    """Return the reservation that is for now, by GPU; those that were released do not count."""
    now = [one for one in _all(daemon, time.time(), None) if one.state == "now"]
    return {device: one for one in now for device in one.gpu_ids}


def _all(daemon: Daemon, now_s: float, until_s: float | None) -> list[Reservation]:
    """Return the reservations that count; each once without `until_s`, else each of its times that begins before."""
    place, inventory = daemon.lease_folder, daemon.inventory
    found = reservations.read_all(place, now_s)
    if not found:
        return []
    unused_for_s = rules_file.rules_of_folder(place).now().unused_for_s
    kept = reservations.kept(place, found, inventory.ids, now_s, unused_for_s)
    counted = {(one.reservation.owner, one.reservation.number) for _, one in kept}
    answers = []
    for one in found:
        windows = reservation.windows(one, now_s)
        shown = windows[:1] if until_s is None else [each for each in windows if each[0] < until_s]
        is_kept = (one.owner, one.number) in counted
        answers += [_answer(one, inventory, window, now_s, is_kept=is_kept) for window in shown]
    return answers


def _answer(
    one: Stored, inventory: Inventory, window: tuple[float, float], now_s: float, *, is_kept: bool
) -> Reservation:
    begin, end = window
    return Reservation(
        id=one.number,
        user=one.user,
        # A GPU that is gone has no index.
        gpus=sorted(inventory.by_id[DeviceId(each)].index for each in one.devices if each in inventory.by_id),
        gpu_ids=list(one.devices),
        begin=serialization.moment(int(begin * 1000)),
        end=serialization.moment(int(end * 1000)),
        every=one.every or None,
        state="planned" if begin > now_s else "now" if is_kept else "unused",
        name=one.name,
        is_ours=os.geteuid() in (one.owner, 0),
    )


async def post_reservations(daemon: Daemon, body: ReservationIn) -> Reservation:
    """Reserve GPUs for a future time."""
    inventory = await daemon.probe_now()
    wanted, now_s = _wanted(body, inventory), time.time()
    made = await asyncio.to_thread(reservation.make, daemon.lease_folder, inventory, wanted, now_s)
    # The queue keeps its jobs away from them, and sets a timer for the begin.
    daemon.wake()
    return _answer(made, inventory, (made.from_s, made.from_s + made.for_s), now_s, is_kept=True)


def _wanted(body: ReservationIn, inventory: Inventory) -> Wanted:
    try:
        begin = serialization.parse_moment(body.begin) / 1000
    except ValueError:
        raise UserError(f'from expected a time such as 2026-11-20T18:00:00Z, got "{body.begin[:80]}".') from None
    if begin + body.for_s <= time.time():
        raise UserError("expected a reservation that ends in the future.")
    chosen = feasibility.resolve(tuple(body.gpu_ids), "gpu_ids", inventory)
    if body.gpus is not None and chosen and len(chosen) < body.gpus:
        raise UserError(f"{units.count_gpus(body.gpus)} are requested, of {len(chosen)} that are named.")
    name = "".join(char if char.isprintable() else " " for char in body.name).strip()
    return Wanted(body.gpus or len(chosen) or 1, begin, body.for_s, chosen, body.user, body.every, name)


async def post_cancel(daemon: Daemon, id: int) -> Reservations:
    """Cancel a reservation of ours; return those that are left."""
    place = daemon.lease_folder
    found = await asyncio.to_thread(reservation.find, place, id, time.time())
    await asyncio.to_thread(reservations.cancel, place, found)
    daemon.wake()
    return await daemon.ask(lambda reader: get_reservations(daemon, reader))
