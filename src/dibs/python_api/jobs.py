"""Job handles: `dibs.Job`, and `dibs.job` which returns one.

A handle is a job id and the last answer about it. Each question is a separate request, so handles work from threads,
after a fork, inside a job, and across daemon restarts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar, Unpack, cast

from dibs.client import answers, connection, job_state, job_waits, queries
from dibs.client.answers import Gpu, WholeJob
from dibs.client.answers import Job as JobAnswer
from dibs.client.connection import Client
from dibs.errors import Conflict, JobFailed, TimedOut, UserError
from dibs.python_api import display, keywords, signatures
from dibs.python_api.keywords import Options
from dibs.submission import drafts
from dibs.system import commands

#: What a verb returns.
R = TypeVar("R")
#: The options of `edit`.
EDIT_OPTIONS = tuple(drafts.EDITABLE)
#: What a wait does when only held jobs remain.
Held = Literal["leave", "wait"]
#: Seconds for which a thread waits on behalf of an event loop, which cannot cancel it.
PART_S = 2.0


class JobVerbs(Generic[R]):
    """What can be done to one job, or to several with one request."""

    if TYPE_CHECKING:

        def _act(self, verb: str, **fields: object) -> R: ...

    def cancel(self, *, grace: float | None = None) -> R:
        """Cancel; a running job gets TERM, and KILL after `grace` seconds. No effect on a finished job."""
        return self._act("cancel", grace_s=grace)

    def retry(self, *, done: bool = False) -> R:
        """Queue a new attempt after a failure; with `done` also after a success."""
        return self._act("retry", done=done)

    def hold(self) -> R:
        """Hold queued jobs."""
        return self._act("hold")

    def unhold(self) -> R:
        """Release held jobs."""
        return self._act("unhold")

    def pause(self) -> R:
        """Suspend running jobs; they keep their GPUs and their memory."""
        return self._act("pause")

    def resume(self) -> R:
        """Resume paused jobs."""
        return self._act("resume")


class Job(JobVerbs[None]):
    """A job of the queue, by its id.

    Attributes that change (`state`, `exit_code`, ...) are fetched on each access until the job is finished; after that
    only `refresh` and the verbs fetch it again. `data` is the last answer. `await job` waits without blocking an event
    loop.

    >>> job = dibs.submit("echo lr 0.1; exit 3", gpus=0, name="vit")
    >>> job.wait()
    'failed'
    >>> job.exit_code, job.cause, job.log()
    (3, 'exit', 'lr 0.1\\n')
    >>> job
    <Job ... vit failed (exit code 3)>
    >>> job.retry()
    >>> job.wait(timeout=600)
    'failed'
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

    def forget(self) -> None:
        """Drop the last answer, so that the next attribute fetches the job again."""
        self._seen = None

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
        """Return why it did not succeed: exit, oom, gpu, signal, timeout, start, dependency, lost or early."""
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

    def wait(self, timeout: float | None = None, *, check: bool = False, held: Held = "leave") -> str:
        """Wait until it finishes and return its state; raise `TimedOut` after `timeout` seconds.

        With `check` raise `JobFailed`, with the end of its output, unless it succeeded. If it is held raise
        `errors.OnlyHeld`, or, with `held="wait"`, wait until it continues.
        """
        wait([self], timeout, held=held)
        state = self.refresh().state
        if check and state != "done":
            tail = self.log(5).strip()
            how = f"{state} ({self.cause})" if self.cause else state
            raise JobFailed(f"job {self._id} is {how}.", f"Its last lines: {tail}" if tail else "")
        return state

    def __await__(self) -> Generator[object, None, str]:
        """Wait without blocking the event loop: `state = await job`."""
        return self._wait_in_parts().__await__()

    async def _wait_in_parts(self) -> str:
        import asyncio

        # A thread cannot be cancelled, so it never waits for long.
        while True:
            with suppress(TimedOut):
                return await asyncio.to_thread(self.wait, PART_S)

    def kill(self, signal: int | str) -> None:
        """Send a signal to its processes."""
        self._act("kill", signal=signal if isinstance(signal, str) else int(signal))

    @signatures.describe(EDIT_OPTIONS)
    def edit(self, command: str | None = None, **options: Unpack[Options]) -> None:
        """Change a waiting job, or `time` of a running one; None restores the default.

        >>> job = dibs.submit("true", gpus=1, hold=True)
        >>> job.edit(gpus=0, name="small")
        >>> job.cancel()
        """
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
                raise UserError("edit expected at least one change, got none.")
            self._act("edit", changes=changes)

    def _act(self, verb: str, **fields: object) -> None:
        acted = queries.act(client(), verb, [str(self._id)], **fields)
        self.forget()
        for left in acted["unchanged"] if verb != "cancel" else []:
            raise Conflict(f"job {left['id']} cannot be changed: {left['why'].rstrip('.')}.")

    def __repr__(self) -> str:
        found = self._answer_to_show()
        return display.job_line(found) if found else f"<Job {self._id}>"

    def _repr_html_(self) -> str:
        found = self._answer_to_show()
        return display.html_table(display.JOB_TITLES, [display.job_row(found)] if found else [[self._id]])

    def _answer_to_show(self) -> JobAnswer | None:
        """Return the present state of the job, or else the last answer; see `display`."""
        if self._seen is None or not job_state.is_finished(self._seen):
            self._seen = display.ask(f"/v1/jobs/{self._id}") or self._seen
        return self._seen

    def __eq__(self, other: object) -> bool:
        return self._id == other._id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._id)


def note(text: str) -> None:
    """Log a note that the command line prints on stderr."""
    import logging

    logging.getLogger("dibs").warning("%s", text)


def job(id: int) -> Job:
    """Return the handle of a job; raise `errors.NotFound` if there is none.

    >>> dibs.job(1).id
    1
    """
    if isinstance(id, bool) or not isinstance(id, int):
        raise UserError(f"job expected the id of a job such as 12, got {id!r}.", 'Others: dibs.jobs("name:vit*").')
    return Job(id).refresh()


def wait(awaited: Iterable[Job], timeout: float | None = None, *, held: Held = "leave") -> None:
    """Wait until all jobs finish; raise `TimedOut` after `timeout` seconds.

    As soon as only held jobs remain raise `errors.OnlyHeld`; with `held="wait"` wait until they continue.
    """
    if words := [str(each.id) for each in awaited]:
        wait_selected(words, timeout, "jobs", held)


def wait_selected(words: Sequence[str], timeout: float | None, what: str, held: Held) -> None:
    """Wait until all jobs of selectors finish; an error calls them `what`."""
    if held not in ("leave", "wait"):
        raise UserError(f'expected held="leave" or held="wait", got {held!r}.')
    until = None if timeout is None else time.monotonic() + timeout
    waited = job_waits.until_over(client(), words, until, leave_held=held == "leave")
    job_waits.require_unheld(waited)
    if not waited["over"]:
        left = waited["total"] - waited["finished"]
        raise TimedOut(f"{left} of {waited['total']} {what} are not finished after {timeout:g} s.")


class GpuList(list[Gpu]):
    """The GPUs of this machine; a notebook shows them as a table."""

    def __repr__(self) -> str:
        return display.lines([display.gpu_line(gpu) for gpu in self])

    def _repr_html_(self) -> str:
        return display.html_table(display.GPU_TITLES, map(display.gpu_row, self))


def gpus() -> GpuList:
    """Return all GPUs of this machine and their holders, as `dibs gpus --json` prints them.

    >>> [gpu["index"] for gpu in dibs.gpus()]
    [0, 1, 2, 3]
    """
    answer: answers.Gpus = client().get("/v1/gpus")
    return GpuList(answer["gpus"])


def slots(asked: object) -> int:
    """Return how many jobs that ask for this number of GPUs the machine can run at a time."""
    found = gpus()
    each = int(str(1 if asked is None else asked).partition(":")[0])
    return max(1, len(found) // each) if each and found else os.cpu_count() or 1


def client() -> Client:
    """Return a client of this user's daemon."""
    return connection.connect(os.environ)
