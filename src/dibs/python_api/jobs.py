"""The queue from Python: `dibs.submit` and what it returns, handles of jobs.

A handle is the id of a job and what was last seen of it. Each question is a request of its own, so handles may be used
from threads, after a fork, inside a job, and while a daemon is replaced by another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self, Unpack, cast, overload

from dibs.client import answers, connection, job_state, job_waits, queries
from dibs.client.answers import Gpu, Rehearsed, WholeJob
from dibs.client.connection import Client
from dibs.errors import Conflict, JobFailed, NotFound, TimedOut, UserError
from dibs.python_api import keywords
from dibs.python_api.keywords import Options
from dibs.submission import drafts, edit_drafts, job_options, script_files
from dibs.submission.options import Args
from dibs.system import commands

if TYPE_CHECKING:
    from dibs.submission.drafts import Body

#: What may be said of `submit`, and of `edit`.
SUBMIT_OPTIONS = (*job_options.OPTIONS, *job_options.BATCH_OPTIONS)
EDIT_OPTIONS = tuple(edit_drafts.FIELDS)


class Job:
    """A job of the queue, by its id.

    What changes while a job lives (`state`, `exit_code`, ...) is asked for anew each time, until the job was seen
    finished; after that only `refresh` and the verbs look again. `data` is all that was last seen.
    """

    def __init__(self, id: int) -> None:
        self._id = id
        self._seen: WholeJob | None = None

    @property
    def id(self) -> int:
        """Return its id, which is its own for ever."""
        return self._id

    @property
    def data(self) -> WholeJob:
        """Return the job as last seen, as `dibs show --json` prints it."""
        return self._seen or self.refresh().data

    def refresh(self) -> Self:
        """Look again."""
        self._seen = queries.whole(_queue(), self._id)
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
        """Tell whether nothing more will happen to it by itself."""
        return job_state.is_finished(self._fresh())

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of its command; None: it has none yet, or a signal ended it."""
        return self._fresh()["exit_code"]

    @property
    def cause(self) -> str | None:
        """Return why it did not succeed: exit, oom, gpu, signal, timeout, start, dependency or lost."""
        return self._fresh()["cause"]

    @property
    def reason(self) -> str | None:
        """Return in words why it waits."""
        return self._fresh()["reason"]

    @property
    def attempt(self) -> int:
        """Return which attempt this is: 1, 2, ..."""
        return self._fresh()["attempt"]

    @property
    def numbers(self) -> dict[str, float | None]:
        """Return the numbers that it reported last."""
        return dict(self._fresh().get("report") or {})

    @property
    def name(self) -> str:
        """Return its name."""
        return self.data["name"]

    @property
    def command(self) -> str:
        """Return its command as people read it."""
        return self.data["command"]

    def log(self, lines: int | None = None, *, attempt: int | None = None) -> str:
        """Return its output so far, or only the last lines; that of the newest attempt, if it is not said which."""
        job = self._fresh()
        path = job_state.log_path(job, attempt or job["attempt"])
        try:
            with open(path, "rb") as file:
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            # It has not begun.
            return ""
        return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:] if lines else [])

    def wait(self, timeout: float | None = None, *, check: bool = False) -> str:
        """Return the state in which it finished; `TimedOut` after so many seconds, and the job goes on.

        With `check` a job that did not succeed is an error, `JobFailed`, with the end of its output.
        """
        wait([self], timeout)
        state = self.refresh().state
        if check and state != "done":
            tail = self.log(5).strip()
            how = f"{state} ({self.cause})" if self.cause else state
            raise JobFailed(f"job {self._id} is {how}.", f"Its last lines: {tail}" if tail else "")
        return state

    def __await__(self) -> Generator[object, None, str]:
        """Wait without holding up an event loop: `state = await job`."""
        import asyncio

        return asyncio.to_thread(self.wait).__await__()

    def cancel(self, *, grace: float | None = None) -> None:
        """Drop it if it waits, end it if it runs: TERM, and KILL after so many seconds; nothing if it has finished."""
        self._act("cancel", is_strict=False, grace_s=grace)

    def retry(self, *, done: bool = False) -> None:
        """Queue a new attempt of a job that has finished and did not succeed; with `done` also of one that did."""
        self._act("retry", done=done)

    def hold(self) -> None:
        """Keep a queued job back."""
        self._act("hold")

    def unhold(self) -> None:
        """Let a held job go."""
        self._act("unhold")

    def pause(self) -> None:
        """Stop its processes where they are; GPUs and their memory stay taken."""
        self._act("pause")

    def resume(self) -> None:
        """Let a paused job go on."""
        self._act("resume")

    def kill(self, signal: int | str) -> None:
        """Send a signal to its processes."""
        self._act("kill", signal=signal if isinstance(signal, str) else int(signal))

    def edit(self, command: str | None = None, **options: Unpack[Options]) -> None:
        """Change what is asked of a job that waits; None goes back to the default. Of a running one only `time`."""
        told = cast("Mapping[str, object]", options)
        with keywords.spoken():
            changes = edit_drafts.changed_by(keywords.read(told, EDIT_OPTIONS))
            for option in EDIT_OPTIONS:
                if keywords.name(option) in told and told[keywords.name(option)] is None:
                    changes[edit_drafts.FIELDS[option]] = None
            if command is not None:
                commands.check_text(command, "the command")
                changes["command"] = command
            if not changes:
                raise UserError("edit expected something to change, got nothing.")
            self._act("edit", changes=changes)

    def _act(self, verb: str, *, is_strict: bool = True, **said: object) -> None:
        acted = queries.act(_queue(), verb, [str(self._id)], **said)
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
def submit(command: Command = ..., *, dry_run: Literal[True], **options: Unpack[Options]) -> Rehearsed: ...
@overload
def submit(command: Command = ..., *, array: str | Sequence[int], **options: Unpack[Options]) -> list[Job]: ...
@overload
def submit(command: Command = ..., *, repeat: int, **options: Unpack[Options]) -> list[Job]: ...
@overload
def submit(command: Command = ..., **options: Unpack[Options]) -> Job: ...
def submit(command: Command = (), **options: object) -> Job | list[Job] | Rehearsed:
    """Queue a command, one string or its words, with the options of `dibs add` as keywords.

    With `script` its text is kept, and the command is its arguments. With `array` or `repeat` the jobs are returned in
    a list; with `dry_run` what would be queued, and nothing is.
    """
    with keywords.spoken():
        args, body = draft(command, options)
        if args.has(job_options.DRY_RUN):
            return cast("Rehearsed", _queue().post("/v1/jobs?dry_run=yes", body))
        found = _send(body)
    return found if args.has(job_options.ARRAY) or args.has(job_options.REPEAT) else found[0]


def draft(command: Command, options: Mapping[str, object]) -> tuple[Args, Body]:
    """Return the options that keywords mean, and the request that they make."""
    args = keywords.read(options, SUBMIT_OPTIONS)
    typed = replace(args, words=words(command, is_for_script=args.has(job_options.SCRIPT)))
    asking = script_files.read(typed, "submit", note)
    return asking.args, asking.body


def submit_many(lines: Iterable[str], **options: Unpack[Options]) -> list[Job]:
    """Queue one job for each command, all of them or none; `jobs` and `halt` are rules for all of them."""
    with keywords.spoken():
        args = keywords.read(cast("Mapping[str, object]", options), SUBMIT_OPTIONS)
        return _send(drafts.from_lines(args, (line.encode() for line in lines), "the list"))


def words(command: object, is_for_script: bool = False) -> tuple[str, ...]:
    """Return a command as one would type it after the options: one quoted string, or its words."""
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
            raise UserError(f"expected the words of a command to be texts, got {word!r}.")
        found.append(str(os.fspath(word)))
        commands.check_text(found[-1], "the command")
    if not is_for_script and commands.is_string(found):
        raise UserError(f'expected the words of a command, got one string in a list: ["{found[0]}"].', "Give it alone.")
    return tuple(found)


def _send(body: Body) -> list[Job]:
    answer = _queue().post("/v1/jobs", body)
    for each in answer["notes"]:
        note(each)
    return [Job(job_id) for job_id in answer["ids"]]


def note(text: str) -> None:
    """Say what the command line would say on stderr."""
    import logging

    logging.getLogger("dibs").warning("%s", text)


def job(id: int) -> Job:
    """Return the handle of a job; `NotFound` if there is none."""
    if isinstance(id, bool) or not isinstance(id, int):
        raise UserError(f"job expected the id of a job such as 12, got {id!r}.", 'Others: dibs.jobs("name:vit*").')
    return Job(id).refresh()


def jobs(*selectors: str | int) -> list[Job]:
    """Return the jobs that selectors mean, or without any the unfinished and the latest finished ones."""
    words = [str(word) for word in selectors]
    try:
        found = queries.overview(_queue(), words)["jobs"]
    except NotFound:
        if all(queries.is_id(word) for word in words):
            raise
        # No job is a good answer to a question about states and names.
        return []
    return [Job(each["id"]) for each in found]


def wait(awaited: Iterable[Job], timeout: float | None = None) -> None:
    """Return when all have finished; `TimedOut` after so many seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    words = [str(each.id) for each in awaited]
    if not words:
        return
    waited = job_waits.until_over(_queue(), words, until)
    if not waited["over"]:
        left = waited["total"] - waited["finished"]
        raise TimedOut(f"{left} of {waited['total']} jobs are not finished after {timeout:g} s.")


def gpus() -> list[Gpu]:
    """Return every GPU of this machine, with who holds it, as `dibs gpus --json` prints them."""
    answer: answers.Gpus = _queue().get("/v1/gpus")
    return answer["gpus"]


def _queue() -> Client:
    return connection.connect(os.environ)
