"""Submit a sweep, for the first time or again: decide which of its points are queued.

The points arrive in parts, one turn per part. If the sender ends in between, nothing is lost: stored runs are found
again by their point.
"""

from __future__ import annotations

import enum
import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dibs.errors import Bug, UserError
from dibs.jobqueue import control, validation
from dibs.jobqueue.turns import Turn
from dibs.jobqueue.validation import Rules, Submission
from dibs.model import lifecycle, selectors
from dibs.model.fields import JobSpec
from dibs.model.jobs import Job, JobId, Member, Outcome, State
from dibs.sweeps import extension, orders, templates, values
from dibs.sweeps.records import Sweep, SweepSubmission
from dibs.sweeps.values import Data
from dibs.system import commands

#: Hold the rest of a sweep if the first N runs to end all end badly: then the command itself is wrong.
HALT_FIRST = 3
#: The most runs that are put first because they lie far apart.
MOST_PROBES = 8


class Fate(enum.Enum):
    """What happens to a point when its sweep is submitted; the values are the words that users see."""

    #: It had no run and gets one.
    NEW = "new"
    #: Its run ended badly and gets a new attempt.
    RETRIED = "retried"
    #: Its run was held because too many others failed, and is queued again.
    RELEASED = "released"
    #: Unchanged.
    DONE = "done"
    QUEUED = "queued"
    HELD = "held"
    RUNNING = "running"


@dataclass(slots=True)
class Added:
    """The number of points per fate, the jobs of calls in the order of their points, and notes for the submitter."""

    fates: Counter[Fate] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)


def fate(word: str | None, *, again: bool = False, has_job: bool = True, stay_held: bool = False) -> Fate:
    """Decide about a point from the state of its newest run; None: it never had one.

    `again`: run done points again. Without a job only the result is left, and there is nothing to retry.
    """
    if word is None:
        return Fate.NEW
    if word == State.QUEUED.value:
        return Fate.QUEUED
    if word == State.HELD.value:
        return Fate.HELD if stay_held else Fate.RELEASED
    if word == Outcome.DONE.value and not again:
        return Fate.DONE
    if word in {outcome.value for outcome in Outcome}:
        return Fate.RETRIED if has_job else Fate.NEW
    return Fate.RUNNING


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid sweep submission: the existing sweep of that name, if any, and notes for the submitter."""

    found: Sweep | None
    notes: list[str]


def check(turn: Turn, wanted: SweepSubmission, submission: Submission) -> Checked:
    """Refuse a sweep whose runs can never start on this machine, or whose name belongs to another command."""
    notes = validation.check(turn, [submission]).notes
    found = turn.store.find_sweep(wanted.project, wanted.name)
    if found is not None and (found.command, found.argv) != (wanted.command, wanted.argv):
        raise UserError(
            f'the sweep "{found.name}" has another command: {found.command[:200]}.', "Choose another name with --name."
        )
    return Checked(found, notes)


def begin(
    turn: Turn, wanted: SweepSubmission, rules: Rules, submission: Submission, *, is_of_calls: bool = False
) -> tuple[Sweep, list[str]]:
    """Find or create a sweep with the given options; return it with notes for the submitter.

    A program waits for each of its calls, so the first failures of a sweep of calls hold nothing.
    """
    checked = check(turn, wanted, submission)
    found = checked.found
    if found is None:
        batch = turn.store.add_batch(rules.at_once, rules.halt_after, 0)
        if rules.halt_after is None and not is_of_calls:
            turn.store.set_rule(batch, "halt_first", HALT_FIRST)
        turn.store.open_batch(batch, turn.now)
        sweep_id = turn.store.add_sweep(wanted, batch, turn.now)
        turn.store.keep_search(sweep_id, wanted.search)
        return turn.store.sweep(sweep_id), checked.notes
    turn.store.update_sweep(found.id, wanted)
    turn.store.keep_search(found.id, wanted.search)
    turn.store.open_batch(found.batch, turn.now)
    if rules.at_once is not None:
        turn.store.set_rule(found.batch, "at_once", rules.at_once)
    if rules.halt_after is not None:
        turn.store.set_rule(found.batch, "halt_first", None)
        turn.store.set_rule(found.batch, "halt_after", rules.halt_after)
    return turn.store.sweep(found.id), checked.notes


def add(
    turn: Turn,
    sweep_id: int,
    submission: Submission,
    members: Sequence[Member],
    *,
    again: bool = False,
    is_last: bool = True,
) -> Added:
    """Queue the points that are neither done nor queued nor running; all or nothing.

    No notice says that a sweep has ended before its last points have arrived.
    """
    sweep = turn.store.sweep(sweep_id)
    checked = validation.check(turn, [replace(submission, members=members)])
    common = common_spec(turn, sweep, submission, checked)
    check_folders(turn, sweep, members)
    added = Added(notes=checked.notes)
    known = turn.store.runs_of_points(sweep.id, [_key(one) for one in members])
    new: dict[str, Member] = {}
    for one in members:
        job_id, word = known.get(_key(one), (None, None))
        if _key(one) in new:
            # The same point twice in one part: the first one is queued.
            word = State.QUEUED.value
        decided = fate(word, again=again, has_job=job_id is not None, stay_held=submission.is_held)
        added.fates[decided] += 1
        if decided is Fate.NEW:
            new[_key(one)] = one
        elif decided is Fate.RETRIED and job_id is not None:
            retry(turn, job_id, one.spec_from(common))
        elif decided is Fate.RELEASED and job_id is not None:
            let_go(turn, job_id)
    if new:
        is_first = turn.store.next_index(sweep.id) == 0
        ids = submit(turn, common, list(new.values()), submission.is_held)
        if is_first:
            _probe(turn, ids, list(new.values()))
    if is_last:
        control.close_batch(turn, sweep.batch)
    return added


def add_calls(
    turn: Turn, sweep_id: int, submission: Submission, members: Sequence[Member], key: str, *, again: bool = False
) -> Added:
    """Queue calls from Python as runs; return the job of each, which for a point that is done is its earlier one.

    Their files are named by `key`, which also marks a repeated request: that one changes nothing.
    """
    sweep = turn.store.sweep(sweep_id)
    checked = validation.check(turn, [replace(submission, members=members)])
    common = common_spec(turn, sweep, submission, checked)
    added = Added(notes=checked.notes)
    known = turn.store.runs_of_points(sweep.id, [_key(one) for one in members])
    jobs = {point: job_id for point, (job_id, _) in known.items() if job_id is not None}
    if not turn.store.submission(key):
        # Without its job a point has no value that could be returned: then it is new.
        new = list({_key(one): one for one in members if _key(one) not in jobs}.values())
        for one in {_key(one): one for one in members}.values():
            if job_id := jobs.get(_key(one)):
                added.fates[_again(turn, job_id, one, common, again=again, stay_held=submission.is_held)] += 1
        if new:
            added.fates[Fate.NEW] += len(new)
            first = turn.store.next_index(sweep.id)
            numbered = [one._replace(number=index) for index, one in enumerate(new, first)]
            jobs |= zip(map(_key, new), submit(turn, common, numbered, submission.is_held), strict=True)
        # The file is kept while any job in between is.
        turn.store.keep_key(key, sorted(jobs.values()))
        control.close_batch(turn, sweep.batch)
    added.jobs = [turn.store.job(jobs[_key(one)]) for one in members]
    return added


def _again(turn: Turn, job_id: JobId, one: Member, common: JobSpec, *, again: bool, stay_held: bool) -> Fate:
    """Submit the call of a point that has a job again, if its state asks for it."""
    job = turn.store.job(job_id)
    decided = fate(job.word, again=again, stay_held=stay_held)
    if decided is Fate.RETRIED:
        retry(turn, job_id, one._replace(number=job.spec.index).spec_from(common))
    elif decided is Fate.RELEASED:
        let_go(turn, job_id)
    return decided


def common_spec(turn: Turn, sweep: Sweep, submission: Submission, checked: validation.Checked) -> JobSpec:
    """Return what all runs of a submission have in common; stores their environment."""
    environ_id = None if submission.environ is None else turn.store.keep_environ(submission.environ)
    return replace(
        checked.spec(submission, environ_id, batch=sweep.batch),
        sweep_id=sweep.id,
        sweep=sweep.name,
        project=sweep.project,
    )


def extend(turn: Turn, sweep_id: int, like: JobId, changes: Sequence[Mapping[str, Data]]) -> Counter[str]:
    """Queue runs like one of the sweep, with its environment and folder, but with some other parameters.

    Returns how many are new; a point that already has a run is not queued, whatever its outcome.
    """
    sweep, model = turn.store.sweep(sweep_id), turn.store.job(like).spec
    if model.sweep_id != sweep.id:
        raise UserError(f'expected a run of the sweep "{sweep.name}", got job {like}.')
    first = turn.store.next_index(sweep.id)
    written = extension.further(sweep, model, changes, first)
    told = [member(sweep, model.cwd, one.point.index, one.point.data(), one.command, one.folder) for one in written]
    known = turn.store.runs_of_points(sweep.id, [_key(one) for one in told])
    new: dict[str, Member] = {}
    for one in told:
        if _key(one) not in known:
            new.setdefault(_key(one), one)
    if new:
        check_folders(turn, sweep, list(new.values()))
        # The conditions that the model waited for are already met.
        common = replace(model, after=(), begin_at=None, no_wait=False, environ_from=f"job {like}")
        turn.store.open_batch(sweep.batch, turn.now)
        submit(turn, common, list(new.values()), is_held=False)
        control.close_batch(turn, sweep.batch)
    return Counter({"new": len(new), "known": len(told) - len(new)})


def call(argv: Sequence[str], name: str, command: str, params: dict[str, Any], function: str) -> Member:
    """Return a call as a run of a sweep; calls of different functions are different points."""
    for text in (*argv, name, command):
        commands.check_text(text)
    point = values.identity(params) + (f" {function}" if function else "")
    return Member(command, name, argv=tuple(argv), point=point, params=json.dumps(params, ensure_ascii=False))


def member(
    sweep: Sweep, cwd: str, index: int, params: dict[str, Any], command: str | Sequence[str], folder: str | None
) -> Member:
    """Return a run of a sweep; refuse a command that cannot run."""
    argv = None if isinstance(command, str) else tuple(command)
    if isinstance(command, str):
        validation.check_line(command)
    elif not argv:
        raise UserError(f"point {index}: expected a command, got none.")
    for text in (*(argv or ()), folder or ""):
        commands.check_text(text)
    return Member(
        command if isinstance(command, str) else shlex.join(command),
        f"{sweep.name}-{index}",
        index,
        None,
        argv,
        values.identity(params),
        json.dumps(params, ensure_ascii=False),
        None if folder is None else os.path.normpath(os.path.join(cwd, folder)),
    )


def check_folders(turn: Turn, sweep: Sweep, members: Sequence[Member]) -> None:
    """Refuse two runs with one folder: the second would overwrite the results of the first."""
    folders = {one.folder for one in members if one.folder is not None}
    found = turn.store.runs_in_folders(sweep.id, folders)
    runs = {folder: (point, f"job {job_id}") for folder, point, job_id in found}
    for one in members:
        if one.folder is None:
            continue
        point, who = runs.setdefault(one.folder, (_key(one), f"point {one.number}"))
        if point != _key(one):
            raise UserError(
                f"point {one.number} has the same folder as {who}, which has other parameters: {one.folder}.",
                templates.SAME_FOLDER,
            )


def _key(member: Member) -> str:
    if member.point is None:
        raise Bug("a run without a point.")
    return member.point


def let_go(turn: Turn, job_id: JobId) -> None:
    """Queue a run that is held."""
    turn.record(turn.store.job(job_id), lifecycle.UnholdAsked(turn.now), "its sweep was submitted again")
    turn.needs_check.append(job_id)


def retry(turn: Turn, job_id: JobId, spec: JobSpec) -> None:
    """Queue a new attempt with the new options: a longer time limit should help the run that needed it."""
    job = turn.store.job(job_id)
    if job.spec != spec:
        turn.store.edit(job, spec, turn.now, "its sweep was submitted again")
    control.try_again(turn, turn.store.job(job_id))


def _probe(turn: Turn, ids: Sequence[JobId], members: Sequence[Member]) -> None:
    """Let runs that lie far apart start first, as many as can run at once.

    If the first ones all fail, it is then the command, and not one corner of the space.
    """
    points = [json.loads(one.params or "{}") for one in members]
    count = max(HALT_FIRST, min(len(turn.inventory.devices), MOST_PROBES))
    turn.store.put_first([ids[place] for place in orders.spread(points, count)], ids[0])


def submit(turn: Turn, spec: JobSpec, members: list[Member], is_held: bool) -> list[JobId]:
    """Queue new runs that have `spec` in common; return their ids."""
    ids = turn.store.submit_alike(spec, members, turn.now)
    turn.store.grow_batch(spec.batch, len(ids))
    turn.changed += ids
    if spec.after:
        turn.needs_check += ids
    if is_held:
        turn.store.hold(((selectors.Ids(((ids[0], ids[-1]),)),),), turn.now)
    return ids
