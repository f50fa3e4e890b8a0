"""The actions of a user, one function per verb, named as it is typed.

Each runs in the queue thread's current transaction and appends what must be done after the commit to `turn.effects`.
Bad input raises an error before anything changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dibs.errors import UserError
from dibs.jobqueue import turns, validation
from dibs.jobqueue.turns import PAUSED, Acted, Changed, Left, Order, Turn
from dibs.jobqueue.validation import NO_RULES, Checked, Rules, Submission
from dibs.model import lifecycle, selectors
from dibs.model.fields import JobSpec
from dibs.model.jobs import ACTIVE, Cause, Job, JobId, Member, Outcome, State
from dibs.system import processes

#: States in which the command may exist and receive a signal.
SIGNALLED = (State.RUNNING, State.PAUSED, State.STOPPING)
FINISHED_WORDS = frozenset(outcome.value for outcome in Outcome)
#: Jobs cancelled together for which notices are sent; `notifications` would drop more of them anyway.
MOST_NOTICED = 200


@dataclass(frozen=True, slots=True)
class Submitted:
    """The assigned ids, and notes for the submitter."""

    ids: list[JobId]
    notes: list[str]
    #: Their batch; 0: no batch with rules.
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The jobs that would be queued, each with its submission, and notes for the submitter."""

    jobs: list[tuple[Submission, JobSpec]]
    notes: list[str]


def submit(turn: Turn, submissions: Sequence[Submission], rules: Rules = NO_RULES) -> Submitted:
    """Queue all of `submissions` or none; for a known key, return the jobs of the earlier submission."""
    if rules.key is not None and (known := turn.store.submission(rules.key)):
        return Submitted(known, [], _batch_of(turn, known))
    checked = validation.check(turn, submissions)
    count = sum(submission.count for submission in submissions)
    if rules.batch is not None and not turn.store.is_batch(rules.batch):
        raise UserError(f"batch expected the id of a batch, got {rules.batch}.")
    # All checks passed: from here on, things are stored.
    batch = _batch(turn, rules, count, count > 1 and _is_noticed(turn, submissions))
    spec = _kept(turn, submissions, checked, batch)
    ids = _queued(turn, submissions, spec)
    if rules.key is not None:
        turn.store.keep_key(rules.key, ids)
    turn.changed += ids
    first = ids[0]
    for one, submission in zip(spec, submissions, strict=True):
        own = range(first, first := JobId(first + submission.count))
        if one.after:
            turn.needs_check += map(JobId, own)
        if submission.is_held:
            turn.store.hold(((selectors.Ids(((own[0], own[-1]),)),),), turn.now)
    return Submitted(ids, checked.notes, batch)


def _kept(turn: Turn, submissions: Sequence[Submission], checked: Checked, batch: int) -> list[JobSpec]:
    """Return the spec of each submission; store each distinct environment and script once."""
    environ_ids: dict[bytes | None, int | None] = {None: None}
    script_ids: dict[bytes | None, int | None] = {None: None}
    spec = []
    for submission in submissions:
        if submission.environ not in environ_ids:
            environ_ids[submission.environ] = turn.store.keep_environ(submission.environ or b"")
        if submission.script not in script_ids:
            script_ids[submission.script] = turn.store.keep_script(submission.script or b"")
        spec.append(checked.spec(submission, environ_ids[submission.environ], script_ids[submission.script], batch))
    return spec


def _queued(turn: Turn, submissions: Sequence[Submission], spec: Sequence[JobSpec]) -> list[JobId]:
    """Queue the jobs in the given order; return their ids, which are consecutive."""
    if all(submission.members is None for submission in submissions):
        return turn.store.submit(spec, turn.now)
    many = zip(spec, submissions, strict=True)
    return [
        i
        for one, submission in many
        for i in turn.store.submit_alike(one, submission.members or [Member.of_spec(one)], turn.now)
    ]


def _batch(turn: Turn, rules: Rules, count: int, is_noticed: bool) -> int:
    """Return the batch of `count` jobs: an existing one, a new one, or 0 if they need none."""
    if rules.batch is not None:
        turn.store.grow_batch(rules.batch, count)
        return rules.batch
    has_rules = rules.at_once is not None or rules.halt_after is not None
    return turn.store.add_batch(rules.at_once, rules.halt_after, count) if has_rules or is_noticed else 0


def _batch_of(turn: Turn, ids: Sequence[JobId]) -> int:
    """Return the batch of jobs that were submitted together; 0 if they were deleted."""
    first = turn.store.select(((selectors.Ids(((ids[0], ids[-1]),)),),), turn.now, most=1)
    return first[0].spec.batch if first else 0


def rehearse(turn: Turn, submissions: Sequence[Submission]) -> Rehearsed:
    """Return what would be queued, or raise; change nothing."""
    checked = validation.check(turn, submissions)
    jobs = [
        (submission, spec) for submission in submissions for spec in _each(checked.spec(submission), submission.members)
    ]
    return Rehearsed(jobs, checked.notes)


def _each(spec: JobSpec, members: Sequence[Member] | None) -> Iterator[JobSpec]:
    if members is None:
        yield spec
    for member in members or ():
        yield member.spec_from(spec)


def _is_noticed(turn: Turn, submissions: Sequence[Submission]) -> bool:
    """Tell whether the end of these jobs causes a notice; a batch then sends one for all of them."""
    return bool(turn.settings.notify) or any(submission.spec.notify for submission in submissions)


@dataclass(frozen=True, slots=True)
class Cancel:
    """A request to cancel jobs, which is carried out even if it cannot be recorded."""

    chosen: selectors.Selection
    grace_s: float | None

    def __call__(self, turn: Turn) -> Acted:
        """Cancel the jobs and record it."""
        return cancel(turn, self.chosen, self.grace_s)

    def deliver(self, turn: Turn, why: str) -> Acted:
        """Stop the running jobs now, because of `why` without a record; the caller records it later."""
        active = turn.store.select(selectors.within(self.chosen, ACTIVE), turn.now)
        turn.effects += [Order(job, stop_order(turn, self.grace_s)) for job in active]
        ids = {job.id for job in active}
        left = [Left(i, w, _later(w)) for i, w in turns.pick_words(turn, self.chosen) if i not in ids]
        note = f"not recorded yet ({why}); it will be recorded as soon as possible"
        return Acted([Changed(job.id, State.STOPPING.value) for job in active], left, note)

    def of(self, acted: Acted) -> Cancel:
        """Return this request for the jobs of `acted` alone: later, a selector such as `running` matches others."""
        ids = [job.id for job in acted.changed] + [job.id for job in acted.unchanged]
        return Cancel(selectors.parse([selectors.ranges(ids)]), self.grace_s)


def _later(word: str) -> str:
    return f"it is already {word}" if word in FINISHED_WORDS else "it will be cancelled as soon as that can be recorded"


def cancel(turn: Turn, chosen: selectors.Selection, grace_s: float | None = None) -> Acted:
    """Cancel waiting jobs and stop running ones."""
    found = turns.pick_words(turn, chosen)
    active = turn.store.select(selectors.within(chosen, ACTIVE), turn.now)
    ended = turn.store.cancel_waiting(chosen, turn.now)
    turn.changed += [*ended.named, *ended.doomed]
    turn.needs_check += ended.waiters
    changed = [Changed(job_id, Outcome.CANCELLED.value) for job_id in ended.named]
    unchanged = [Left(i, word, f"it is already {word}") for i, word in found if word in FINISHED_WORDS]
    for job in active:
        if job.state is State.STOPPING and job.leaves_at is None:
            # A second cancel may shorten the grace.
            turn.effects.append(Order(job, stop_order(turn, grace_s)))
            unchanged.append(Left(job.id, job.word, "it is already being stopped"))
        else:
            changed.append(turns.changed(_cancel(turn, job, grace_s)))
    if changed:
        _end_searches(turn, [job.id for job in changed])
    if ended.named:
        # Last: an earlier failure undoes the cancellations, and then there is nothing to notify about.
        turn.finished_for_good += turn.store.noticed(bool(turn.settings.notify), MOST_NOTICED)
    return Acted(sorted(changed, key=lambda job: job.id), sorted(unchanged, key=lambda job: job.id))


def _end_searches(turn: Turn, ids: Sequence[JobId]) -> None:
    """End the searches all of whose unfinished runs were just cancelled: others in their place are not wanted."""
    for sweep_id in turn.store.trials_left():
        is_meant = any(job.spec.sweep_id == sweep_id for job in turn.store.jobs(ids))
        if is_meant and not turn.store.has_run_under_way(sweep_id) and turn.store.end_search(sweep_id, "cancelled"):
            close_batch(turn, turn.store.sweep(sweep_id).batch)


def close_batch(turn: Turn, batch: int) -> None:
    """Mark a batch as complete; if all its jobs have ended already, send the notice now."""
    ended = turn.store.close_batch(batch)
    if ended is not None and turn.store.batch_tally(batch).is_over:
        turn.finished_for_good.append(ended)


def _cancel(turn: Turn, job: Job, grace_s: float | None) -> Job:
    if not job.is_local and job.engine not in turn.remotes:
        turn.record(job, lifecycle.CancelAsked(turn.now))
        name = f", which calls it {job.engine_ref}" if job.engine_ref is not None else ""
        why = f"its engine {job.engine} is not in the settings any more; it may still run on {job.engine}{name}"
        return turn.record(turn.store.job(job.id), lifecycle.LostTrack(turn.now, why))
    engine = turn.engine if job.is_local else turn.remotes[job.engine]
    if job.state is State.STARTING and engine.give_up(job):
        # Given up before its command ran: no runner can begin it any more.
        job = turn.record(job, lifecycle.CancelAsked(turn.now))
        return turn.record(job, lifecycle.GivenUp(turn.now, "cancelled before the command ran"))
    job = turn.record(job, lifecycle.CancelAsked(turn.now))
    if not job.is_finished:
        turn.effects.append(Order(job, stop_order(turn, grace_s)))
    return job


def stop_order(turn: Turn, grace_s: float | None = None) -> str:
    """Return the order that stops a job; the default of the grace is a setting."""
    return f"stop {turn.settings.grace if grace_s is None else grace_s}"


def retry(turn: Turn, chosen: selectors.Selection, also_done: bool = False) -> Acted:
    """Queue a new attempt of finished jobs that did not succeed, or of all finished jobs."""
    found = turns.pick_words(turn, chosen)
    outcomes = [outcome for outcome in Outcome if also_done or outcome is not Outcome.DONE]
    retried = turn.store.retry(chosen, outcomes, turn.now)
    turn.changed += [*retried.named, *retried.revived]
    turn.needs_check += retried.needs_check
    turn.retry_alone += retried.retry_alone
    known = set(retried.named)
    unchanged = [
        Left(
            i,
            word,
            f"{_success(word)}; --done runs it again" if word in FINISHED_WORDS else f"it is {word}, not finished",
        )
        for i, word in found
        if i not in known
    ]
    return Acted([Changed(job_id, State.QUEUED.value) for job_id in retried.named], unchanged)


def _success(word: str) -> str:
    return "it succeeded" if word == Outcome.DONE.value else "it was stopped early"


def try_again(turn: Turn, job: Job) -> Job:
    """Queue a job again, with the dependent jobs that were cancelled because of it."""
    again = turn.record(job, lifecycle.RetryAsked(turn.now))
    if lifecycle.ran_out_sharing(job):
        turn.retry_alone.append(job.id)
    turn.needs_check.append(job.id)
    _revive(turn, job.id)
    return again


def _revive(turn: Turn, first: JobId) -> None:
    needs = [first]
    while needs:
        need = needs.pop()
        for dependant in turn.store.dependants(need):
            job = turn.store.job(dependant)
            if job.cause is Cause.DEPENDENCY:
                turn.record(job, lifecycle.NeedRetried(turn.now, need))
                turn.needs_check.append(job.id)
                needs.append(job.id)


def hold(turn: Turn, chosen: selectors.Selection) -> Acted:
    """Hold queued jobs, also those that wait on an engine of others."""
    found = turns.pick_words(turn, chosen)
    held = turn.store.hold(chosen, turn.now)
    taken_back: list[JobId] = []
    for job in turn.store.select(selectors.within(chosen, (State.STARTING,)), turn.now):
        remote = None if job.is_local else turn.remotes.get(job.engine)
        if remote is not None and remote.give_up(job):
            turn.record(job, lifecycle.GivenUp(turn.now, f"taken back from {job.engine}"))
            taken_back.append(job.id)
    if taken_back:
        # By their ids: they are queued now, and may have been selected as starting.
        held = sorted(held + turn.store.hold(selectors.parse([selectors.ranges(taken_back)]), turn.now))
    return _shifted(turn, found, held, State.HELD, "only a queued job can be held")


def unhold(turn: Turn, chosen: selectors.Selection) -> Acted:
    """Queue held jobs again."""
    found = turns.pick_words(turn, chosen)
    queued, unready = turn.store.unhold(chosen, turn.now)
    turn.needs_check += unready
    return _shifted(turn, found, queued, State.QUEUED, "it is not held")


def _shifted(turn: Turn, found: list[tuple[JobId, str]], moved: list[JobId], state: State, why_not: str) -> Acted:
    turn.changed += moved
    known = set(moved)
    unchanged = [Left(i, word, f"it is {word}: {why_not}") for i, word in found if i not in known]
    return Acted([Changed(job_id, state.value) for job_id in moved], unchanged)


def kill(turn: Turn, chosen: selectors.Selection, number: int) -> Acted:
    """Send a signal to all processes of running jobs."""

    def send(job: Job) -> Job:
        turn.store.note(job.id, turn.now, "Signalled", processes.signal_name(number))
        turn.effects.append(Order(job, f"signal {number}"))
        return job

    return _under_way(turn, chosen, SIGNALLED, send, "only running jobs can receive signals")


def pause(turn: Turn, chosen: selectors.Selection) -> Acted:
    """Stop the processes of running jobs; they keep their devices, and their time limit does not advance."""
    why_not = "only running jobs can be paused; use hold for waiting jobs"
    return _switch(turn, chosen, State.RUNNING, lifecycle.Paused(turn.now), "pause", why_not)


def resume(turn: Turn, chosen: selectors.Selection) -> Acted:
    """Continue the processes of paused jobs."""
    return _switch(turn, chosen, State.PAUSED, lifecycle.Resumed(turn.now), "resume", "it is not paused")


def _switch(
    turn: Turn, chosen: selectors.Selection, state: State, event: lifecycle.Event, line: str, why_not: str
) -> Acted:
    """Record an event for jobs in a state, and order the same of their runners."""

    def switch(job: Job) -> Job:
        moved = turn.record(job, event)
        turn.effects.append(Order(moved, line))
        return moved

    return _under_way(turn, chosen, (state,), switch, why_not)


def _under_way(
    turn: Turn, chosen: selectors.Selection, states: Iterable[State], do: Callable[[Job], Job], why_not: str
) -> Acted:
    """Call `do` for the chosen jobs that are in these states and have a runner; for the others, say why not."""
    changed, unchanged = [], []
    able = {job.id: job for job in turn.store.select(selectors.within(chosen, states), turn.now)}
    for job_id, word in turns.pick_words(turn, chosen):
        job = able.get(job_id)
        if job is None:
            unchanged.append(Left(job_id, word, f"it is {word}: {why_not}"))
        elif job.remark is not None:
            unchanged.append(Left(job_id, word, "its runner is gone, so this is not possible; cancel stops it"))
        else:
            changed.append(turns.changed(do(job)))
    return Acted(changed, unchanged)


def pause_queue(turn: Turn, is_paused: bool) -> None:
    """Start nothing new, or start jobs again."""
    turn.store.set_fact(PAUSED, "yes" if is_paused else "")
