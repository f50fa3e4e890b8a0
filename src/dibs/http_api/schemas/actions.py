"""Actions on jobs: the request body, and the function of each verb.

Most verbs take a selection; `move` takes one job, `edit` a set of changes. `clean` is in `cleanup`, because
removing files takes longer than a turn may take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dibs.errors import NotFound, UserError
from dibs.http_api.schemas import job_answers, submission
from dibs.jobqueue import control, edits
from dibs.jobqueue.turns import Acted, Changed, Turn
from dibs.model import selectors
from dibs.model.jobs import JobId
from dibs.system import processes


class OneActionIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a verb on one job."""

    #: cancel: seconds between TERM and KILL.
    grace_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    #: retry: also jobs that succeeded.
    done: bool = False
    #: kill: a name with or without SIG, or a number.
    signal: str | int | None = None
    #: move: first, last, before or after; and the other job.
    to: str | None = None
    other: int | None = None
    #: edit: fields of a job as in a submission; null restores the default.
    changes: Any = None
    #: clean: delete checkpoints too; only report what would be deleted.
    checkpoints: bool = False
    dry_run: bool = False


class ActionIn(OneActionIn, forbid_unknown_fields=True, kw_only=True):
    """One verb for all selected jobs."""

    verb: str
    select: list[str]


class QueueIn(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to pause the queue."""

    paused: bool


class GroupIn(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a group; what is left out stays."""

    #: How many of its jobs may run at once; null: any number.
    at_once: Annotated[int, Meta(ge=1, le=10**6)] | msgspec.UnsetType | None = msgspec.UNSET
    paused: bool | msgspec.UnsetType = msgspec.UNSET


class DrainIn(msgspec.Struct, forbid_unknown_fields=True):
    """Why a GPU is drained."""

    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class StopIn(msgspec.Struct, forbid_unknown_fields=True):
    """How to stop the daemon; `drain: false` cancels a drain."""

    drain: bool | None = None


Verb = Callable[[Turn], Acted]


def prepare(verb: str, chosen: selectors.Selection, said: OneActionIn) -> Verb:
    """Check the arguments of a verb; return the function that runs in a turn."""
    if verb not in VERBS:
        raise NotFound(f'there is no verb "{verb}"; there are {", ".join([*VERBS, "clean"])}.')
    return VERBS[verb](chosen, said)


def _kill(chosen: selectors.Selection, said: OneActionIn) -> Verb:
    if said.signal is None:
        raise UserError("kill expected a signal such as USR1.", "To end jobs: dibs cancel")
    number = processes.signal_number(str(said.signal))
    if number is None:
        raise UserError(f'expected a signal such as USR1 or 10, got "{said.signal}".')
    return lambda turn: control.kill(turn, chosen, number)


def _move(chosen: selectors.Selection, said: OneActionIn) -> Verb:
    match chosen:
        case ((selectors.Ids(((first, last),)),),) if first == last:
            job_id = JobId(first)
        case _:
            raise UserError("move expected the id of one job.")
    other = None if said.other is None else JobId(said.other)

    def move(turn: Turn) -> Acted:
        note = edits.move(turn, job_id, said.to or "", other)
        return Acted([Changed(job_id, turn.store.job(job_id).word)], [], note)

    return move


def _edit(chosen: selectors.Selection, said: OneActionIn) -> Verb:
    change = submission.change(said.changes)
    return lambda turn: edits.edit(turn, chosen, change)


VERBS: dict[str, Callable[[selectors.Selection, OneActionIn], Verb]] = {
    "cancel": lambda chosen, said: control.Cancel(chosen, said.grace_s),
    "retry": lambda chosen, said: lambda turn: control.retry(turn, chosen, said.done),
    "hold": lambda chosen, said: lambda turn: control.hold(turn, chosen),
    "unhold": lambda chosen, said: lambda turn: control.unhold(turn, chosen),
    "pause": lambda chosen, said: lambda turn: control.pause(turn, chosen),
    "resume": lambda chosen, said: lambda turn: control.resume(turn, chosen),
    "kill": _kill,
    "move": _move,
    "edit": _edit,
}


def answer(acted: Acted) -> job_answers.ActionResult:
    """Return the answer for the result of a verb."""
    return job_answers.ActionResult(
        changed=[job_answers.ChangedJob(job.id, job.word) for job in acted.changed],
        unchanged=[job_answers.UnchangedJob(left.id, left.word, left.why) for left in acted.unchanged],
        note=acted.note or msgspec.UNSET,
    )
