"""Actions on jobs: on many by selectors, on one by its id."""

from __future__ import annotations

from typing import Any

from dibs.daemon import cleanup
from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.http_api.schemas import actions, job_answers
from dibs.model import selectors
from dibs.model.jobs import JobId


async def post_actions(daemon: Daemon, body: actions.ActionIn) -> job_answers.ActionResult:
    """Apply one verb to all selected jobs."""
    if not body.select:
        raise UserError("expected at least one selector.")
    return await _do(daemon, body.verb, selectors.parse(body.select), body)


async def post_verb(daemon: Daemon, id: JobId, verb: str, body: actions.OneActionIn) -> job_answers.ActionResult:
    """Apply one verb to one job."""
    return await _do(daemon, verb, _one(id), body)


async def patch_job(daemon: Daemon, id: JobId, body: Any) -> job_answers.ActionResult:
    """Edit a job: fields as in a submission, null for the default."""
    return await _do(daemon, "edit", _one(id), actions.OneActionIn(changes=body))


def _one(job_id: JobId) -> selectors.Selection:
    return ((selectors.Ids(((job_id, job_id),)),),)


async def _do(
    daemon: Daemon, verb: str, chosen: selectors.Selection, said: actions.OneActionIn
) -> job_answers.ActionResult:
    if verb == "clean":
        cleaned = await cleanup.clean(daemon, chosen, with_checkpoints=said.checkpoints, is_dry_run=said.dry_run)
        return job_answers.ActionResult(jobs=cleaned.jobs, bytes=cleaned.bytes, needed=list(cleaned.needed))
    return actions.answer(await daemon.do(actions.prepare(verb, chosen, said)))
