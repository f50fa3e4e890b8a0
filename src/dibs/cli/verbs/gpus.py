"""`dibs gpus`: all GPUs of this machine and their holders, other users included; `drain` takes a GPU out of use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from datetime import datetime
from urllib.parse import quote

from dibs.cli import repaint, screen
from dibs.cli.screen import Column, Screen
from dibs.client import connection, stand_in
from dibs.client.answers import DrainState, Gpu, Gpus, Holder, Reservation
from dibs.errors import NotFound, UserError
from dibs.model import devices, units
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "List all GPUs and their holders, including other users."
USAGE = ("[OPTIONS]", "drain GPU... [--reason TEXT]", "undrain GPU...")
REASON = Option(("--reason",), "Reason shown to other users.", options.TEXT, "TEXT")
OPTIONS: tuple[Option[object], ...] = (REASON, repaint.WATCH, options.QUIET, options.JSON)
EXAMPLES = (
    "dibs gpus",
    "dibs gpus -w",
    'dibs gpus drain 3 --reason "fan is loud"',
    "dibs gpus undrain 3",
    "dibs gpus --json | jq '.gpus[] | select(.state == \"free\")'",
)


#: Length of a bar, and of the memory bar in a narrow window; that has no other bars: holders matter more.
BAR, SHORT_BAR = 8, 6
#: Terminal width from which all bars are shown.
WIDE = 100


#: Shown instead of `free`.
RESERVED = "reserved"


def main(args: Args) -> int:
    """Print the GPUs as a table or as JSON."""
    if args.words and args.words[0] in ("drain", "undrain"):
        return _drain(args)
    if args.words:
        got = options.shown(" ".join(args.words))
        raise UserError(f'gpus expected drain or undrain, or nothing, got "{got}".', "See `dibs gpus --help`.")
    if args.has(REASON):
        raise UserError("--reason is for `dibs gpus drain`.")
    queue = stand_in.connect(os.environ)
    answer: Gpus = queue.get("/v1/gpus")
    if args.has(options.JSON):
        screen.print_json(answer)
        return 0
    if args.has(options.QUIET):
        _print_ids(gpu["id"] for gpu in answer["gpus"])
        return 0
    view = screen.screen_of_stream(sys.stdout, args)
    if args.has(repaint.WATCH) and view.is_terminal:
        return repaint.watch(lambda: _picture(queue, args), args.get(repaint.WATCH) or repaint.USUAL_S)
    restricted = answer["restriction"] and f"restricted: {answer['restriction']}"
    for text in (answer["problem"], restricted, answer.get("starts")):
        if text:
            print(screen.clean(text), file=sys.stderr)
    if not answer["gpus"]:
        print(
            "No GPUs on this machine. Jobs without GPUs still run. Pretend GPUs: DIBS_DEVICES=fake:4", file=sys.stderr
        )
        return 0
    print(table(view, answer["gpus"], screen.now()))
    for waiter in answer["waiters"]:
        vram = waiter.get("vram")
        share = f" with {units.format_size(vram)} each" if vram else ""
        print(screen.clean(f"{waiter['user']} is waiting for {waiter['gpus']}{share}"), file=sys.stderr)
    return 0


def _picture(queue: connection.Client, args: Args) -> str:
    answer: Gpus = queue.get("/v1/gpus")
    waits = [screen.clean(f"{waiter['user']} is waiting for {waiter['gpus']}") for waiter in answer["waiters"]]
    problem = [screen.clean(text) for text in (answer["problem"], answer.get("starts")) if text]
    return "\n".join([*problem, table(screen.screen_of_stream(sys.stdout, args), answer["gpus"], screen.now()), *waits])


def _print_ids(ids: Iterable[str]) -> None:
    for gpu_id in ids:
        print(screen.clean(gpu_id))


def _drain(args: Args) -> int:
    """Stop starting new jobs on GPUs, or undo that."""
    verb, *words = args.words
    if not words:
        raise UserError(f"gpus {verb} expected a GPU by index or UUID, got nothing.", "See `dibs gpus`.")
    if args.has(REASON) and verb != "drain":
        raise UserError("--reason is for `dibs gpus drain`.")
    queue = connection.connect(os.environ)
    known: Gpus = queue.get("/v1/gpus")
    # Resolve all GPUs before changing the first.
    ids = [_find(known["gpus"], word) for word in words]
    body = {"reason": args.get(REASON)} if args.has(REASON) else {}
    done: list[DrainState] = [queue.post(f"/v1/gpus/{quote(gpu_id, safe='')}/{verb}", body) for gpu_id in ids]
    if args.has(options.JSON):
        screen.print_json({"gpus": done})
        return 0
    if args.has(options.QUIET):
        _print_ids(ids)
        return 0
    was_drained = {gpu["id"] for gpu in known["gpus"] if gpu["drained"]}
    for gpu in done:
        after = "; running jobs continue" if verb == "drain" else ""
        state = gpu["drained"] or ("available again" if gpu["id"] in was_drained else "was not drained")
        print(f"GPU {gpu['index']}: {screen.clean(state)}{after}")
    if verb == "drain" and os.geteuid() == 0:
        screen.say("no new jobs of any user start there until `dibs gpus undrain` or the next boot.")
    return 0


def _find(gpus: list[Gpu], word: str) -> str:
    """Return the id of the GPU that a word names; else raise an error that lists the GPUs."""
    found = [gpu["id"] for gpu in gpus if word in (str(gpu["index"]), gpu["id"])]
    found = found or [gpu["id"] for gpu in gpus if gpu["id"].lower().startswith(word.lower())]
    if len(found) == 1:
        return found[0]
    if found and word:
        raise NotFound(f'"{options.shown(word)}" fits {len(found)} GPUs ({", ".join(found)}).', "Give more characters.")
    known = ", ".join(str(gpu["index"]) for gpu in gpus) or "none"
    raise NotFound(f'there is no GPU "{options.shown(word)}" (this machine has: {known}).', "See `dibs gpus`.")


def table(view: Screen, gpus: list[Gpu], now: datetime) -> str:
    """Return the GPUs as a table."""
    columns = (
        Column("GPU", is_right=True),
        Column("NAME", least=10),
        Column("MEMORY"),
        Column("USE", is_right=True),
        Column("TEMP", is_right=True),
        Column("STATE", is_state=True),
        Column("HOLDERS", least=20, is_sentence=True),
    )
    return screen.table(view, columns, [_row(view, gpu, now) for gpu in gpus])


def _row(view: Screen, gpu: Gpu, now: datetime) -> tuple[str, ...]:
    used, total = (
        None if size is None else units.format_size(size) for size in (gpu["memory_used"], gpu["memory_total"])
    )
    filled = gpu["memory_used"] / gpu["memory_total"] if gpu["memory_used"] and gpu["memory_total"] else 0.0
    busy = (gpu["utilization"] or 0) / 100
    return (
        str(gpu["index"]),
        gpu["name"],
        f"{_bar(view, filled, SHORT_BAR)}{used or '?'}/{total}" if total else "",
        "" if gpu["utilization"] is None else f"{_bar(view, busy, 0)}{gpu['utilization']}%",
        "" if gpu["temperature"] is None else f"{gpu['temperature']}C",
        RESERVED if gpu.get("reserved_for") is not None or _reservation(gpu) else gpu["state"],
        "; ".join([*(_holder(view, holder, now) for holder in gpu["holders"]), *_others(gpu), *_idle(view, gpu, now)]),
    )


def _bar(view: Screen, share: float, if_narrow: int) -> str:
    """Return a share as a bar, if the output is a terminal with room for it."""
    if view.width is None:
        return ""
    size = BAR if view.width >= WIDE else if_narrow
    full = min(size, max(0, round(share * size)))
    # Any use at all is visible.
    full = max(full, 1) if share > 0.005 else full
    return f"{'█' * full}{'░' * (size - full)} " if size else ""


def _idle(view: Screen, gpu: Gpu, now: datetime) -> list[str]:
    """Return for whom a GPU is kept, how long it has been idle or leased without use, or how many wait for it."""
    if reservation := _reservation(gpu):
        end = datetime.fromisoformat(reservation["to"]).astimezone()
        return [f"for {reservation['user']} until {end:%H:%M}"]
    if gpu.get("reserved_for") is not None:
        return [f"for job {gpu['reserved_for']}"]
    unused = gpu.get("unused_since") if gpu.get("is_idle") else None
    idle = [f"no use for {units.format_duration(screen.since_s(unused, now))}"] if unused else []
    waits = [f"{gpu['waiters']} waiting"] if gpu["waiters"] and gpu["state"] != "free" else []
    kept = [f"left free for others ({gpu['kept_by']})"] if gpu.get("kept_by") else []
    if gpu["state"] != "free" or not gpu["idle_since"]:
        return [*kept, *idle, *waits]
    age = units.format_duration(screen.since_s(gpu["idle_since"], now))
    return [*kept, f"idle for {age}" if view.is_terminal else f"idle since {screen.local(gpu['idle_since'])}"]


def _reservation(gpu: Gpu) -> Reservation | None:
    """Return the reservation that keeps a free GPU."""
    return gpu.get("reservation") if gpu["state"] == "free" else None


def _holder(view: Screen, holder: Holder, now: datetime) -> str:
    what = f" job {holder['job']}" if holder["job"] and holder["job"].isdigit() else f" {holder['job'] or ''}".rstrip()
    pid = f" (pid {holder['pid']})" if holder["pid"] else ""
    since = ""
    if holder["since"]:
        age = units.format_duration(screen.since_s(holder["since"], now))
        since = f" {age if view.is_terminal else screen.local(holder['since'])}"
    share = f" {units.format_size(holder['vram'])}" if holder["vram"] else ""
    yields = " (evictable)" if holder.get("evictable") else ""
    lent = "idle lease, lent to " if holder.get("loan") else ""
    return f"{lent}{holder['user'] or 'somebody'}{what}{share}{yields}{pid}{since}"


def _others(gpu: Gpu) -> list[str]:
    """Return further facts: faults, who blocks it, use without a lease, and a compute mode that prevents sharing."""
    blocked = gpu.get("blocked")
    blocker = f"{blocked['text']}: {blocked['fix'].rstrip('.')}" if blocked else None
    mode = "one process at a time (compute mode)" if gpu.get("compute_mode") == devices.EXCLUSIVE else None
    found = [text for text in (gpu["fault"], blocker, gpu["drained"], gpu["settling"], gpu["foreign"], mode) if text]
    # The state is in the column before.
    return [text.removeprefix(f"{gpu['state']} ") for text in found]
