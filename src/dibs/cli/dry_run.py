"""The output of `--dry-run`: the jobs that would be queued and how they would run. Nothing is queued."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import Any

from dibs.cli import expected_start, screen
from dibs.client import connection
from dibs.model import units
from dibs.submission import options, times
from dibs.submission.drafts import Body
from dibs.submission.options import Args

#: The number of commands of a batch to show.
SHOWN = 10


def show(queue: connection.Client, args: Args, body: Body) -> None:
    """Let the daemon validate a request without queueing it, and print what it would queue."""
    answer = queue.post("/v1/jobs?dry_run=yes", body)
    screen.say(*answer["notes"])
    if args.has(options.JSON):
        screen.print_json(answer)
        return
    jobs = answer["jobs"]
    print(f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} would be submitted; nothing was submitted.")
    view = screen.screen_of_stream(sys.stdout, args)
    print(screen.facts(view, [*_job_facts(jobs[0]), *_batch_facts(answer)]))
    for job in jobs[:SHOWN] if len(jobs) > 1 else []:
        index = "" if job["index"] is None else f"{job['index']}: "
        print(f"  {screen.clean(index + job['command'])}")
    if len(jobs) > SHOWN:
        print(f"  ... and {len(jobs) - SHOWN} more")


def _job_facts(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts about one job; those of options that are not set are empty."""
    request = job["request"]
    which = [f"of type {request['gpu_type']}"] if request["gpu_type"] else []
    word = "exactly" if len(request["gpu_ids"]) == job["gpus"] else "of"
    which += [f"{word} {', '.join(request['gpu_ids'])}"] if request["gpu_ids"] else []
    which += [f"preferring {', '.join(request['prefer'])}"] if request["prefer"] else []
    return [
        ("command", job["command"]),
        ("runs", shlex.join(job["runs"])),
        ("folder", job["cwd"]),
        ("name", job["name"]),
        ("project", job["project"]),
        ("GPUs", ", ".join([str(job["gpus"]), *which])),
        ("sets", " ".join(f"{name}={shlex.quote(value)}" for name, value in job["env"].items())),
        ("CPUs", str(job["cpus"] or "")),
        ("GPU memory", units.format_size(job["vram"]) if job["vram"] else ""),
        ("memory", units.format_size(job["mem"]) if job["mem"] else ""),
        ("time limit", units.format_duration(job["time_limit_s"]) if job["time_limit_s"] else ""),
        ("priority", str(job["priority"] or "")),
        ("after", " ".join(f"{need['id']} ({need['when']})" for need in job["after"])),
        ("begins", times.shown(datetime.fromisoformat(job["begin_at"])) if job["begin_at"] else ""),
        ("retries", str(job["retries"] or "")),
        ("output", job["output"] or ""),
        ("stderr", job["stderr"] or ""),
        ("tags", " ".join(job["tags"])),
        ("held", "until `dibs unhold`" if job["held"] else ""),
    ]


def _batch_facts(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts about the whole batch, and when its first job is expected to start, or why that is unknown."""
    starts = expected_start.phrase(answer["expected_start"], answer["unknown"], screen.now())
    at_once, halt_after = (str(answer[key] or "") for key in ("at_once", "halt_after"))
    return [("at once", at_once), ("halt after", halt_after), ("starts", starts)]
