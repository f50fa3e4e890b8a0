"""The page as a server: asks the core for what it shows, and hands on what forms say. It opens no file itself."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import ClientError, ClientSession, web

from dibs.foreground import machine
from dibs.submission import esy
from dibs_compat.gpupeasy import pages
from dibs_compat.gpupeasy.admission import Handler

#: Characters of a message in an address; browsers take more, but not every program between.
LONGEST_MESSAGE = 3000
#: Lines of a job's output on its page.
LAST_LINES = 100
STATIC = {"peasy.css": "text/css", "peasy.js": "text/javascript"}
UNREACHED = "Could not reach the scheduler server"


class Unreached(Exception):
    """The core does not answer."""


def routes() -> list[web.RouteDef]:
    """Return all addresses."""
    return [
        web.get("/", get_index),
        web.post("/addnewjob", post_job),
        web.get("/batchaddjobs", get_batch),
        web.post("/batchaddjobs", post_batch),
        web.post("/testCommandParser", post_test),
        *(web.get(f"/{address}", get_list) for address in pages.LISTS),
        web.get("/jobinfo/{number}", get_job),
        web.get("/jobinfo/{number}/now", get_job_now),
        web.post("/loadlogfile", post_log),
        web.get("/message", get_message),
        web.post("/queue", post_queue),
        web.post("/devices", post_devices),
        web.post("/jobs/{number}/{verb}", post_verb),
        web.get("/static/{name}", get_static),
    ]


class Core(NamedTuple):
    """Where the scheduler server is."""

    session: ClientSession
    host: str
    port: int

    def check_owner(self) -> None:
        """Refuse a port on which another user listens, who would get our commands."""
        strangers = machine.listeners(self.host, self.port) - {os.geteuid(), 0}
        if strangers:
            raise Unreached(f"port {self.port} belongs to another user (uid {min(strangers)}); nothing was sent")


CORE: web.AppKey[Core] = web.AppKey("core", Core)


@web.middleware
async def report_unreached(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell where one looks that the core does not answer: in the page, in a part of it, or after a form."""
    try:
        return await handler(request)
    except Unreached as why:
        message = {"errorMessage": f"{UNREACHED}: {why}"}
    if request.method == "POST":
        return _go("/", message)
    is_part = request.path.strip("/") in pages.LISTS or request.path.endswith("/now")
    return _html(pages.messages(message) if is_part else pages.document("GPUPeasy", pages.messages(message)))


async def _ask(request: web.Request, path: str, body: dict[str, Any] | None = None, **query: str) -> dict[str, Any]:
    """Return what the core answers to a question, or to a body that is posted."""
    core = request.app[CORE]
    method = "GET" if body is None else "POST"
    try:
        await asyncio.to_thread(core.check_owner)
        async with core.session.request(method, path, params=query, json=body) as answer:
            return dict(await answer.json())
    except (ClientError, TimeoutError, ValueError) as error:
        raise Unreached(str(error)) from error


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")


def _go(path: str, said: dict[str, Any]) -> web.Response:
    """Send a browser on, with something to tell in the address, as the old page does."""
    cut = {key: value[:LONGEST_MESSAGE] if isinstance(value, str) else value for key, value in said.items()}
    return web.Response(status=302, headers={"Location": f"{path}?{urlencode({'messages': json.dumps(cut)})}"})


def _messages(request: web.Request) -> dict[str, Any]:
    """Return what an address tells; whatever it is, it is shown as text."""
    try:
        said = json.loads(request.query.get("messages", "{}"))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


async def get_index(request: web.Request) -> web.Response:
    """Return the first page."""
    return _html(pages.index(_messages(request), (await _ask(request, "/dibs/state"))["value"]))


async def get_list(request: web.Request) -> web.Response:
    """Return one of the lists, for a page that is open already."""
    return _html(pages.listed((await _ask(request, "/dibs/state"))["value"], request.path.strip("/")))


async def post_job(request: web.Request) -> web.Response:
    """Add the one job of the form."""
    form = await request.post()
    try:
        argv = shlex.split(str(form.get("jobCommand", "")))
    except ValueError as error:
        return _go("/", {"errorMessage": f"Error in job: {form.get('jobName', '')}: {error}"})
    answer = await _add(request, str(form.get("jobName", "")), str(form.get("outFile", "")), argv)
    kind = "successMessage" if answer["status"] == "successful" else "errorMessage"
    return _go("/", {kind: answer["message"]})


async def _add(request: web.Request, name: str, output: str, argv: Sequence[str]) -> dict[str, Any]:
    job = {"jobName": name, "outFile": output, "jobCommand": list(argv)}
    return await _ask(request, "/addnewjob", {"job": job})


async def get_batch(request: web.Request) -> web.Response:
    """Return the page for many jobs."""
    return _html(pages.batch(_messages(request)))


def checked(text: str) -> tuple[list[esy.Entry], list[str]]:
    """Return the jobs of a list and what is wrong with it; an output file must not be there yet."""
    jobs, wrong = [], []
    for entry in esy.parse(text):
        match entry:
            case esy.Malformed(name=None):
                wrong.append(f"Malformed job: {entry.text}\n\n")
            case esy.Malformed():
                wrong.append(f"Error in job: {entry.name}: {entry.why}\n\n")
            case esy.Entry() if os.path.lexists(entry.output):
                error = f"Output file already exists or common to multiple jobs: {entry.output}"
                wrong.append(f"Error in job: {entry.name}: {error}\n\n")
            case esy.Entry():
                jobs.append(entry)
    return jobs, wrong


async def post_batch(request: web.Request) -> web.Response:
    """Add the jobs of a list: none, if one of them is wrong."""
    jobs, wrong = checked(str((await request.post()).get("jobList", "")))
    if wrong:
        return _go("/", {"errorMessage": f"There were {len(wrong)} errors. \n\n{''.join(wrong)}"})
    if not jobs:
        return _go("/", {"errorMessage": "No jobs were submitted (or incorrect syntax)"})
    refused = []
    for job in jobs:
        try:
            answer = await _add(request, job.name, job.output, job.argv)
        except Unreached as why:
            answer = {"status": "failed", "message": f"{UNREACHED}: {why}"}
        if answer["status"] != "successful":
            error = f"Scheduler returned error message: {answer['message']}"
            refused.append(f"Could not add job [{job.name}]:  {error}\n\n")
    if len(refused) == len(jobs):
        return _go("/", {"errorMessage": "".join(refused)})
    return _go("/", {"infoMessage": f"Jobs successfully passed onto scheduler.\n{''.join(refused)}"})


async def post_test(request: web.Request) -> web.Response:
    """Say what a list means, and add nothing."""
    jobs, wrong = checked(str((await request.post()).get("jobCommand", "")))
    if not jobs and not wrong:
        empty = {"status": "failed", "commandList": [], "errorMessage": "Command string cannot be emtpy"}
        return _go("/batchaddjobs", empty)
    read = [{"Job Name": job.name, "Job File": job.output, "Job Command": list(job.argv)} for job in jobs]
    said = {"status": "successful", "jobList": read, "errorCount": len(wrong)}
    if wrong:
        said["errorMessage"] = "\n".join(wrong)
    if len(json.dumps(read)) > LONGEST_MESSAGE:
        # Too long for an address: then the answer itself is the page.
        return _html(pages.batch(said))
    return _go("/batchaddjobs", said)


async def get_job(request: web.Request) -> web.Response:
    """Return the page of one job."""
    found, log = await _job(request)
    return _html(pages.job(_messages(request), request.match_info["number"], found, log))


async def get_job_now(request: web.Request) -> web.Response:
    """Return what changes on the page of one job, for one that is open already."""
    found, log = await _job(request)
    if found is None:
        raise web.HTTPNotFound
    return _html(pages.job_now(found, log))


async def _job(request: web.Request) -> tuple[dict[str, Any] | None, str]:
    """Return a job and the end of its output; None if there is no such job."""
    number = request.match_info["number"]
    is_number = number.isascii() and number.isdigit()
    found = (await _ask(request, f"/jobinfo/{number}"))["value"] if is_number else {}
    if not found:
        return None, ""
    return found, (await _ask(request, "/dibs/log", fileName=found["outFile"], lastN=str(LAST_LINES)))["value"]


async def post_log(request: web.Request) -> web.Response:
    """Return the last lines of the output of a job, as JSON; the core opens no other file."""
    form = await request.post()
    try:
        answer = await _ask(
            request, "/dibs/log", fileName=str(form.get("fileName", "")), lastN=str(form.get("lastN", ""))
        )
    except Unreached as why:
        answer = {"status": "failed", "value": f"{UNREACHED}: {why}"}
    return web.json_response(answer, dumps=lambda value: json.dumps(value, separators=(",", ":")) + "\n")


async def get_message(request: web.Request) -> web.Response:
    """Show how messages look."""
    return _go(
        "/",
        {
            "successMessage": "This is a success message",
            "errorMessage": "This\n\nis an error message",
            "infoMessage": "This\n\nis an info message",
        },
    )


async def post_queue(request: web.Request) -> web.Response:
    """Pause or resume the queue."""
    is_paused = (await request.post()).get("paused") == "1"
    return await _done(request, "/dibs/queue", {"paused": is_paused}, "Paused" if is_paused else "Resumed")


async def post_devices(request: web.Request) -> web.Response:
    """Change the list of GPUs."""
    lines = str((await request.post()).get("devices", "")).replace("\r\n", "\n").split("\n")
    return await _done(request, "/dibs/devices", {"devices": [line.strip() for line in lines]}, "GPUs changed")


async def post_verb(request: web.Request) -> web.Response:
    """Do something to one job."""
    number, verb = request.match_info["number"], request.match_info["verb"]
    if not (number.isascii() and number.isdigit() and verb.isascii() and verb.isalpha()):
        raise web.HTTPNotFound
    value = str((await request.post()).get("value", ""))
    return await _done(request, f"/dibs/jobs/{number}/{verb}", {"value": value}, f"Job {number}: {verb}")


async def _done(request: web.Request, path: str, body: dict[str, Any], message: str) -> web.Response:
    answer = await _ask(request, path, body)
    if answer["status"] != "successful":
        return _go("/", {"errorMessage": str(answer["message"])})
    return _go("/", {"successMessage": message})


async def get_static(request: web.Request) -> web.Response:
    """Return a file of the page: one of two."""
    name = request.match_info["name"]
    if name not in STATIC:
        raise web.HTTPNotFound
    body = resources.files("dibs_compat.gpupeasy").joinpath("static", name).read_text("utf-8")
    return web.Response(text=body, content_type=STATIC[name])
