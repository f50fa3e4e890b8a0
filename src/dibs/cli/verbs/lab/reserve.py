"""`dibs reserve`: keep GPUs for a future time. Every way to a GPU respects it; no daemon is needed."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

from dibs.cli import screen
from dibs.cli.screen import Column
from dibs.client import connection, queries
from dibs.errors import DibsError, UserError
from dibs.foreground import lease_request, reservation
from dibs.foreground.reservation import Wanted
from dibs.leases import device_lease, reservation_copies, reservations
from dibs.leases.reservations import Reservation
from dibs.model import serialization, units
from dibs.model.devices import DeviceId, Inventory
from dibs.scheduling import feasibility
from dibs.submission import job_options, options
from dibs.submission.options import Args, Option
from dibs.system import settings

SUMMARY = "Reserve GPUs for a future time; list and cancel reservations."
USAGE = ("-g N --from TIME --for DURATION [OPTIONS]", "[list] [-q] [--json]", "cancel ID... [--user USER]")
FROM = Option(("--from",), "Start time: 18:00, fri 18:00, now+2h or 2026-11-20T18:00.", job_options.BEGIN.kind, "TIME")
FOR = Option(("--for",), "Duration: at most 24h, unless root reserves.", options.POSITIVE_DURATION, "12h")
USER = Option(("--user",), "Reserve for this user, or cancel theirs (root only).", options.TEXT, "USER")
EVERY = Option(
    ("--every",),
    "Repeat it every day or week, for example for a course.",
    options.one_of(*reservations.PERIODS),
    "day|week",
)
NAME = Option(("--name",), "Purpose, shown to other users.", options.TEXT, "TEXT")
OPTIONS: tuple[Option[object], ...] = (
    job_options.GPUS, job_options.GPU_IDS, FROM, FOR, USER, EVERY, NAME, options.QUIET, options.JSON,
)  # fmt: skip
EXAMPLES = (
    'dibs reserve -g 4 --from "fri 18:00" --for 12h',
    'sudo dibs reserve -g 8 --from "mon 9:00" --for 3h --every week --user ada',
    "dibs reserve list",
    "dibs reserve cancel 3",
)
ACTIONS = ("list", "cancel")
#: They fit every action.
FORMATS = (options.QUIET, options.JSON)


def main(args: Args) -> int:
    """Make a reservation, list all, or cancel some."""
    makes_one = any(args.has(option) for option in OPTIONS if option not in FORMATS)
    action, *rest = args.words or ("" if makes_one else "list",)
    if action and action not in ACTIONS:
        got = options.shown(action)
        raise UserError(
            f'reserve expected list, cancel ID, or --from and --for, got "{got}".', "See `dibs reserve --help`."
        )
    for option in OPTIONS:
        is_fit = option in FORMATS or (action == "cancel" and option is USER)
        if action and not is_fit and args.has(option):
            raise UserError(f"{option.names[-1]} makes a reservation; it has no effect with `reserve {action}`.")
    if action == "list":
        options.refuse_words("reserve list", Args(tuple(rest)))
    values = settings.load(os.environ)
    inventory = lease_request.inventory_now(values)
    place, queue = device_lease.folder(), connection.connect(os.environ)
    if reservation_copies.restore(place, str(queue.home), time.time()):
        _wake_daemon(queue)
    if action == "cancel":
        return _cancel(place, queue, rest, args)
    if action == "list":
        return _list(place, inventory, args)
    made = reservation.make(place, inventory, _wanted(args, inventory), time.time())
    _keep(place, queue, made)
    _wake_daemon(queue)
    if args.has(options.JSON):
        screen.print_json(_json(made, inventory, time.time()))
    else:
        indices = ", ".join(str(inventory.index_of(DeviceId(device))) for device in made.devices)
        begin, end = made.from_s, made.from_s + made.for_s
        every = f", every {made.every}" if made.every else ""
        print(made.number)
        if args.has(options.QUIET):
            return 0
        screen.say(f"GPU {indices} reserved from {reservations.moment(begin)} to {reservations.moment(end)}{every}")
    return 0


def _keep(place: device_lease.Folder, queue: connection.Client, made: Reservation) -> None:
    """Write the copy that outlives a reboot; without it the reservation still counts until then."""
    try:
        if os.geteuid() != 0 or reservations.roots_folder(place) is None:
            queue.prepare_home()
        reservation_copies.keep(place, str(queue.home), made)
    except (OSError, DibsError) as error:
        screen.say(f"a reboot will remove it, because a copy could not be written: {error}")


def _wanted(args: Args, inventory: Inventory) -> Wanted:
    begin, for_s = args.get(FROM), args.get(FOR)
    if begin is None or for_s is None:
        raise UserError(
            "reserve expected --from TIME and --for DURATION.", 'For example: --from "fri 18:00" --for 12h.'
        )
    count, gpu_ids = args.get(job_options.GPUS), args.get(job_options.GPU_IDS)
    job_options.check_count(count, gpu_ids, None)
    chosen = feasibility.resolve(gpu_ids or (), "--gpu-ids", inventory)
    if count is not None and count.gpu_type:
        raise UserError(
            f'reserve expected a count of GPUs, got "{count.gpus}:{count.gpu_type}".', "Choose GPUs with --gpu-ids."
        )
    many = reservation.check_count(count.gpus if count else len(chosen) or 1)
    name = screen.clean(args.get(NAME) or "")
    if len(name) > reservations.LONGEST_NAME:
        raise UserError(f"--name expected up to {reservations.LONGEST_NAME} characters, got {len(name)}.")
    return Wanted(many, begin.timestamp(), for_s, chosen, args.get(USER), args.get(EVERY) or "", name)


def _wake_daemon(queue: connection.Client) -> None:
    """Let our daemon, if one runs, set a timer for it; it would notice by itself within half a minute."""
    if queries.identity(queue) is not None:
        queue.post("/v1/settings/reload", {})


def _cancel(place: device_lease.Folder, queue: connection.Client, words: list[str], args: Args) -> int:
    if not words or not all(map(units.is_whole, words)):
        got = f'"{options.shown(" ".join(words))}"' if words else "nothing"
        raise UserError(f"reserve cancel expected numbers such as 1 3, got {got}.", "See `dibs reserve list`.")
    found = [reservation.find(place, int(word), time.time(), args.get(USER)) for word in words]
    for one in found:
        reservation_copies.cancel(place, str(queue.home), one)
        print(one.number if args.has(options.QUIET) else f"reservation {one.number} cancelled")
    _wake_daemon(queue)
    return 0


def _list(place: device_lease.Folder, inventory: Inventory, args: Args) -> int:
    now_s = time.time()
    found = [_json(one, inventory, now_s) for one in reservations.read_all(place, now_s)]
    if args.has(options.JSON):
        screen.print_json({"reservations": found})
        return 0
    if args.has(options.QUIET):
        for row in found:
            print(row["id"])
        return 0
    if not found:
        screen.say('there are no reservations. Make one: dibs reserve -g 2 --from "fri 18:00" --for 12h')
        return 0
    rows = [
        [
            str(one["id"]), one["user"], ", ".join(map(str, one["gpus"])), one["from_local"], one["to_local"],
            one["every"] or "", one["state"], one["name"],
        ]
        for one in found
    ]  # fmt: skip
    titles = ("ID", "USER", "GPU", "FROM", "TO", "EVERY", "STATE", "NAME")
    print(screen.table(screen.screen_of_stream(sys.stdout, args), [Column(title) for title in titles], rows))
    return 0


def _json(one: Reservation, inventory: Inventory, now_s: float) -> dict[str, Any]:
    begin, end = one.window(now_s) or (one.from_s, one.from_s + one.for_s)
    return {
        "id": one.number,
        "user": one.user,
        "gpus": [inventory.index_of(DeviceId(device)) for device in one.devices],
        "gpu_ids": list(one.devices),
        "from": _moment(begin),
        "to": _moment(end),
        "from_local": reservations.moment(begin),
        "to_local": reservations.moment(end),
        "every": one.every or None,
        "state": "now" if begin <= now_s else "planned",
        "name": one.name,
    }


def _moment(at_s: float) -> str:
    return serialization.moment(int(datetime.fromtimestamp(at_s, UTC).timestamp() * 1000))
