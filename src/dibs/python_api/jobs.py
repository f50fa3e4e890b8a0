"""`dibs.submit`, `dibs.jobs` and the job handles that they return.

A handle is a job id and the last answer about it. Each question is a separate request, so handles work from threads,
after a fork, inside a job, and across daemon restarts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self, Unpack, cast, overload

from dibs.client import answers, connection, job_state, job_waits, queries
from dibs.client.answers import DryRun, Gpu, WholeJob
from dibs.client.connection import Client
from dibs.errors import Conflict, JobFailed, NotFound, TimedOut, UserError
from dibs.python_api import keywords
from dibs.python_api.keywords import Options
from dibs.submission import drafts, job_options, script_files
from dibs.submission.options import Args
from dibs.system import commands

if TYPE_CHECKING:
    from dibs.submission.drafts import Body

#: The options of `submit` and of `edit`.
SUBMIT_OPTIONS = (*job_options.OPTIONS, *job_options.BATCH_OPTIONS)
EDIT_OPTIONS = tuple(drafts.EDITABLE)


class Job:
    """A job of the queue, by its id.

    Attributes that change (`state`, `exit_code`, ...) are fetched on each access until the job is finished; after that
    only `refresh` and the verbs fetch it again. `data` is the last answer.
    """

    def __init__(self, id: int) -> None:
        self._id = id
        self._seen: WholeJob | None = None

    @property
    def id(self) -> int:
        """Return its id, which is never reused."""
        return self._id

    @property
    def data(self) -> WholeJob:
        """Return the last answer, as `dibs show --json` prints it."""
        return self._seen or self.refresh().data

    def refresh(self) -> Self:
        """Fetch the job again."""
        self._seen = queries.whole(client(), self._id)
        return self

    def _fresh(self) -> WholeJob:
        if self._seen is None or not job_state.is_finished(self._seen):
            self.refresh()
        return self.data

    @property
    def state(self) -> str:
        """Return its state: held, queued, starting, running, paused, stopping, or how it ended."""
        return self._fresh()["state"]

    @property
    def is_finished(self) -> bool:
        """Return whether it has ended."""
        return job_state.is_finished(self._fresh())

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of its command; None if it has not ended, or ended by a signal."""
        return self._fresh()["exit_code"]

    @property
    def cause(self) -> str | None:
        """Return why it failed: exit, oom, gpu, signal, timeout, start, dependency or lost."""
        return self._fresh()["cause"]

    @property
    def reason(self) -> str | None:
        """Return why it waits, as text."""
        return self._fresh()["reason"]

    @property
    def attempt(self) -> int:
        """Return the number of the current attempt: 1, 2, ..."""
        return self._fresh()["attempt"]

    @property
    def numbers(self) -> dict[str, float | None]:
        """Return the last numbers that it reported."""
        return dict(self._fresh().get("report") or {})

    @property
    def name(self) -> str:
        """Return its name."""
        return self.data["name"]

    @property
    def command(self) -> str:
        """Return its command as text."""
        return self.data["command"]

    def log(self, lines: int | None = None, *, attempt: int | None = None) -> str:
        """Return its output, or only the last lines; by default of the newest attempt."""
        job = self._fresh()
        path = job_state.log_path(job, attempt or job["attempt"])
        try:
            with open(path, "rb") as file:
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            # It has not started.
            return ""
        return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:] if lines else [])

    def wait(self, timeout: float | None = None, *, check: bool = False) -> str:
        """Wait until it finishes and return its state; raise `TimedOut` after `timeout` seconds.

        With `check` raise `JobFailed`, with the end of its output, unless it succeeded.
        """
        wait([self], timeout)
        state = self.refresh().state
        if check and state != "done":
            tail = self.log(5).strip()
            how = f"{state} ({self.cause})" if self.cause else state
            raise JobFailed(f"job {self._id} is {how}.", f"Its last lines: {tail}" if tail else "")
        return state

    def __await__(self) -> Generator[object, None, str]:
        """Wait without blocking the event loop: `state = await job`."""
        import asyncio

        return asyncio.to_thread(self.wait).__await__()

    def cancel(self, *, grace: float | None = None) -> None:
        """Cancel it; a running job gets TERM, and KILL after `grace` seconds. No effect on a finished job."""
        self._act("cancel", is_strict=False, grace_s=grace)

    def retry(self, *, done: bool = False) -> None:
        """Queue a new attempt of a failed job; with `done` also of one that succeeded."""
        self._act("retry", done=done)

    def hold(self) -> None:
        """Hold a queued job."""
        self._act("hold")

    def unhold(self) -> None:
        """Release a held job."""
        self._act("unhold")

    def pause(self) -> None:
        """Stop its processes; it keeps its GPUs and their memory."""
        self._act("pause")

    def resume(self) -> None:
        """Continue a paused job."""
        self._act("resume")

    def kill(self, signal: int | str) -> None:
        """Send a signal to its processes."""
        self._act("kill", signal=signal if isinstance(signal, str) else int(signal))

    def edit(self, command: str | None = None, **options: Unpack[Options]) -> None:
        """Change a waiting job, or `time` of a running one; None restores the default."""
        given = cast("Mapping[str, object]", options)
        with keywords.keyword_errors():
            changes = drafts.changed_by(keywords.read(given, EDIT_OPTIONS))
            for option in EDIT_OPTIONS:
                if given.get(keywords.name(option), ...) is None:
                    changes[drafts.EDITABLE[option]] = None
            if command is not None:
                commands.check_text(command, "the command")
                changes["command"] = command
            if not changes:
                raise UserError("edit expected something to change, got nothing.")
            self._act("edit", changes=changes)

    def _act(self, verb: str, *, is_strict: bool = True, **fields: object) -> None:
        acted = queries.act(client(), verb, [str(self._id)], **fields)
        self._seen = None
        for left in acted["unchanged"] if is_strict else []:
            raise Conflict(f"job {left['id']} cannot be changed: {left['why'].rstrip('.')}.")

    def __repr__(self) -> str:
        seen = f" {self._seen['state']}" if self._seen else ""
        return f"<dibs.Job {self._id}{seen}>"

    def __eq__(self, other: object) -> bool:
        return self._id == other._id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)


Command = str | Sequence[str | os.PathLike[str]]


@overload
def submit(command: Command = ..., *, dry_run: Literal[True], **options: Unpack[Options]) -> DryRun: ...
@overload
def submit(command: Command = ..., *, array: str | Sequence[int], **options: Unpack[Options]) -> list[Job]: ...
@overload
def submit(command: Command = ..., *, repeat: int, **options: Unpack[Options]) -> list[Job]: ...
@overload
def submit(command: Command = ..., **options: Unpack[Options]) -> Job: ...
def submit(command: Command = (), **options: object) -> Job | list[Job] | DryRun:
    """Submit a command, as one string or a list of words, with the options of `dibs add` as keywords.

    With `script` the command is the script's arguments. With `array` or `repeat` return a list of jobs; with `dry_run`
    submit nothing and return what would be submitted.
    """
    with keywords.keyword_errors():
        args, body = draft(command, options)
        if args.has(job_options.DRY_RUN):
            return cast("DryRun", client().post("/v1/jobs?dry_run=yes", body))
        found = _send(body)
    return found if args.has(job_options.ARRAY) or args.has(job_options.REPEAT) else found[0]


def draft(command: Command, options: Mapping[str, object]) -> tuple[Args, Body]:
    """Return the options and the request for these keywords."""
    args = keywords.read(options, SUBMIT_OPTIONS)
    typed = replace(args, words=words(command, is_for_script=args.has(job_options.SCRIPT)))
    request = script_files.read(typed, "submit", note)
    return request.args, request.body


def submit_many(lines: Iterable[str], **options: Unpack[Options]) -> list[Job]:
    """Submit one job per command, all or none; `jobs` and `halt` apply to the batch."""
    with keywords.keyword_errors():
        args = keywords.read(cast("Mapping[str, object]", options), SUBMIT_OPTIONS)
        return _send(drafts.from_lines(args, (line.encode() for line in lines), "the list"))


def words(command: object, is_for_script: bool = False) -> tuple[str, ...]:
    """Return a command as shell arguments: one string, or its words."""
    if command in ([], ()) and is_for_script:
        return ()
    if command in ([], ()) or (isinstance(command, str) and not command.strip()):
        raise UserError("expected a command, got none.")
    if isinstance(command, str):
        commands.check_text(command, "the command")
        return (command,)
    if not isinstance(command, Sequence) or isinstance(command, bytes):
        raise UserError(f"expected a command, one string or a list of words, got {command!r}.")
    found = []
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise UserError(f"expected the words of a command to be strings, got {word!r}.")
        found.append(str(os.fspath(word)))
        commands.check_text(found[-1], "the command")
    if not is_for_script and commands.is_string(found):
        raise UserError(f'expected the words of a command, got one string in a list: ["{found[0]}"].', "Give it alone.")
    return tuple(found)


def _send(body: Body) -> list[Job]:
    answer = client().post("/v1/jobs", body)
    for each in answer["notes"]:
        note(each)
    return [Job(job_id) for job_id in answer["ids"]]


def note(text: str) -> None:
    """Log a note that the command line prints on stderr."""
    import logging

    logging.getLogger("dibs").warning("%s", text)


def job(id: int) -> Job:
    """Return the handle of a job; raise `NotFound` if there is none."""
    if isinstance(id, bool) or not isinstance(id, int):
        raise UserError(f"job expected the id of a job such as 12, got {id!r}.", 'Others: dibs.jobs("name:vit*").')
    return Job(id).refresh()


def jobs(*selectors: str | int) -> list[Job]:
    """Return the selected jobs; without selectors the unfinished and the latest finished ones."""
    words = [str(word) for word in selectors]
    try:
        found = queries.overview(client(), words)["jobs"]
    except NotFound:
        if all(queries.is_id(word) for word in words):
            raise
        # A selector of states or names may match nothing.
        return []
    return [Job(each["id"]) for each in found]


def wait(awaited: Iterable[Job], timeout: float | None = None) -> None:
    """Wait until all jobs finish; raise `TimedOut` after `timeout` seconds."""
    if words := [str(each.id) for each in awaited]:
        wait_selected(words, timeout, "jobs")


def wait_selected(words: Sequence[str], timeout: float | None, what: str) -> None:
    """Wait until all jobs of selectors finish; an error calls them `what`."""
    until = None if timeout is None else time.monotonic() + timeout
    waited = job_waits.until_over(client(), words, until)
    if not waited["over"]:
        left = waited["total"] - waited["finished"]
        raise TimedOut(f"{left} of {waited['total']} {what} are not finished after {timeout:g} s.")


def gpus() -> list[Gpu]:
    """Return all GPUs of this machine and their holders, as `dibs gpus --json` prints them."""
    answer: answers.Gpus = client().get("/v1/gpus")
    return answer["gpus"]


def client() -> Client:
    """Return a client of this user's daemon."""
    return connection.connect(os.environ)
