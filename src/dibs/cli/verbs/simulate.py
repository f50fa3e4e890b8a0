"""`dibs simulate`: try the scheduling policy on a trace of jobs, in simulated time, beside others."""

from __future__ import annotations

import errno
import gzip
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dibs.cli import screen
from dibs.client import queries, stand_in
from dibs.errors import UserError
from dibs.scheduling.simulation import charts, comparisons, traces, workloads
from dibs.scheduling.simulation.measures import Measures
from dibs.scheduling.simulation.traces import TraceJob
from dibs.scheduling.simulation.workloads import Workload
from dibs.submission import options
from dibs.submission.options import Args, Kind, Option

SUMMARY = "Compare scheduling policies on a trace of jobs, in simulated time."
USAGE = ("[OPTIONS] TRACE.csv", "[OPTIONS] --from-history")


def _fraction(least: float, most: float) -> Kind[float]:
    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return Kind(f"a number from {least:g} to {most:g}", read)


BOXES = Option(("--boxes",), "Number of machines. Default: 1.", options.whole(1, 100_000), "N")
SIZE = Option(("--gpus-per-box",), "GPUs of each machine. Default: 8.", options.whole(1, 1024), "N")
EVICTABLE = Option(
    ("--evictable",), "Make this share of the jobs that run 4 hours or longer evictable.", _fraction(0, 1), "0.6"
)
NO_LIMITS: Option[bool] = Option(
    ("--no-limits",), "Ignore time limits. Without it, jobs that have none get a made-up one."
)
SEED = Option(("--seed",), "Random seed. Default: 0.", options.whole(0), "N")
LOAD = Option(
    ("--load",), "Leave out jobs at random, or submit them faster, to reach this load.", _fraction(0.01, 10), "0.8"
)
HISTORY: Option[bool] = Option(("--from-history",), "Use the finished jobs of your own queue as the trace.")
QUIET: Option[bool] = Option(("-q", "--quiet"), "Print only the table.")
SVG = Option(("--svg",), "Write a picture to this file.", options.PATH, "FILE")
OPTIONS: tuple[Option[object], ...] = (
    BOXES, SIZE, EVICTABLE, NO_LIMITS, SEED, LOAD, HISTORY, SVG, options.JSON, QUIET,
)  # fmt: skip
EXAMPLES = (
    "dibs simulate trace.csv.gz --boxes 4",
    "dibs simulate trace.csv --no-limits --load 0.8 --seed 1",
    "dibs simulate trace.csv --boxes 4 --evictable 0.6 --svg policies.svg",
    "dibs simulate --from-history --gpus-per-box 4 --json",
)

#: The table: the key of a measure, the heading, and seconds in one unit.
COLUMNS = (
    ("mean_completion_s", "mean", 3600.0),
    ("median_completion_s", "med", 3600.0),
    ("p99_completion_s", "p99", 3600.0),
    ("mean_wait_s", "wait", 3600.0),
    ("p99_wait_s", "wait99", 3600.0),
    ("p99_wait_big_s", "big99", 3600.0),
    ("slowdown", "slow", 1.0),
    ("utilisation", "use", 1.0),
    ("fairness", "fair", 1.0),
)
#: What the headings mean: short ones keep the table within 80 columns.
LEGEND = (
    "mean, med, p99: from submission to end; wait, wait99: until the start;",
    "big99: wait99 of jobs with 4 GPUs and more; slow: mean slowdown;",
    "use: GPUs in use, of 1; fair: Jain's index of the tenants",
)


def main(args: Args) -> None:
    """Simulate every policy and print a table."""
    if args.has(HISTORY) == bool(args.words) or len(args.words) > 1:
        got = "both" if args.has(HISTORY) else f"{len(args.words)} words" if args.words else "nothing"
        raise UserError(f"simulate expected one trace or --from-history, got {got}.", "See `dibs simulate --help`.")
    picture = args.get(SVG)
    if picture is not None:
        _check_writable(Path(picture))
    work = workloads.make(
        _history() if args.has(HISTORY) else _read(Path(args.words[0])),
        args.get(BOXES) or 1,
        args.get(SIZE) or 8,
        seed=args.get(SEED) or 0,
        load=args.get(LOAD),
        has_limits=not args.has(NO_LIMITS),
        evictable=args.get(EVICTABLE) or 0.0,
    )
    if not work.jobs:
        raise UserError(f"expected jobs that fit on {work.gpus} GPUs, got none.", "--boxes and --load decide that.")
    results = _run(work, is_quiet=args.has(QUIET) or args.has(options.JSON))
    if picture is not None:
        _write(Path(picture), charts.draw(results, _title(work)))
    if args.has(options.JSON):
        screen.print_json({**_facts(work, args), "policies": results})
    else:
        _print(results, work, args)


def _run(work: Workload, *, is_quiet: bool) -> dict[str, Measures]:
    results = {}
    for name, found in comparisons.compare(work):
        results[name] = found
        if not is_quiet and sys.stderr.isatty():
            screen.say(f"simulated {name}: {found['mean_completion_s'] / 3600:.2f} h")
    return results


def _facts(work: Workload, args: Args) -> dict[str, Any]:
    limits = "none" if args.has(NO_LIMITS) else "made up" if work.has_made_up_limits else "trace"
    return {
        "jobs": len(work.jobs),
        "too_large": work.too_large,
        "boxes": work.boxes,
        "gpus_per_box": work.gpus_per_box,
        "load": work.load,
        "seed": args.get(SEED) or 0,
        "limits": limits,
        "evictable": sum(job.is_evictable for job in work.jobs),
    }


def _title(work: Workload) -> str:
    boxes = f"{work.boxes} × {work.gpus_per_box} GPUs"
    return f"{_count(len(work.jobs))} on {boxes}, load {work.load:.2f}"


def _count(jobs: int) -> str:
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def _print(results: Mapping[str, Measures], work: Workload, args: Args) -> None:
    view = screen.screen_of_stream(sys.stdout, args)
    columns = [screen.Column("policy"), *(screen.Column(title, is_right=True) for _, title, _ in COLUMNS)]
    print(screen.table(view, columns, [[name, *_cells(found)] for name, found in results.items()]))
    if not args.has(QUIET):
        many = _count(work.too_large)
        left_out = f" Left out because more GPUs are needed than there are: {many}." if work.too_large else ""
        screen.say(f"{_title(work)}; times in hours.{left_out}", *LEGEND)


def _cells(found: Measures) -> Iterator[str]:
    for key, _, unit in COLUMNS:
        value = float(found[key]) / unit  # type: ignore[literal-required]
        yield f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _read(path: Path) -> list[TraceJob]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            return traces.read(lines)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None)
        shown = options.shown(str(path))
        if reason:
            raise UserError(f"cannot read {shown}: {reason}.") from None
        raise UserError(f"cannot read {shown}: it is not text, or incomplete.", traces.HELP) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write {options.shown(str(path))}: {error.strerror}.") from None


def _check_writable(path: Path) -> None:
    """Refuse a picture that could not be written, before minutes are spent on the simulation."""
    error = None
    if path.is_dir():
        error = errno.EISDIR
    elif not path.parent.is_dir():
        error = errno.ENOENT
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        error = errno.EACCES
    if error is not None:
        raise UserError(f"cannot write {options.shown(str(path))}: {os.strerror(error)}.")


def _history() -> list[TraceJob]:
    """Return the jobs with GPUs that ran in this user's queue; a project counts as a tenant."""
    found = queries.overview(stand_in.connect(os.environ), ["done", "failed", "timeout"])["jobs"]
    jobs = _ran(found)
    if not jobs:
        raise UserError("--from-history expected finished jobs with GPUs in the queue, got none.")
    return jobs


def _ran(found: Sequence[Mapping[str, Any]]) -> list[TraceJob]:
    rows = [
        (_seconds(job["submitted_at"]), _seconds(job["finished_at"]) - _seconds(job["started_at"]), job)
        for job in found
        if job["gpus"] and job["started_at"] and job["finished_at"]
    ]
    rows.sort(key=lambda row: row[0])
    return [
        TraceJob(number, submit_s, max(0.0, took_s), job["gpus"], job["project"], job["time_limit_s"])
        for number, (submit_s, took_s, job) in enumerate(rows, 1)
    ]


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
