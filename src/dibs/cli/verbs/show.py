"""`dibs show`: all details of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import cast

from dibs.cli import expected_start, job_action, log_output, screen, status_view
from dibs.cli.screen import Column, Screen
from dibs.client import job_state, queries, stand_in
from dibs.client.answers import Attempt, Event, Use, WholeJob
from dibs.client.safe_text import LogCleaner
from dibs.logs import reports
from dibs.model import fields, units
from dibs.model.fields import DEFAULT_GROUP
from dibs.submission import device_hints, options, times
from dibs.submission.options import Args, Option

SUMMARY = "Show all details of jobs: attempts, events, end of the log."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs show 12", "dibs show @", "dibs show 12 --json | jq .log")

LOG_LINES = 10

#: The text for each kind of event; programs get the name of the kind.
EVENT_WORDS = {
    "Submitted": "submitted",
    "Ready": "joined the queue for GPUs",
    "NotReady": "left the queue for GPUs",
    "Placed": "placed",
    "GivenUp": "start abandoned",
    "Started": "started",
    "Ended": "ended",
    "LostTrack": "lost",
    "Orphaned": "lost its runner",
    "CannotStart": "could not be started",
    "CancelAsked": "cancel requested",
    "NeedFailed": "dependency failed",
    "NeedRetried": "dependency retried",
    "HoldAsked": "held",
    "UnholdAsked": "released",
    "Paused": "paused",
    "Resumed": "resumed",
    "RetryAsked": "retry requested",
    "Moved": "moved",
    "Edited": "edited",
    "Signalled": "received a signal",
    "Stuck": "could not be stopped",
    "Leftovers": "cleaned up",
    "NoticeFailed": "notification failed",
    "Misused": "used an unassigned GPU",
    "StoppedEarly": "stopped early",
    "Sent": "sent to its engine",
    "EvictAsked": "evicted",
    "Idle": "GPU idle",
    "Evictable": "became evictable",
    "Evicted": "gave up its GPUs",
    "Stray": "strayed",
    "Exceeds": "exceeded --vram",
    "Foreign": "foreign process on GPU",
    "Unwell": "GPU unhealthy",
    "Rediscovered": "found in its folder",
}


def main(args: Args) -> None:
    """Print each selected job."""
    queue = stand_in.connect(os.environ)
    jobs = [queries.whole(queue, job_id) for job_id in queries.find_ids(queue, "show", args.words)]
    if args.has(options.JSON):
        screen.print_json(jobs[0] if len(jobs) == 1 else jobs)
        return
    if not jobs:
        screen.say(job_action.NOTHING)
    view, now = screen.screen_of_stream(sys.stdout, args), screen.now()
    for place, job in enumerate(jobs):
        events: list[Event] = queue.get(f"/v1/jobs/{job['id']}/events")["events"]
        print("\n" if place else "", end="")
        print(page(view, job, events, now))
        _print_log(view, job)


def page(view: Screen, job: WholeJob, events: list[Event], now: datetime) -> str:
    """Return facts, attempts and events of one job; the facts do not repeat the state line."""
    title = screen.paint(view, f"job {job['id']}", "bold")
    why = screen.clean(status_view.remark(job)) if job["state"] != "done" else ""
    # The reason of a held job begins with the word.
    why = why.removeprefix(job["state"]) if why.startswith(job["state"]) else f": {why}" if why else ""
    parts = [screen.wrapped(view, f"{title}  {screen.state(view, job['state'])}{why}", "  ")]
    parts.append(screen.facts(view, _facts(view, job, now)))
    if job["attempts"]:
        parts += ["", screen.paint(view, "attempts", "bold"), _attempts(view, job, now)]
    if events:
        parts += ["", screen.paint(view, "events", "bold"), _events(view, events, now)]
    return "\n".join(parts)


def _facts(view: Screen, job: WholeJob, now: datetime) -> list[tuple[str, str]]:
    wanted = job["request"]
    ran_for = ""
    if job["started_at"]:
        until = datetime.fromisoformat(job["finished_at"]) if job["finished_at"] else now
        ran_for = units.format_duration(screen.since_s(job["started_at"], until))
    return [
        ("name", job["name"]),
        ("project", job["project"]),
        ("group", "" if job["group"] == DEFAULT_GROUP else job["group"]),
        ("command", job["command"]),
        ("script", f"{script}, as it was at submission" if (script := job.get("script")) else ""),
        ("folder", job["cwd"]),
        *((own.label, str(cast("Mapping[str, object]", job).get(own.key or "") or "")) for own in fields.LABELED),
        ("remark", job["remark"] if job["remark"] and job["remark"] not in status_view.remark(job) else ""),
        ("exit code", "" if job["exit_code"] is None else str(job["exit_code"])),
        ("signal", "" if job["signal"] is None else str(job["signal"])),
        ("reported", reports.shown(job.get("report") or {})),
        ("GPUs", _gpus(job)),
        ("only", ", ".join(wanted["gpu_ids"])),
        ("prefers", ", ".join(wanted["prefer"])),
        ("GPU type", wanted["gpu_type"] or ""),
        ("GPU memory", _shared(job)),
        ("attention", "; ".join(job.get("marks") or ())),
        ("used", "; ".join(_use(use) for use in job.get("use") or ())),
        ("foreign use", "ignored: they do not keep it from a GPU" if wanted["ignore_foreign"] else ""),
        ("strict", "stopped if it uses a GPU it was not assigned" if job.get("strict_gpus") else ""),
        ("CPUs", str(job["cpus"] or "")),
        ("memory", units.format_size(job["mem"]) if job["mem"] else ""),
        ("priority", str(job["priority"]) if job["priority"] else ""),
        ("evictable", _evictable(job)),
        ("time limit", "" if job["time_limit_s"] is None else units.format_duration(job["time_limit_s"])),
        ("warning", _warning(job)),
        ("lasts", "until all of its processes have ended" if job.get("wait_tree") else ""),
        ("after", _needs(job)),
        ("begins", times.shown(datetime.fromisoformat(job["begin_at"])) if job["begin_at"] else ""),
        ("starts", _starts(job, now)),
        ("hint", job["hint"]),
        ("retries", str(job["retries"] or "")),
        ("index", "" if job.get("index") is None else str(job["index"])),
        ("tags", ", ".join(job["tags"])),
        ("notify", "runs a command when it finishes" if job.get("notifies") else ""),
        ("set", " ".join(f"{name}={value}" for name, value in job["env"].items())),
        ("attempt", str(job["attempt"])),
        ("pid", str(job["pid"] or "")),
        ("submitted", screen.moment(view, job["submitted_at"], now)),
        ("started", screen.moment(view, job["started_at"], now)),
        ("finished", screen.moment(view, job["finished_at"], now)),
        ("ran for", ran_for),
        ("log", job["log"]),
    ]


def _use(use: Use) -> str:
    """Return how a GPU was used: how much to declare with --vram, and whether the job kept it busy."""
    peak = "" if use["peak_memory"] is None else f"up to {units.format_size(use['peak_memory'])}"
    mean = "" if use["mean_utilization"] is None else f"{use['mean_utilization']:.0f}% busy"
    return f"{use['id']}: {', '.join(text for text in (peak, mean) if text) or 'unknown'}"


def _evictable(job: WholeJob) -> str:
    """Return whether a job is evictable and what that has cost so far."""
    told = {True: "yes", False: "", "auto": "once it writes checkpoints"}[job.get("evictable") or False]
    if not job.get("evictions"):
        return told
    kept = f"{units.format_duration(job['saved_s'])} kept, {units.format_duration(job['lost_s'])} lost"
    times = "once" if job["evictions"] == 1 else f"{job['evictions']} times"
    return f"{told or 'no more'}; evicted {times}: {kept}"


def _shared(job: WholeJob) -> str:
    if not job["vram"]:
        return ""
    enforced = "; stopped if it uses more than 110 %" if job.get("vram_enforce") else ""
    return f"{units.format_size(job['vram'])}, shared{enforced}"


def _gpus(job: WholeJob) -> str:
    if not job["gpu_ids"]:
        return str(job["gpus"])
    indices = ",".join(str(index) for index in job["gpu_indices"])
    return f"{indices} ({', '.join(job['gpu_ids'])})"


def _warning(job: WholeJob) -> str:
    warn = job.get("warn")
    return f"{warn['signal']} {units.format_duration(warn['before_s'])} before the time limit" if warn else ""


def _needs(job: WholeJob) -> str:
    few = ", ".join(f"{need['id']} ({need['when']})" for need in job["after"][: job_action.MOST_NAMED])
    more = len(job["after"]) - job_action.MOST_NAMED
    return few + (f" and {more} more" if more > 0 else "")


def _starts(job: WholeJob, now: datetime) -> str:
    is_waiting = job["state"] in job_state.WAITING
    return expected_start.phrase(job["expected_start"], job["unknown"], now) if is_waiting else ""


def _attempts(view: Screen, job: WholeJob, now: datetime) -> str:
    """Return the attempts that have ended; the facts above describe the current one."""
    columns = (
        Column("ATTEMPT", is_right=True),
        Column("STATE", is_state=True),
        Column("CODE", is_right=True),
        Column("GPU"),
        Column("STARTED", is_right=view.is_terminal),
        Column("FINISHED", is_right=view.is_terminal),
        Column("LOG", least=16, is_sentence=True),
    )
    return screen.table(view, columns, [_attempt(view, past, now) for past in job["attempts"]])


def _attempt(view: Screen, past: Attempt, now: datetime) -> tuple[str, ...]:
    return (
        str(past["attempt"]),
        past["outcome"],
        str(job_state.exit_code(past, past["outcome"])),
        ",".join(str(gpu) for gpu in past.get("gpu_indices") or past["gpu_ids"]),
        screen.moment(view, past["started_at"], now),
        screen.moment(view, past["finished_at"], now),
        past["log"],
    )


def _events(view: Screen, events: list[Event], now: datetime) -> str:
    columns = (Column("AT", is_right=view.is_terminal), Column("EVENT"), Column("DETAIL", least=12, is_sentence=True))
    rows = [
        (screen.moment(view, event["at"], now), EVENT_WORDS.get(event["kind"], event["kind"]), event["detail"] or "")
        for event in events
    ]
    return screen.table(view, columns, rows)


def _print_log(view: Screen, job: WholeJob) -> None:
    lines = log_output.last_lines(job["log"], LOG_LINES)
    if lines:
        title = screen.paint(view, f"log, last {LOG_LINES} lines", "bold")
        print(f"\n{title}")
        print("\n".join(_cleaned(view, line) for line in lines))
    if job["state"] == "failed" and device_hints.is_blind_to_uuids("\n".join(lines)):
        print(f"\n{screen.clean(device_hints.BLIND)}")


def _cleaned(view: Screen, line: str) -> str:
    cleaner = LogCleaner()
    return cleaner.feed(line.encode()) + cleaner.finish() if view.is_coloured else screen.clean(line)
