"""Actions on jobs: on many by selectors, on one by its id."""

from __future__ import annotations

from aiohttp import web

from dibs.daemon import cleanup
from dibs.errors import UserError
from dibs.http_api import exchange, wire
from dibs.http_api.schemas import actions, job_answers
from dibs.model import selectors


async def post_actions(request: web.Request) -> web.Response:
    """Apply one verb to all selected jobs."""
    action = wire.convert(await exchange.body(request), actions.ActionIn)
    if not action.select:
        raise UserError("expected at least one selector.")
    return await _do(request, action.verb, selectors.parse(action.select), action)


async def post_verb(request: web.Request) -> web.Response:
    """Apply one verb to one job."""
    body = await exchange.body(request) if request.can_read_body else {}
    said = wire.convert(body, actions.OneActionIn)
    return await _do(request, request.match_info["verb"], _one(request), said)


async def patch_job(request: web.Request) -> web.Response:
    """Edit a job: fields as in a submission, null for the default."""
    return await _do(request, "edit", _one(request), actions.OneActionIn(changes=await exchange.body(request)))


def _one(request: web.Request) -> selectors.Selection:
    job_id = exchange.job_id(request)
    return ((selectors.Ids(((job_id, job_id),)),),)


async def _do(request: web.Request, verb: str, chosen: selectors.Selection, said: actions.OneActionIn) -> web.Response:
    daemon = request.app[exchange.DAEMON]
    if verb == "clean":
        cleaned = await cleanup.clean(daemon, chosen, with_checkpoints=said.checkpoints, is_dry_run=said.dry_run)
        return exchange.json(job_answers.Acted(jobs=cleaned.jobs, bytes=cleaned.bytes, needed=list(cleaned.needed)))
    return exchange.json(actions.answer(await daemon.do(actions.prepare(verb, chosen, said))))
