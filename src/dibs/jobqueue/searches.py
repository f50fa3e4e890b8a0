"""Searches in the queue: add their trials, end them, and stop runs early.

`daemon.search_driver` finds the points. Everything is decided again here, in the turn that stores it: meanwhile a user
may have cancelled the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dibs.jobqueue import control, sweeps, validation
from dibs.jobqueue.sweeps import Added, Fate
from dibs.jobqueue.turns import Order, Turn
from dibs.jobqueue.validation import Submission
from dibs.model import lifecycle
from dibs.model.devices import Device, Inventory
from dibs.model.jobs import Cause, JobId, Member, Outcome, Request, State
from dibs.scheduling.views import Policy
from dibs.store.query_results import RunsSince
from dibs.store.writer import Reader
from dibs.sweeps import templates
from dibs.sweeps.grid import Point
from dibs.sweeps.records import Run, Sweep
from dibs.sweeps.search.early_stop import Stop

#: Runs in one question to the store.
PAGE = 5000


def slots(request: Request, inventory: Inventory, policy: Policy) -> int:
    """Return how many runs with this request the machine could run at once, if nobody else used it."""
    if not request.gpus:
        return max(1, policy.cpu_slots // max(1, request.cpus))
    devices = [device for device in inventory.devices if not request.gpu_ids or device.id in request.gpu_ids]
    shares = sorted((_sharers(device, request, policy) for device in devices), reverse=True)
    most = min(len(inventory.devices) - policy.keep_free, len(shares) if policy.max_gpus is None else policy.max_gpus)
    return max(1, sum(shares[: max(0, most)]) // request.gpus)


def _sharers(device: Device, request: Request, policy: Policy) -> int:
    if not request.vram:
        return 1
    return min(max(1, (device.memory_total or 0) // request.vram), policy.most_sharers)


def runs(reader: Reader, sweep_id: int) -> list[Run]:
    """Return all runs of a search, with the results of deleted jobs."""
    found: list[Run] = []
    since: RunsSince | None = RunsSince()
    while since is not None:
        part, since = reader.runs(sweep_id, since, PAGE)
        found += part
    return found


def resume(turn: Turn, sweep_id: int, submission: Submission) -> Added:
    """Let the runs of a search that was submitted again have the new options; retry those that ended badly."""
    sweep = turn.store.sweep(sweep_id)
    checked = validation.check(turn, [submission])
    common = sweeps.common_spec(turn, sweep, submission, checked)
    added = Added(Counter(), checked.notes)
    for run in runs(turn.store, sweep_id):
        word = Outcome.DONE.value if run.cause == Cause.EARLY.value else run.word
        decided = sweeps.fate(word, stay_held=submission.is_held)
        # A trial whose job was deleted keeps its result, however it ended.
        added.fates[Fate.DONE if run.job is None else decided] += 1
        if run.job is None or decided is Fate.DONE or decided is Fate.RUNNING:
            continue
        own = Member.of_spec(turn.store.job(run.job).spec).spec_from(common)
        if decided is Fate.RETRIED:
            sweeps.retry(turn, run.job, own)
            continue
        if turn.store.job(run.job).spec != own:
            turn.store.edit(turn.store.job(run.job), own, turn.now, "its sweep was submitted again")
        if decided is Fate.RELEASED:
            sweeps.let_go(turn, run.job)
    return added


def add(turn: Turn, sweep_id: int, points: Sequence[Point], submission: Submission | None = None) -> int:
    """Queue a trial at each of these points, like the newest one or as a submission says; return their number."""
    sweep = turn.store.sweep(sweep_id)
    left = turn.store.trials_left().get(sweep_id, 0)
    if submission is not None:
        common = sweeps.common_spec(turn, sweep, submission, validation.check(turn, [submission]))
    elif (newest := turn.store.newest_run(sweep_id)) is None:
        end(turn, sweep_id, "all its jobs were deleted")
        return 0
    else:
        # The conditions that it waited for are met.
        common = replace(newest.spec, after=(), begin_at=None, no_wait=False)
    new = list(_members(turn, sweep, common.cwd, points))[:left]
    if new:
        sweeps.check_folders(turn, sweep, new)
        sweeps.submit(turn, common, new, is_held=submission is not None and submission.is_held)
    if len(new) == left:
        control.close_batch(turn, sweep.batch)
    return len(new)


def _members(turn: Turn, sweep: Sweep, cwd: str, points: Sequence[Point]) -> Iterator[Member]:
    """Yield the runs of points that have none."""
    writer = templates.Writer(templates.parse(sweep.argv or sweep.command), sweep.folder)
    known = turn.store.runs_of_points(sweep.id, [point.key for point in points])
    first = turn.store.next_index(sweep.id)
    for index, point in enumerate((one for one in points if one.key not in known), first):
        own = point._replace(index=index)
        yield sweeps.member(sweep, cwd, index, own.data(), writer.command(own), writer.folder(own))


def end(turn: Turn, sweep_id: int, why: str) -> None:
    """Let a search take no more trials."""
    if not turn.store.end_search(sweep_id, why):
        return
    control.close_batch(turn, turn.store.sweep(sweep_id).batch)
    newest = turn.store.newest_run(sweep_id)
    # Waiters for the sweep look again.
    turn.changed += [] if newest is None else [newest.id]


def stop_early(turn: Turn, stops: Sequence[Stop]) -> None:
    """Stop runs that a rule of their sweep gave up; the intent is stored before the order is sent."""
    for stop in stops:
        job = turn.store.job(JobId(stop.run))
        if job.state is State.RUNNING and job.remark is None:
            stopped = turn.record(job, lifecycle.StoppedEarly(turn.now, stop.why), stop.why)
            turn.effects.append(Order(stopped, control.stop_order(turn)))
