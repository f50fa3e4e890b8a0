"""The GPUs of the machine as lines: use, memory, holder, elapsed time and limit; and everybody who waits. Pure."""

from __future__ import annotations

from datetime import datetime

from dibs.cli.top import lines
from dibs.cli.top.lines import Line, Marks
from dibs.cli.top.snapshot import Snapshot
from dibs.client.answers import Gpu, Reservation
from dibs.model import units

#: Least and most width of a bar.
SHORTEST, LONGEST = 6, 24
STYLES = {"free": "", "leased": "cyan", "foreign": "yellow", "drained": "yellow", "unhealthy": "red"}


def gpu_lines(snapshot: Snapshot, width: int, now: datetime, marks: Marks) -> list[Line]:
    """Return one line per GPU, or why there is none."""
    gpus = snapshot.gpus
    if problem := gpus["problem"] or gpus["restriction"]:
        notes: list[Line] = [lines.fitted(((lines.words([problem]), "yellow"),), width, marks)]
    else:
        notes = []
    if not gpus["gpus"]:
        return notes or [((("no GPUs" if snapshot.jobs else "reading the GPUs"), ""),)]
    return [*(lines.fitted(_gpu(snapshot, gpu, width, now, marks), width, marks) for gpu in gpus["gpus"]), *notes]


def _gpu(snapshot: Snapshot, gpu: Gpu, width: int, now: datetime, marks: Marks) -> Line:
    length = min(max((width - 50) // 3, SHORTEST), LONGEST)
    use = None if gpu["utilization"] is None else gpu["utilization"] / 100
    used, total = gpu["memory_used"], gpu["memory_total"]
    share = used / total if used is not None and total else None
    percent = "" if use is None else f"{use * 100:.0f}%"
    memory = "" if used is None or not total else f"{_gigabytes(used)}/{_gigabytes(total)}G"
    return (
        (f"{gpu['index']:>2} ", "bold"),
        *lines.bar(use, length, marks, lines.level(use)),
        (f" {percent:>4}  ", ""),
        *lines.bar(share, length, marks, "magenta"),
        (f" {memory:<8} ", ""),
        (holder(snapshot, gpu, now), STYLES.get(gpu["state"], "")),
    )


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.0f}"


def holder(snapshot: Snapshot, gpu: Gpu, now: datetime) -> str:
    """Return who has a GPU, since when and for how long at most; or why it is not in use."""
    own = snapshot.own_job(gpu)
    if own is not None:
        job = snapshot.job(own)
        limit = units.format_duration(job["time_limit_s"]) if job and job["time_limit_s"] else ""
        elapsed = lines.ran(job["started_at"] if job else gpu["holders"][0]["since"], now)
        text = lines.words([f"job {own}", job["name"] if job else "", "/".join(filter(None, (elapsed, limit)))])
        return f"{text}  idle {lines.ran(gpu['unused_since'], now)}" if gpu["is_idle"] else text
    if gpu["holders"]:
        return lines.words(_foreign(gpu, now))
    if gpu["blocked"]:
        return lines.words(["blocked:", gpu["blocked"]["text"]])
    if gpu["reservation"] is not None and gpu["state"] == "free":
        return lines.words([reserved(gpu["reservation"])])
    if gpu["reserved_for"] is not None:
        return f"reserved for job {gpu['reserved_for']}"
    detail = {"drained": gpu["drained"], "unhealthy": gpu["fault"], "foreign": gpu["foreign"]}.get(gpu["state"])
    # What somebody did says the state itself: "drained by you: fan is loud".
    return lines.words(
        [gpu["state"] if not detail else detail if gpu["state"] in detail else f"{gpu['state']}: {detail}"]
    )


def reserved(reservation: Reservation) -> str:
    """Return for whom a GPU is reserved, and until when."""
    end = datetime.fromisoformat(reservation["to"]).astimezone()
    return f"reserved for {reservation['user']} until {end:%H:%M}"


def _foreign(gpu: Gpu, now: datetime) -> list[str]:
    """Return the holders of a GPU that are not jobs of this user."""
    return [
        " ".join(filter(None, (each["user"] or "somebody", f"pid {each['pid']}" if each["pid"] else "", since)))
        for each in gpu["holders"]
        for since in [lines.ran(each["since"], now)]
    ]


def people_lines(snapshot: Snapshot, width: int, now: datetime, marks: Marks) -> list[Line]:
    """Return the leases and waiting tickets of all users of the machine, as the kernel proves them."""
    rows = [((_cells("GPU", "USER", "PID", "JOB", "SINCE", "MEMORY"), "bold"),)]
    for gpu in snapshot.gpus["gpus"]:
        for each in gpu["holders"]:
            size = units.format_size(each["vram"]) if each["vram"] else "all"
            size += ", evictable" if each["evictable"] else ""
            who = (each["user"] or "?", str(each["pid"] or "?"), each["job"] or "-")
            rows.append(((_cells(str(gpu["index"]), *who, lines.ran(each["since"], now), size), ""),))
    if len(rows) == 1:
        rows = [(("nobody holds a GPU", ""),)]
    rows += [(("", ""),), ((_cells("WAITS", "USER", "PID", "GPUS", "SINCE", "MEMORY"), "bold"),)]
    waiters = snapshot.gpus["waiters"]
    for place, one in enumerate(waiters, 1):
        size = units.format_size(one["vram"]) if one["vram"] else "all"
        cells = (str(place), one["user"], str(one["pid"]), str(one["gpus"]), lines.ran(one["since"], now), size)
        rows.append(((_cells(*cells), ""),))
    if not waiters:
        rows[-1] = (("nobody waits for a GPU", ""),)
    return [lines.fitted(row, width, marks) for row in rows]


def _cells(*cells: str) -> str:
    return "  ".join(lines.words([cell]).ljust(size) for cell, size in zip(cells, (5, 12, 8, 6, 8, 12), strict=True))
