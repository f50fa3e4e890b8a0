"""The HTTP door: `/v1` over the daemon's unix socket. Translation only: JSON in, a verb or a question, JSON out.

Every request passes `guard` before routing: only the owner of the daemon gets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from dibs import (
    actions,
    codec,
    commands,
    devices,
    disk,
    drains,
    holders,
    housekeeping,
    reasons,
    reports,
    scheduling,
    scripts,
    selection,
    submissions,
    tickets,
    turns,
    verbs,
)
from dibs.core import now_ms
from dibs.daemon import Daemon
from dibs.devices import Device, Inventory, indices
from dibs.errors import Bug, Conflict, DibsError, NotAllowed, NotFound, UserError
from dibs.forecasts import Forecast
from dibs.jobs import Asked, Job, JobId
from dibs.obstacles import Reason
from dibs.reasons import Sight
from dibs.scheduling import View
from dibs.store import Reader
from dibs.version import __version__

log = logging.getLogger("dibs.http")

#: Bytes of one request: a hundred thousand commands with their common parts said once.
LARGEST_BODY = 256 * 1024 * 1024
#: Bytes of one request line: the ids that a `wait` without selector waits for may lie scattered.
LONGEST_LINE = 4 * 1024 * 1024
#: Seconds one long poll may take.
LONGEST_WAIT_S = 60.0
#: Seconds between two answers to one who watches a count grow.
NEWS_EVERY_S = 0.2
#: Seconds between two counts for one who waits for many jobs.
GATHER_S = 0.05
#: Rows of the overview: all that one looks at; `select=all` gives everything.
UNFINISHED_SHOWN, FINISHED_SHOWN = 1000, 20
#: Starts to come that are told at once.
MOST_STARTS = 100
#: Unfinished and finished jobs that a shell offers.
WORDS_SHOWN = 100, 50

DAEMON: web.AppKey[Daemon] = web.AppKey("daemon", Daemon)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# -- serving ----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(daemon: Daemon) -> AsyncIterator[None]:
    """Answer on the daemon's socket while inside."""
    app = web.Application(middlewares=[guard], client_max_size=LARGEST_BODY)
    app[DAEMON] = daemon
    app.add_routes(ROUTES)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0, max_line_size=LONGEST_LINE)
    await runner.setup()
    try:
        await _listen(runner, daemon.identity.socket)
        daemon.reopen = lambda: _listen(runner, daemon.identity.socket)
        yield
    finally:
        daemon.identity.socket.unlink(missing_ok=True)
        await runner.cleanup()


async def _listen(runner: web.AppRunner, path: Path) -> None:
    """Open the socket anew; a file of that name, dead or alive, goes: the daemon's lock says whose it is."""
    path.unlink(missing_ok=True)
    await web.UnixSite(runner, path).start()
    path.chmod(0o600)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let the owner in and nobody else, and turn every error into the one shape of errors."""
    try:
        _check_peer(request)
        _check_devices(request)
        return await handler(request)
    except DibsError as error:
        if isinstance(error, Bug):
            log.error("%s %s: %s", request.method, request.path, error.line())
        return _error(error)
    except web.HTTPException as error:
        return _error(_as_ours(request, error), error.status)
    # The last place: answered as a bug, logged whole.
    except Exception as error:
        log.exception("%s %s", request.method, request.path)
        return _error(Bug(f"{type(error).__name__}: {error}", f"See {request.app[DAEMON].identity.home}/daemon.log."))


def _check_peer(request: web.Request) -> None:
    sock = request.get_extra_info("socket")
    creds = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", creds)
    if uid not in (os.geteuid(), 0):
        raise NotAllowed(f"this queue belongs to {request.app[DAEMON].identity.user}.")
    if any(name.lower() == "origin" or name.lower().startswith("sec-fetch-") for name in request.headers):
        raise NotAllowed("a browser cannot use this socket yet.")


def _check_devices(request: web.Request) -> None:
    """Refuse a client that believes in other devices than ours."""
    wanted = request.headers.get("Dibs-Devices")
    ours = request.app[DAEMON].identity.devices
    if wanted is not None and wanted != ours and not request.path.startswith("/v1/daemon"):
        raise Conflict(
            f'the daemon runs with DIBS_DEVICES="{ours}", here it is "{wanted}".',
            "`dibs daemon restart` takes the new value; running jobs go on.",
        )


def _as_ours(request: web.Request, error: web.HTTPException) -> DibsError:
    if error.status == 404:
        return NotFound(f"there is nothing at {request.path}.")
    if error.status == 413:
        return UserError(f"the request is larger than {LARGEST_BODY} bytes.")
    return UserError(f"{request.method} {request.path}: {error.reason}.")


def _error(error: DibsError, status: int | None = None) -> web.Response:
    body = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}
    return _json(body, status or error.http_status)


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


# -- jobs in ----------------------------------------------------------------------------------------------------


async def post_jobs(request: web.Request) -> web.Response:
    """Queue one job, or many with common defaults: all of them or none."""
    daemon = request.app[DAEMON]
    body = await _body(request)
    rules = submissions.rules(body)
    wishes = submissions.wishes(body)
    if request.query.get("dry_run"):
        return await _rehearse(daemon, wishes, rules)
    submitted = await daemon.do(lambda turn: _submit(daemon, turn, wishes, rules))
    if full := _full(daemon):
        submitted = replace(submitted, notes=[*submitted.notes, full])
    is_plain = request.headers.get("Accept") == "text/plain"
    if is_plain and "Dibs-Receipt" not in request.headers:
        return _plain(submitted, "")
    receipt = await daemon.ask(lambda reader: reasons.receipt(daemon.core, reader, submitted.ids))
    if is_plain:
        return _plain(submitted, receipt)
    return _json({"ids": submitted.ids, "notes": submitted.notes, "receipt": receipt}, 201)


def _submit(daemon: Daemon, turn: turns.Turn, wishes: list[verbs.Wish], rules: verbs.Rules) -> verbs.Submitted:
    if not any(wish.asked.no_wait for wish in wishes):
        return verbs.submit(turn, wishes, rules)
    return daemon.core.submit_now(turn, wishes, rules, lambda job: Sight.of(daemon.core, turn.store).reason(job).text)


async def _rehearse(daemon: Daemon, wishes: list[verbs.Wish], rules: verbs.Rules) -> web.Response:
    """Say what would be queued; everything is checked as for a submission, and nothing is kept."""
    rehearsed = await daemon.do(lambda turn: verbs.rehearse(turn, wishes))
    _, first = rehearsed.jobs[0]
    forecast = Forecast(unknown="it would be held")
    if not wishes[0].is_held:
        forecast = await daemon.ask(lambda reader: Sight.of(daemon.core, reader).if_submitted(first))
    shell = daemon.core.engine.settings.shell
    jobs = [
        codec.asked_to_json(asked) | {"runs": _runs(wish, asked, shell), "held": wish.is_held}
        for wish, asked in rehearsed.jobs
    ]
    return _json(
        {
            "jobs": jobs,
            "at_once": rules.at_once,
            "halt_after": rules.halt_after,
            "notes": rehearsed.notes,
            # Of the first of them.
            **_expected(forecast),
        }
    )


def _runs(wish: verbs.Wish, asked: Asked, shell: str) -> list[str]:
    """Return the words that are really run."""
    if wish.script is not None:
        return [*scripts.interpreter(wish.script, shell), *(asked.argv or ())]
    env = codec.unpack_environ(wish.environ or b"")
    path = dict(asked.env).get("PATH") or env.get(b"PATH", os.defpath.encode()).decode(errors="surrogateescape")
    return list(commands.words(asked.command, asked.argv, shell, path, asked.cwd))


def _plain(submitted: verbs.Submitted, receipt: str) -> web.Response:
    """Answer one who cannot read JSON: ids in lines; what is for people in headers, each one JSON string."""
    answer = web.Response(text="".join(f"{job_id}\n" for job_id in submitted.ids), status=201)
    for note in submitted.notes:
        answer.headers.add("Dibs-Note", json.dumps(note))
    if receipt:
        answer.headers["Dibs-Receipt"] = json.dumps(receipt)
    return answer


async def _body(request: web.Request) -> Any:
    if request.content_type != "application/json":
        raise UserError(f'expected Content-Type application/json, got "{request.content_type}".')
    try:
        return msgspec.json.decode(await request.read())
    except msgspec.DecodeError as error:
        raise UserError(f"expected JSON: {error}.") from None


# -- jobs out ---------------------------------------------------------------------------------------------------


async def get_jobs(request: web.Request) -> web.Response:
    """Return the overview, or the jobs that the `select` words mean."""
    daemon = request.app[DAEMON]
    words = request.query.getall("select", [])
    chosen = selection.parse(words)

    def answer(reader: Reader) -> dict[str, Any]:
        sight = Sight.of(daemon.core, reader)
        if words:
            jobs = turns.require(reader.select(chosen, now_ms()), chosen, reader.last_id())
        else:
            jobs = _overview(reader, sight)
        return {
            "jobs": [_shown(daemon, sight, job) for job in jobs],
            "queue": {"paused": bool(reader.fact(turns.PAUSED))},
            "counts": reader.counts(),
            "machine": _machine(daemon.inventory, sight.view) | {"disk": _full(daemon)},
            "daemon": {"version": __version__, "pid": daemon.identity.pid},
        }

    return _json(await daemon.ask(answer))


def _overview(reader: Reader, sight: Sight) -> list[Job]:
    """Return what one looks at; behind very many unfinished jobs also what runs and what comes next."""
    jobs = {job.id: job for job in reader.overview(UNFINISHED_SHOWN, FINISHED_SHOWN)}
    jobs |= {job.id: job for job in reader.active()}
    for waiting in scheduling.order(sight.view.waiting)[:FINISHED_SHOWN]:
        if waiting.id not in jobs:
            jobs[waiting.id] = reader.job(waiting.id)
    return sorted(jobs.values(), key=lambda job: job.id)


def _shown(daemon: Daemon, sight: Sight, job: Job) -> dict[str, Any]:
    """Return a job as lists show it; reports of those that ended are read only when one job is asked for."""
    reason = sight.reason(job).text if job.is_waiting else job.remark if job.is_active else None
    engine = daemon.core.engine
    return codec.job_to_json(
        job,
        sight.inventory,
        user=daemon.identity.user,
        log=engine.log(job),
        stderr=engine.stderr(job),
        reason=reason,
    ) | {"report": reports.last(engine.report(job)) if job.is_active else None}


def _machine(inventory: Inventory, view: View) -> dict[str, Any]:
    return {
        "gpus": len(inventory.devices),
        "free": len(scheduling.free_devices(view, inventory)),
        "restriction": inventory.restriction,
        "problem": inventory.problem,
        "devices": _devices(inventory, view),
    }


def _full(daemon: Daemon) -> str | None:
    """Say that the disk of the queue is nearly full; it is a local one, so asking does not hang."""
    try:
        return disk.warning(daemon.identity.home, disk.room(daemon.identity.home))
    except OSError as error:
        return f"the disk of {daemon.identity.home} does not answer: {error.strerror}"


def _devices(inventory: Inventory, view: View) -> list[dict[str, Any]]:
    """Return every device with who has it, as the scheduler sees it now: without asking the driver."""
    ours = {device: job.id for job in view.active for device in job.devices}
    usable = set(inventory.usable())
    found = []
    for device in inventory.devices:
        foreign = view.held.get(device.id)
        idle = "free" if device.id in usable else "unhealthy" if device.fault is not None else "drained"
        state = "leased" if device.id in ours or foreign else idle
        found.append(
            {
                "index": device.index,
                "id": device.id,
                "state": state,
                "job": ours.get(device.id),
                "user": foreign.user if foreign and device.id not in ours else None,
            }
        )
    return found


async def get_job(request: web.Request) -> web.Response:
    """Return one job; with `until` and `wait_s`, when it has started or finished."""
    daemon = request.app[DAEMON]
    job_id = _id(request)
    until = request.query.get("until", "")
    if until not in ("", "started", "finished"):
        raise UserError(f'until expected started or finished, got "{until}".')
    deadline = daemon.events.loop.time() + _seconds(request, "wait_s")

    def is_reached(job: Job) -> bool:
        return job.is_finished or until == "" or (until == "started" and job.started_at is not None)

    while True:
        version = daemon.events.version
        job = await daemon.ask(lambda reader: reader.job(job_id))
        left = deadline - daemon.events.loop.time()
        if is_reached(job) or left <= 0 or daemon.stopping.is_set():
            break
        await daemon.events.changed(version, left)
    return _json(await daemon.ask(lambda reader: _whole(daemon, reader, reader.job(job_id))))


def _whole(daemon: Daemon, reader: Reader, job: Job) -> dict[str, Any]:
    attempts = [
        {
            "attempt": past.attempt,
            "outcome": past.outcome.value,
            "cause": past.cause.value if past.cause else None,
            "exit_code": past.exit_code,
            "signal": past.signal,
            "gpu_ids": list(past.allocation),
            "gpu_indices": list(indices(daemon.inventory, past.allocation)),
            "started_at": codec.moment(past.started_at),
            "finished_at": codec.moment(past.finished_at),
            "log": daemon.core.engine.log(job, past.attempt),
        }
        for past in reader.attempts(job.id)
    ]
    sight = Sight.of(daemon.core, reader)
    expected = codec.range_to_json(sight.expected(job).range) if job.is_waiting else None
    more = {"attempts": attempts, "env": codec.mask_environ(job.asked.env), "expected_start": expected}
    return _shown(daemon, sight, job) | more | {"report": reports.last(daemon.core.engine.report(job))}


async def get_words(request: web.Request) -> web.Response:
    """Return jobs and devices in a few words each, for shells that complete what is typed."""
    daemon = request.app[DAEMON]
    jobs = await daemon.ask(lambda reader: reader.overview(*WORDS_SHOWN))
    told = [
        {"id": j.id, "name": j.asked.name, "state": j.word, "project": j.asked.project, "tags": list(j.asked.tags)}
        for j in jobs
    ]
    return _json({"jobs": told, "gpus": [{"index": d.index, "name": d.name} for d in daemon.inventory.devices]})


async def get_events(request: web.Request) -> web.Response:
    """Return all that happened to a job."""
    job_id = _id(request)

    def answer(reader: Reader) -> list[dict[str, Any]]:
        reader.job(job_id)
        return [{"at": codec.moment(e.at), "kind": e.kind, "detail": e.detail} for e in reader.events(job_id)]

    return _json({"events": await request.app[DAEMON].ask(answer)})


async def get_why(request: web.Request) -> web.Response:
    """Say why a job is not running, or how it stands."""
    daemon = request.app[DAEMON]
    job_id = _id(request)

    def answer(reader: Reader) -> dict[str, Any]:
        job = reader.job(job_id)
        if not job.is_waiting:
            return _why(job, Reason(reasons.describe(job)), Forecast())
        sight = Sight.of(daemon.core, reader)
        return _why(job, sight.reason(job), sight.expected(job))

    return _json(await daemon.ask(answer))


def _why(job: Job, reason: Reason, forecast: Forecast) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.word,
        "reason": reason.text,
        "hint": reason.hint,
        **_expected(forecast),
    }


def _expected(forecast: Forecast) -> dict[str, Any]:
    """Return when a job is expected to start, or why nobody knows."""
    return {
        "expected_start": codec.range_to_json(forecast.range),
        "unknown": {"why": forecast.unknown, "hint": forecast.hint} if forecast.unknown else None,
    }


async def get_wait(request: web.Request) -> web.Response:
    """Answer when the finished jobs of a selection are more than `seen`, or all of it, or the time is over."""
    daemon = request.app[DAEMON]
    words = request.query.getall("select", [])
    chosen = selection.parse(words)
    began = daemon.events.loop.time()
    deadline = began + _seconds(request, "wait_s")
    seen = _whole_number(request, "seen", -1)
    is_fixed = bool(words) and not selection.is_moving(chosen)
    if not is_fixed:
        mark = request.query.get("mark", "") or await daemon.ask(lambda reader: _mark(reader, words, chosen))
        chosen = _marked(mark)
    while True:
        version, looked_at = daemon.events.version, daemon.events.loop.time()
        tally = await daemon.ask(lambda reader: reader.tally(chosen, now_ms()))
        summary = _summary(tally)
        left = deadline - daemon.events.loop.time()
        if summary["over"] or left <= 0 or daemon.stopping.is_set():
            break
        if summary["finished"] != seen:
            # News, but a thousand short jobs a second are not a thousand answers.
            left = min(left, began + NEWS_EVERY_S - daemon.events.loop.time())
            if left <= 0:
                break
        await daemon.events.changed(version, left)
        # The first change is looked at at once; after that they are gathered.
        await asyncio.sleep(max(0.0, looked_at + GATHER_S - daemon.events.loop.time()))
    if words and not summary["total"]:
        turns.require([], chosen, await daemon.ask(lambda reader: reader.last_id()))
    return _json(summary | {"mark": "" if is_fixed else mark})


def _mark(reader: Reader, words: list[str], chosen: selection.Selection) -> str:
    """Name the jobs that are meant now, without words all unfinished ones, by ranges of ids."""
    meant = chosen if words else selection.parse(["unfinished"])
    return selection.ranges(reader.select_ids(meant, now_ms()))


def _marked(mark: str) -> selection.Selection:
    return selection.parse([mark]) if mark else ()


def _summary(tally: dict[str, int]) -> dict[str, Any]:
    finished = sum(tally.get(word, 0) for word in selection.GROUP_WORDS["finished"])
    total = sum(tally.values())
    return {"total": total, "finished": finished, "bad": finished - tally.get("done", 0), "over": finished == total}


# -- verbs ------------------------------------------------------------------------------------------------------


async def post_actions(request: web.Request) -> web.Response:
    """Do one verb to many jobs."""
    action = submissions.convert(await _body(request), actions.ActionIn)
    if not action.select:
        raise UserError("expected at least one selector.")
    return await _do(request, action.verb, selection.parse(action.select), action)


async def post_verb(request: web.Request) -> web.Response:
    """Do one verb to one job."""
    body = await _body(request) if request.can_read_body else {}
    said = submissions.convert(body, actions.OneActionIn)
    return await _do(request, request.match_info["verb"], _one(request), said)


async def patch_job(request: web.Request) -> web.Response:
    """Change what is asked of a job: fields as in a submission, null for the default."""
    return await _do(request, "edit", _one(request), actions.OneActionIn(changes=await _body(request)))


def _one(request: web.Request) -> selection.Selection:
    job_id = _id(request)
    return ((selection.Ids(((job_id, job_id),)),),)


async def _do(request: web.Request, verb: str, chosen: selection.Selection, said: actions.OneActionIn) -> web.Response:
    daemon = request.app[DAEMON]
    if verb == "clean":
        cleaned = housekeeping.clean(daemon, chosen, with_checkpoints=said.checkpoints, is_dry_run=said.dry_run)
        return _json(await cleaned)
    return _json(actions.acted_to_json(await daemon.do(actions.prepare(verb, chosen, said))))


async def get_queue(request: web.Request) -> web.Response:
    """Say whether the queue is paused, and how many jobs are in which state."""
    return _json(
        await request.app[DAEMON].ask(
            lambda reader: {"paused": bool(reader.fact(turns.PAUSED)), "counts": reader.counts()}
        )
    )


async def get_starts(request: web.Request) -> web.Response:
    """Return the jobs that start next, at most `most`, and when each is expected to."""
    daemon = request.app[DAEMON]
    most = min(max(0, _whole_number(request, "most", 5)), MOST_STARTS)

    def answer(reader: Reader) -> list[dict[str, Any]]:
        found = Sight.of(daemon.core, reader).next_starts(most)
        return [
            {"id": job_id, "expected_start": codec.range_to_json(forecast.range)} for job_id, forecast in found.items()
        ]

    return _json({"starts": await daemon.ask(answer)})


async def post_queue(request: web.Request) -> web.Response:
    """Pause or resume the queue: `{"paused": true}`."""
    change = submissions.convert(await _body(request), actions.QueueIn)
    await request.app[DAEMON].do(verbs.pause_queue if change.paused else verbs.resume_queue)
    return await get_queue(request)


# -- machine and daemon -----------------------------------------------------------------------------------------


async def get_gpus(request: web.Request) -> web.Response:
    """Return every device, with who holds it on this machine."""
    daemon = request.app[DAEMON]
    inventory = await daemon.probe_now()
    found = await daemon.ask(lambda reader: holders.survey(daemon.core.standing.place, inventory.ids))
    line = await daemon.ask(lambda reader: tickets.line(daemon.core.standing.place))
    waiters = [{"user": t.user or str(t.uid), "pid": t.pid, "gpus": t.count, "devices": list(t.devices)} for t in line]
    gpus = [codec.device_to_json(device) | _held(found.get(device.id, ()), device) for device in inventory.devices]
    return _json({"gpus": gpus, "waiters": waiters, "problem": inventory.problem, "restriction": inventory.restriction})


def _held(found: tuple[holders.Holder, ...], device: Device) -> dict[str, Any]:
    # One of whom nothing is known any more has just gone.
    found = tuple(holder for holder in found if holder.pid is not None or holder.uid is not None)
    state = "unhealthy" if device.fault else "drained" if device.drained else "leased" if found else "free"
    return {
        "state": state,
        "holders": [
            {"user": h.user, "uid": h.uid, "pid": h.pid, "job": h.job or None, "since": _since(h)} for h in found
        ],
    }


def _since(holder: holders.Holder) -> str | None:
    return None if holder.since is None else codec.moment(round(holder.since * 1000))


async def post_drain(request: web.Request) -> web.Response:
    """Start nothing new on a device: for this user's jobs, or by root for everybody."""
    body = await _body(request) if request.can_read_body else {}
    why = " ".join(submissions.convert(body, actions.DrainIn).reason.split())
    daemon, device = request.app[DAEMON], await _device(request)
    if os.geteuid() == 0:
        drains.mark(daemon.drains.place, device.id, why)
    else:
        await daemon.do(lambda turn: turn.store.drain(device.id, why, turn.now))
        daemon.drains.own = {**daemon.drains.own, device.id: why}
    daemon.core.wake()
    return _drained(daemon, device)


async def post_undrain(request: web.Request) -> web.Response:
    """Start jobs on a device again."""
    daemon, device = request.app[DAEMON], await _device(request)
    is_root = os.geteuid() == 0
    if not is_root and device.id not in daemon.drains.own and device.drained:
        raise NotAllowed(f"GPU {device.index} is drained by root for everybody.", "Ask who looks after this machine.")
    await daemon.do(lambda turn: turn.store.undrain(device.id))
    daemon.drains.own = {own: why for own, why in daemon.drains.own.items() if own != device.id}
    if is_root:
        drains.unmark(daemon.drains.place, device.id)
    daemon.core.wake()
    return _drained(daemon, device)


async def _device(request: web.Request) -> Device:
    inventory = await request.app[DAEMON].probe_now()
    try:
        return inventory.by_id[devices.find(inventory, request.match_info["id"])]
    except devices.UnknownDevice as error:
        raise NotFound(f"expected an index or UUID of a GPU: {error}.", "See `dibs gpus`.") from None


def _drained(daemon: Daemon, device: Device) -> web.Response:
    return _json({"id": device.id, "index": device.index, "drained": daemon.inventory.by_id[device.id].drained})


async def get_daemon(request: web.Request) -> web.Response:
    """Say who serves here."""
    who = request.app[DAEMON].identity
    return _json(
        {
            "running": True,
            "pid": who.pid,
            "socket": str(who.socket),
            "version": __version__,
            "started_at": codec.moment(who.started_at),
            "home": str(who.home),
            "user": who.user,
            "devices": who.devices,
        }
    )


async def post_stop(request: web.Request) -> web.Response:
    """End the daemon after this answer; jobs run on. With `drain` it starts nothing new and ends after the last job."""
    daemon = request.app[DAEMON]
    body = await _body(request) if request.can_read_body else {}
    drain = submissions.convert(body, actions.StopIn).drain
    if drain is None:
        daemon.events.loop.call_soon(daemon.stopping.set)
    else:
        daemon.close_when_idle(drain)
    return _json({"pid": daemon.identity.pid})


def _id(request: web.Request) -> JobId:
    return JobId(int(request.match_info["id"]))


def _seconds(request: web.Request, name: str) -> float:
    text = request.query.get(name, "0")
    try:
        # Not a number compares with nothing, and would wait for ever.
        return min(max(float(text), 0.0), LONGEST_WAIT_S) if text.lower() != "nan" else 0.0
    except ValueError:
        raise UserError(f'{name} expected seconds, got "{text}".') from None


def _whole_number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise UserError(f'{name} expected a whole number, got "{text}".') from None


ROUTES = [
    web.get("/v1/jobs", get_jobs),
    web.post("/v1/jobs", post_jobs),
    web.get("/v1/jobs/wait", get_wait),
    web.post("/v1/jobs/actions", post_actions),
    web.get(r"/v1/jobs/{id:\d{1,18}}", get_job),
    web.patch(r"/v1/jobs/{id:\d{1,18}}", patch_job),
    web.get(r"/v1/jobs/{id:\d{1,18}}/events", get_events),
    web.get(r"/v1/jobs/{id:\d{1,18}}/why", get_why),
    web.post(r"/v1/jobs/{id:\d{1,18}}/{verb:[a-z]+}", post_verb),
    web.get("/v1/queue", get_queue),
    web.post("/v1/queue", post_queue),
    web.get("/v1/queue/starts", get_starts),
    web.get("/v1/gpus", get_gpus),
    web.get("/v1/words", get_words),
    web.post("/v1/gpus/{id}/drain", post_drain),
    web.post("/v1/gpus/{id}/undrain", post_undrain),
    web.get("/v1/daemon", get_daemon),
    web.post("/v1/daemon/stop", post_stop),
]
