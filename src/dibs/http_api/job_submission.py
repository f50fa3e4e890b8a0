"""`POST /v1/jobs`: submit jobs, or check a submission with a dry run."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

from dibs.daemon.service import Daemon
from dibs.http_api import environments, gpus, jobs, template_jobs
from dibs.http_api.schemas import job_answers, submission
from dibs.jobqueue import control, validation
from dibs.jobqueue.thread import now_ms
from dibs.model import scripts, serialization
from dibs.model.fields import JobSpec
from dibs.model.jobs import Cause, JobId
from dibs.scheduling.forecasts import Forecast
from dibs.store.reader import Reader
from dibs.submission.drafts import Body
from dibs.system import commands


async def post_jobs(
    daemon: Daemon, body: Any, query: submission.DryRunQuery
) -> job_answers.DryRun | job_answers.Receipt:
    """Submit one job, or many with common defaults: all of them or none."""
    body = await template_jobs.filled(daemon, body)
    rules = submission.rules(body)
    submissions = await environments.complete(daemon, await _read(body))
    if daemon.devices.is_real and (query.dry_run or any(submission.spec.no_wait for submission in submissions)):
        # The answer depends on which GPUs are free now; the last reading may be hours old.
        await daemon.probe_now()
    if query.dry_run:
        return await _rehearse(daemon, submissions, rules)
    submitted = await _queue(daemon, submissions, rules)
    receipt, hints = await daemon.ask(lambda reader: daemon.receipt(reader, submitted.ids))
    return job_answers.Receipt(
        ids=list(submitted.ids),
        notes=submitted.notes,
        receipt=receipt,
        batch=submitted.batch or None,
        hints=hints,
    )


async def _read(body: Any) -> list[validation.Submission]:
    """Return the submissions of a request; a long text is read in another thread, for it takes a second or more."""
    if isinstance(body, dict) and "lines" in body:
        return await asyncio.to_thread(submission.submissions, body)
    return submission.submissions(body)


async def add(daemon: Daemon, body: Body, *, is_terminal: bool) -> dict[str, Any]:
    """Submit the jobs of `dibs add`; answer like `post_jobs`, with a receipt and hints only for a terminal."""
    # The client sends its folder and environment.
    submissions = submission.submissions(body)
    submitted = await _queue(daemon, submissions, submission.rules(body))
    answer: dict[str, Any] = {"ids": submitted.ids, "notes": list(submitted.notes)}
    if is_terminal:
        answer["receipt"], answer["hints"] = await daemon.ask(lambda reader: daemon.receipt(reader, submitted.ids))
    elif any(each.after for each in submissions):
        answer["notes"] += await daemon.ask(lambda reader: _end(daemon, reader, submitted.ids))
    return answer


def _end(daemon: Daemon, reader: Reader, ids: list[JobId]) -> list[str]:
    """Return a note if a job was cancelled already, because a job that it needs did not succeed."""
    return [f"job {daemon.receipt(reader, ids)[0]}"] if reader.job(ids[0]).cause is Cause.DEPENDENCY else []


async def _queue(
    daemon: Daemon, submissions: list[validation.Submission], rules: validation.Rules
) -> control.Submitted:
    await daemon.know_engines(submissions)
    submit = daemon.submit_now if any(submission.spec.no_wait for submission in submissions) else control.submit
    submitted = await daemon.do(lambda turn: submit(turn, submissions, rules))
    full = gpus.full(daemon)
    return replace(submitted, notes=[*submitted.notes, full]) if full else submitted


async def _rehearse(
    daemon: Daemon, submissions: list[validation.Submission], rules: validation.Rules
) -> job_answers.DryRun:
    """Check everything as for a submission and return what would be queued, without storing it."""
    # Imported late: it loads the options of the command line, which a submission does not need.
    from dibs.submission import command_line

    await daemon.know_engines(submissions)
    rehearsed = await daemon.do(lambda turn: control.rehearse(turn, submissions))
    _, first = rehearsed.jobs[0]
    forecast = Forecast(unknown="it would be held")
    if not submissions[0].is_held:
        forecast = await daemon.ask(lambda reader: daemon.outlook(reader).if_submitted(first))
    shell = daemon.settings.shell
    found = [
        serialization.spec_to_json(spec)
        | {"runs": _runs(submission, spec, shell), "held": submission.is_held}
        | {"cli": command_line.line(spec, now_ms(), is_held=submission.is_held)}
        for submission, spec in rehearsed.jobs
    ]
    return job_answers.DryRun(
        jobs=found,
        at_once=rules.at_once,
        halt_after=rules.halt_after,
        notes=rehearsed.notes,
        # For the first job only.
        expected_start=jobs.expected_start(forecast, daemon.inventory),
        unknown=jobs.unknown_start(forecast),
    )


def _runs(submission: validation.Submission, spec: JobSpec, shell: str) -> list[str]:
    """Return the argument list that would be executed."""
    if submission.script is not None:
        return [*scripts.interpreter(submission.script, shell), *(spec.argv or ())]
    env = serialization.unpack_environ(submission.environ or b"")
    path = dict(spec.env).get("PATH") or env.get(b"PATH", os.defpath.encode()).decode(errors="surrogateescape")
    return list(commands.words(spec.command, spec.argv, shell, path, spec.cwd))
