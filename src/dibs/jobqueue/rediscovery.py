"""Catch up after the database was lost and an older copy, or none, took its place.

The folders of the jobs are the truth about what was started: every start that the copy does not know is found there and
settled as after a crash. A job that the copy does not know at all gets a row with what its folder and its process tell.
What was queued is held, because it may have been cancelled, or have run and been deleted, since the copy was made.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from dibs.jobqueue import dispatch
from dibs.jobqueue.turns import FROM_COPY, RESTORED, Turn
from dibs.model import lifecycle, selectors
from dibs.model.devices import DeviceId
from dibs.model.fields import JobSpec
from dibs.model.jobs import Job, JobId, Request, State
from dibs.runner import records
from dibs.system import processes

log = logging.getLogger("dibs.jobqueue.rediscovery")

UNKNOWN = "(command lost with the database)"


@dataclass(frozen=True, slots=True)
class Trace:
    """The last start of a job that its folder shows."""

    job_id: JobId
    attempt: int
    start: int


def catch_up(turn: Turn, given_ids: int) -> None:
    """Bring an older copy up to date with the folders; assign no id up to `given_ids` again."""
    turn.store.skip_to(max(given_ids, turn.files.highest_id()))
    found, unread = _rediscover(turn)
    held = turn.store.hold(selectors.parse(["queued"]), turn.now, FROM_COPY)
    turn.changed += held
    running = sum(not job.is_finished for job in found)
    text = f"restored from a copy: {running} running and {len(found) - running} finished jobs found in their folders"
    bad = f"; unreadable folders (see daemon.log): {selectors.ranges(unread)}" if unread else ""
    hint = f"; {len(held)} queued jobs are held: dibs unhold all" if held else ""
    turn.store.set_fact(RESTORED, text + bad + hint)


def _rediscover(turn: Turn) -> tuple[list[Job], list[JobId]]:
    """Record every start that the copy does not know; return the jobs, and the ids of unreadable folders."""
    found: list[Job] = []
    unread: list[JobId] = []
    folder = turn.files.home / "jobs"
    for job_id in sorted(map(JobId, _numbers(folder, ""))):
        mark = turn.mark()
        try:
            with turn.store.step():
                trace = _last_start(folder, job_id)
                found += [_settle(turn, trace)] if trace is not None and _is_news(turn, trace) else []
        except OSError as error:
            # One unreadable folder must not keep the others from being found.
            turn.undo(mark)
            log.error("job %s: %s", job_id, error)
            unread.append(job_id)
    return found, unread


def _last_start(folder: Path, job_id: JobId) -> Trace | None:
    """Return the last start of a job that has a folder. One with only a checkpoint has none."""
    attempt = max(_numbers(folder / str(job_id), ""), default=0)
    start = max(_numbers(folder / str(job_id) / str(attempt), "started."), default=0)
    return Trace(job_id, attempt, start) if start else None


def _numbers(folder: Path, prefix: str) -> list[int]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        ends = [name.removeprefix(prefix) for name in os.listdir(folder) if name.startswith(prefix)]
        return [int(end) for end in ends if end.isdecimal() and end.isascii()]
    return []


def _is_news(turn: Turn, trace: Trace) -> bool:
    job = _row(turn, trace.job_id)
    return job is None or (job.attempt, job.start) < (trace.attempt, trace.start)


def _row(turn: Turn, job_id: JobId) -> Job | None:
    return next(iter(turn.store.jobs([job_id])), None)


def _settle(turn: Turn, trace: Trace) -> Job:
    """Record the last start of a job; return the job."""
    folder = str(turn.files.home / "jobs" / str(trace.job_id) / str(trace.attempt))
    is_known = _row(turn, trace.job_id) is not None
    pid = _living_pid(folder, trace.start)
    devices = _devices(turn, pid)
    if not is_known:
        turn.store.adopt(trace.job_id, _spec(pid, devices), turn.now)
    turn.store.note(trace.job_id, turn.now, "Rediscovered", f"attempt {trace.attempt}, in {folder}")
    job = turn.record(turn.store.rewind(trace.job_id, trace.attempt, trace.start), lifecycle.Placed(turn.now, devices))
    dispatch.settle(turn, job)
    job = turn.store.job(job.id)
    if job.state is State.QUEUED and not is_known:
        # It did not begin, and it cannot, because nobody knows its command any more.
        job = turn.record(job, lifecycle.Placed(turn.now, ()))
        why = "it had not started, and its command was lost with the database"
        job = turn.record(job, lifecycle.LostTrack(turn.now, why))
    return job


def _living_pid(folder: str, start: int) -> int | None:
    running = records.read_running(folder, start)
    is_same = running is not None and processes.identity(running.pid) == running.starttime
    return running.pid if running is not None and is_same else None


def _devices(turn: Turn, pid: int | None) -> tuple[DeviceId, ...]:
    """Return the devices of a living command."""
    words = _environ(pid).get("DIBS_GPU_INDICES", "").split(",")
    by_index = {str(device.index): device.id for device in turn.inventory.devices}
    return tuple(by_index[word] for word in words if word in by_index)


def _spec(pid: int | None, devices: tuple[DeviceId, ...]) -> JobSpec:
    """Return what a living command tells about itself; of one that ended nothing is known but its result."""
    environ = _environ(pid)
    command = shlex.join(processes.words(pid)) if pid else ""
    name, project = environ.get("DIBS_JOB_NAME", ""), environ.get("DIBS_PROJECT") or "default"
    request = Request(len(devices))
    return JobSpec(command or UNKNOWN, None, environ.get("PWD", "/"), request, name=name, project=project)


def _environ(pid: int | None) -> dict[str, str]:
    if pid is None:
        return {}
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.decode("utf-8", "replace").partition("=") for item in text.split(b"\0"))
    return {name: value for name, _, value in pairs}
