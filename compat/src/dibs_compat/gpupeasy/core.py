"""What the old server answers: seven addresses, with its keys, texts and slips of spelling.

Below `/dibs` is what our own page asks beside them.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from dibs.client import connection
from dibs.errors import DibsError
from dibs.model import units
from dibs_compat.gpupeasy import entries
from dibs_compat.gpupeasy.dispatcher import Dispatcher, Refusal
from dibs_compat.gpupeasy.entries import Entry

DISPATCHER: web.AppKey[Dispatcher] = web.AppKey("dispatcher", Dispatcher)
QUEUE: web.AppKey[connection.Client] = web.AppKey("queue", connection.Client)

#: In the order in which they are missed.
KEYS = ("outFile", "jobName", "jobCommand")
EMPTY = {
    "jobCommand": "No jobs were submitted",
    "jobName": "No job name was provided",
    "outFile": "Output file not specified",
}
#: Bytes of a request: a command has at most 128 KiB a word.
LARGEST_BODY = 16 * 1024 * 1024
#: Bytes of an output that are searched for its last lines, and lines that are returned.
MOST_BYTES, MOST_LINES = 1024 * 1024, 10_000
#: Jobs of a kind that the page shows.
MOST_SHOWN = 200


def routes() -> list[web.RouteDef]:
    """Return all addresses."""
    return [
        web.get("/availabledevices", get_devices),
        *(web.get(address, get_list) for address in LISTS),
        web.get("/jobinfo/{number}", get_info),
        web.post("/addnewjob", post_job),
        web.get("/dibs/state", get_state),
        web.get("/dibs/log", get_log),
        web.post("/dibs/devices", post_devices),
        web.post("/dibs/queue", post_queue),
        web.post("/dibs/jobs/{number}/{verb}", post_verb),
    ]


def _value(value: Any) -> web.Response:
    return _json({"status": "successful", "value": value})


def _failed(message: str, status: int = 200, **more: Any) -> web.Response:
    return _json({"status": "failed", "message": message, **more}, status)


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(body, status=status, dumps=lambda value: json.dumps(value) + "\n")


#: What the old server lists, by address: jobs of which status, and what an item tells beside names.
LISTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "/deviceutilization": (entries.RUNNING, ("gpu",)),
    "/scheduledjobs": (entries.SCHEDULED, ()),
    "/successfuljobs": (entries.SUCCEEDED, ("returnCode",)),
    "/failedjobs": (entries.FAILED, ("returnCode",)),
}


async def get_devices(request: web.Request) -> web.Response:
    """Return the list of GPUs, whether they are free or not."""
    return _value(request.app[DISPATCHER].texts)


async def get_list(request: web.Request) -> web.Response:
    """Return one of the lists of jobs."""
    status, more = LISTS[request.path]
    return _value([entries.brief(entry, *more) for entry in request.app[DISPATCHER].jobs(status)])


async def get_info(request: web.Request) -> web.Response:
    """Return one job."""
    entry = _find(request)
    if entry is None:
        return _failed(f"Job (jobid :{request.match_info['number']}) jot found", value={})
    return _json({"status": "successful", "message": {}, "value": entries.info(entry)})


def _find(request: web.Request) -> Entry | None:
    text = request.match_info["number"]
    return request.app[DISPATCHER].find(int(text)) if units.is_whole(text) else None


async def post_job(request: web.Request) -> web.Response:
    """Take a job in."""
    if request.content_type != "application/json":
        # No page of another site can send this type without asking first.
        return _failed("No JSON data was found", 415)
    try:
        name, output, command = _job(json.loads(await request.read()))
        argv, is_text = _argv(name, command), isinstance(command, str)
        number = await asyncio.to_thread(request.app[DISPATCHER].add, name, output, argv, is_text=is_text)
    except (ValueError, RecursionError):
        return _failed("No JSON data was found", 400)
    except Refusal as refused:
        return _failed(str(refused))
    return _json({"status": "successful", "message": "Job added successfully", "jobID": number})


def _job(body: Any) -> tuple[str, str, Any]:
    """Return name, output and command of a job; refuse missing ones with the old error texts."""
    if body is None:
        raise Refusal("No JSON data was found")
    if not isinstance(body, dict) or "job" not in body:
        raise Refusal("Key 'job' not found")
    job = body["job"] if isinstance(body["job"], dict) else {}
    for key in KEYS:
        if key not in job:
            raise Refusal(f"Key '{key}' not found")
    for key, message in EMPTY.items():
        if not job[key]:
            raise Refusal(message)
    if not (isinstance(job["jobName"], str) and isinstance(job["outFile"], str)):
        raise Refusal(f"Could not add new job: {job['jobName']}. Check logs for details")
    return job["jobName"], job["outFile"], job["jobCommand"]


def _argv(name: str, command: Any) -> list[str]:
    """Return the words of a command; a text is the name of a program, and a number is what it is written as."""
    words = [command] if isinstance(command, str) else command
    if isinstance(words, list) and all(isinstance(word, str | int | float) for word in words):
        return [str(word) for word in words]
    raise Refusal(f"Could not add new job: {name}. Check logs for details")


async def get_state(request: web.Request) -> web.Response:
    """Return all that the page shows."""
    dispatcher, queue = request.app[DISPATCHER], request.app[QUEUE]
    try:
        is_paused = (await asyncio.to_thread(queue.get, "/v1/queue"))["paused"]
    except DibsError:
        # The lists are known anyway.
        is_paused = False
    lists = {status: dispatcher.jobs(status) for status, _ in LISTS.values()}
    for status in (entries.SUCCEEDED, entries.FAILED):
        lists[status].reverse()
    shown = {status: _shown(jobs) for status, jobs in lists.items()}
    return _value({"devices": dispatcher.texts, "paused": is_paused, **shown})


def _shown(jobs: Sequence[Entry]) -> dict[str, Any]:
    return {"total": len(jobs), "jobs": [entries.whole(entry) for entry in jobs[:MOST_SHOWN]]}


async def get_log(request: web.Request) -> web.Response:
    """Return the last lines of the output of a job of ours; no other file is ever opened."""
    path, last = request.query.get("fileName", ""), request.query.get("lastN", "")
    digits = last.lstrip("+-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        return _json({"status": "failed", "value": "Expected a number of lines"})
    text = None
    if request.app[DISPATCHER].is_output(path):
        text = await asyncio.to_thread(tail, path, min(int(digits), MOST_LINES))
    if text is None:
        return _json({"status": "failed", "value": f"File not found: {path}"})
    return _value(text)


def tail(path: str, lines: int) -> str | None:
    """Return the last lines of a file; None if there is none."""
    try:
        # Non-blocking: a job may have put a pipe in its place.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        file.seek(max(0, found.st_size - MOST_BYTES))
        text = file.read(MOST_BYTES).decode(errors="replace")
    return "".join(text.splitlines(keepends=True)[-lines:] if lines else [])


async def _said(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest from None
    return body if isinstance(body, dict) else {}


async def post_devices(request: web.Request) -> web.Response:
    """Use another list of GPUs: `{"devices": ["0", "1"]}`."""
    texts = (await _said(request)).get("devices")
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.isprintable() for text in texts):
        return _failed("Expected a list of GPUs")
    request.app[DISPATCHER].change(texts)
    return _value(texts)


async def post_queue(request: web.Request) -> web.Response:
    """Pause or resume the queue: `{"paused": true}`. It applies to all jobs of dibs."""
    is_paused = (await _said(request)).get("paused") is True
    try:
        await asyncio.to_thread(request.app[QUEUE].post, "/v1/queue", {"paused": is_paused})
    except DibsError as error:
        return _failed(error.line())
    return _value(is_paused)


async def post_verb(request: web.Request) -> web.Response:
    """Do something to one job: `{"value": "10"}` where the verb takes one."""
    entry, value = _find(request), str((await _said(request)).get("value", ""))
    if entry is None:
        return _failed(f"Job (jobid :{request.match_info['number']}) jot found")
    try:
        return _value(
            await asyncio.to_thread(request.app[DISPATCHER].act, entry.number, request.match_info["verb"], value)
        )
    except Refusal as refused:
        return _failed(str(refused))
