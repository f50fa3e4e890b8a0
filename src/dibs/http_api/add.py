"""`POST /v1/add`: the daemon parses a `dibs add` command line for its thin client and returns the lines to print.

Every refusal (4xx) leaves the queue unchanged. The client then runs the full command line, which succeeds where the
daemon could not read a file, or reports the error itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple

import msgspec
from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.errors import NotAllowed, UserError
from dibs.http_api import job_submission
from dibs.http_api.connections import Connection
from dibs.submission import add_command, device_hints, job_options, options, remote_callers
from dibs.submission.add_command import Line
from dibs.submission.drafts import Body
from dibs.submission.options import Args, Caller

#: Threads that read command lines and the files they name; a dead network mount may block some of them forever.
MOST_READERS = 4
#: Seconds until the client reads its files itself.
READ_FOR_S = 2.0
#: Options that need the client's terminal, its traceback, or an answer of the daemon first.
LEFT_TO_THE_CLIENT = (options.HELP, options.DEBUG, job_options.DRY_RUN, job_options.LIKE)


#: Paths that name a different file in every process; the shell passes such a path for `<(command)`.
OWN_FILES = ("/proc/self", "/proc/thread-self", "/dev/fd", "/dev/std")


class AddIn(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of `dibs add`, and the process that it runs in."""

    #: Byte strings that each end with NUL, one character for each byte: arguments and variables need not be UTF-8.
    argv: str
    environ: str
    cwd: str
    umask: Annotated[int, msgspec.Meta(ge=0, le=0o777)]
    #: The client's result of `remote_callers.file_system`.
    file_system: str
    #: Whether stderr is a terminal.
    is_terminal: bool

    def caller(self) -> Caller:
        """Return the process that sent the request."""
        environ = dict(word.partition("=")[::2] for word in remote_callers.unpack(self.environ))
        return Caller(environ, "".join(remote_callers.unpack(self.cwd)), self.umask, is_remote=True)


class Draft(NamedTuple):
    """A parsed command line: its request, and notes to print before and after the hint about the shell."""

    args: Args
    body: Body
    said: list[str]
    warnings: list[str]


async def post_add(daemon: Daemon, readers: ThreadPoolExecutor, request: web.Request, body: AddIn) -> web.Response:
    """Submit the jobs of a `dibs add` command line; return the lines to print. Only for the owner's own client."""
    assert isinstance(request.protocol, Connection)
    peer = request.protocol.peer
    if peer is None or peer.uid != os.geteuid() or body.file_system != remote_callers.file_system():
        raise NotAllowed("the daemon does not see the files that the client sees.")
    caller = body.caller()
    draft = await read(readers, remote_callers.unpack(body.argv), caller)
    answer = await job_submission.add(daemon, draft.body, is_terminal=body.is_terminal)
    notes: list[str] = []
    if not draft.args.has(options.QUIET):
        notes = [*draft.said, *device_hints.about_shell(daemon.identity.home, caller.environ), *draft.warnings]
    lines = [add_command.note(text) for text in notes]
    lines += add_command.report(draft.args, answer, is_terminal=body.is_terminal, names_follow=True)
    return web.Response(text="".join(map(_line, lines)), status=201)


async def read(readers: ThreadPoolExecutor, words: list[str], caller: Caller) -> Draft:
    """Parse a command line in another thread; raise UserError if that takes too long."""
    try:
        reading = asyncio.get_running_loop().run_in_executor(readers, _draft, words, caller)
    except RuntimeError as error:
        # The account has no process left for another thread.
        raise UserError(f"the command line cannot be read here: {error}.") from None
    try:
        return await asyncio.wait_for(reading, READ_FOR_S)
    except TimeoutError:
        raise UserError(f"the files of the command could not be read within {READ_FOR_S:.0f} s.") from None


def _draft(words: list[str], caller: Caller) -> Draft:
    # The time zone of the machine may have changed since the daemon started.
    time.tzset()
    args = add_command.parse(words, caller)
    if any(args.has(option) for option in LEFT_TO_THE_CLIENT):
        raise UserError("this is left to the full command line.")
    if any(name in word for word in (*words, caller.environ.get("DIBS_CONFIG", "")) for name in OWN_FILES):
        raise UserError("only the client itself can open this file.")
    said: list[str] = []
    draft = add_command.draft(args, said.append)
    if draft.args.has(job_options.BEGIN) and caller.environ.get("TZ") != os.environ.get("TZ"):
        raise UserError("the daemon is in another time zone than the client.")
    return Draft(draft.args, draft.body, said, device_hints.about_assignment(draft.body))


def _line(line: Line) -> str:
    """Return a line in a format that needs no parser: its stream and one JSON string."""
    return f"{line.stream}{json.dumps(line.text)}\n"
