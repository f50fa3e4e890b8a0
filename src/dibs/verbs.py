"""What a user asks, one function a verb, named as it is typed.

Each runs inside the core thread's present transaction and leaves what must be done after the commit in `turn.effects`.
Bad input raises before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dibs import commands, environs, lifecycle, processes, refusals, selection, templates, turns, units
from dibs.errors import MachineError, UserError
from dibs.jobs import ACTIVE, After, Asked, Cause, Job, JobId, Member, Outcome, Request, State, When, default_name
from dibs.turns import PAUSED, Acted, Changed, Left, Order, Turn, pick

#: Jobs whose command may be there to hear a signal.
SIGNALLED = (State.RUNNING, State.PAUSED, State.STOPPING)
FINISHED_WORDS = frozenset(outcome.value for outcome in Outcome)
#: Jobs cancelled together of which somebody may hear: more notices would be left out anyway.
MOST_NOTICED = 200
#: Jobs in one submission.
MOST_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class Wish:
    """One job, or many that are alike, as a door hands it in: devices still by the words the user typed."""

    asked: Asked
    #: None: one GPU, or none on a machine without any.
    gpus: int | None = None
    gpu_ids: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    gpu_type: str | None = None
    cpus: int = 0
    mem: int = 0
    time_limit_s: float | None = None
    vram: int = 0
    ignore_foreign: bool = False
    #: Selectors of the jobs it waits for, and for what end.
    after: tuple[tuple[str, When], ...] = ()
    #: The captured environment; None: the daemon's own.
    environ: bytes | None = None
    #: The text of a script, whose file and arguments are the words of the command.
    script: bytes | None = None
    is_held: bool = False
    #: The jobs it stands for, if it stands for many that are alike but for this; None: for one.
    members: Sequence[Member] | None = None

    @property
    def count(self) -> int:
        """Return for how many jobs it stands."""
        return 1 if self.members is None else len(self.members)

    @property
    def shape(self) -> tuple[object, ...]:
        """Return all that makes up its request."""
        devices = self.gpus, self.gpu_ids, self.prefer, self.gpu_type, self.vram, self.ignore_foreign
        return *devices, self.cpus, self.mem, self.time_limit_s


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for jobs that are submitted together."""

    #: How many may be under way at once.
    at_once: int | None = None
    #: After so many bad ends the rest is held.
    halt_after: int | None = None
    #: An earlier batch that they join, with the rules that it has.
    batch: int | None = None
    #: The submitter's own name for this submission: said again, it means the same jobs.
    key: str | None = None


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Submitted:
    """The ids given, and what the submitter should know."""

    ids: list[JobId]
    notes: list[str]
    #: The batch they are in; 0: none with rules.
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What would be queued, each job with the wish it comes from, and what the submitter should know."""

    jobs: list[tuple[Wish, Asked]]
    notes: list[str]


def submit(turn: Turn, wishes: Sequence[Wish], rules: Rules = NO_RULES) -> Submitted:
    """Queue all of `wishes`, or none of them; with a key that was used before, say what came of them then."""
    if rules.key is not None and (known := turn.store.submission(rules.key)):
        return Submitted(known, [], _batch_of(turn, known))
    checked = check(turn, wishes)
    count = sum(wish.count for wish in wishes)
    if rules.batch is not None and not turn.store.is_batch(rules.batch):
        raise UserError(f"batch expected the id of a batch, got {rules.batch}.")
    # Everything is possible: from here on it is kept.
    batch = _batch(turn, rules, count, count > 1 and _is_noticed(turn, wishes))
    environ_ids: dict[bytes | None, int | None] = {None: None}
    script_ids: dict[bytes | None, int | None] = {None: None}
    asked = []
    for wish in wishes:
        if wish.environ not in environ_ids:
            environ_ids[wish.environ] = turn.store.keep_environ(wish.environ or b"")
        if wish.script not in script_ids:
            script_ids[wish.script] = turn.store.keep_script(wish.script or b"")
        asked.append(checked.asked(wish, environ_ids[wish.environ], script_ids[wish.script], batch))
    if all(wish.members is None for wish in wishes):
        ids = turn.store.submit(asked, turn.now)
    else:
        many = zip(asked, wishes, strict=True)
        ids = [i for one, wish in many for i in turn.store.submit_alike(one, wish.members or [_alone(one)], turn.now)]
    if rules.key is not None:
        turn.store.keep_key(rules.key, ids)
    turn.changed.update(ids)
    first = ids[0]
    for one, wish in zip(asked, wishes, strict=True):
        own = range(first, first := JobId(first + wish.count))
        if one.after:
            turn.unsure += map(JobId, own)
        if wish.is_held:
            turn.store.hold(((selection.Ids(((own[0], own[-1]),)),),), turn.now)
    return Submitted(ids, checked.notes, batch)


def _batch(turn: Turn, rules: Rules, count: int, is_noticed: bool) -> int:
    """Return the batch of so many jobs: an earlier one, a new one, or 0 where no rule makes them one."""
    if rules.batch is not None:
        turn.store.grow_batch(rules.batch, count)
        return rules.batch
    has_rules = rules.at_once is not None or rules.halt_after is not None
    return turn.store.add_batch(rules.at_once, rules.halt_after, count) if has_rules or is_noticed else 0


def _batch_of(turn: Turn, ids: Sequence[JobId]) -> int:
    """Return the batch of jobs that were submitted together; of those that are forgotten, none."""
    first = turn.store.select(((selection.Ids(((ids[0], ids[-1]),)),),), turn.now, most=1)
    return first[0].asked.batch if first else 0


def rehearse(turn: Turn, wishes: Sequence[Wish]) -> Rehearsed:
    """Say what would be queued, or why nothing could be; nothing is changed."""
    checked = check(turn, wishes)
    jobs = [(wish, asked) for wish in wishes for asked in _each(checked.asked(wish), wish.members)]
    return Rehearsed(jobs, checked.notes)


def _alone(asked: Asked) -> Member:
    return Member(asked.command, asked.name, asked.index, asked.place)


def _each(asked: Asked, members: Sequence[Member] | None) -> Iterator[Asked]:
    """Return what each of the jobs asks for."""
    if members is None:
        yield asked
    for member in members or ():
        yield member.of(asked)


@dataclass(frozen=True, slots=True)
class Checked:
    """What wishes come to on this machine, each distinct part once: there may be a hundred thousand of them."""

    requests: dict[tuple[object, ...], Request] = field(default_factory=dict)
    needs: dict[tuple[tuple[str, When], ...], tuple[After, ...]] = field(default_factory=lambda: {(): ()})
    notes: list[str] = field(default_factory=list)

    def asked(self, wish: Wish, environ_id: int | None = None, script_id: int | None = None, batch: int = 0) -> Asked:
        """Return what a wish asks for, with the ids of what was kept for it."""
        return replace(
            wish.asked,
            request=self.requests[wish.shape],
            name=wish.asked.name or default_name(wish.asked.command, wish.asked.argv),
            after=self.needs[wish.after],
            environ_id=environ_id,
            script_id=script_id,
            batch=batch,
        )


def check(turn: Turn, wishes: Sequence[Wish]) -> Checked:
    """Refuse what this machine could never run; return what the wishes come to on it."""
    count = sum(wish.count for wish in wishes)
    if not count:
        raise UserError("expected at least one job, got none.")
    if count > MOST_AT_ONCE:
        raise UserError(f"expected at most {MOST_AT_ONCE:,} jobs at once, got {count:,}.", "Submit them in parts.")
    checked = Checked()
    for wish in wishes:
        if wish.shape not in checked.requests:
            checked.requests[wish.shape] = request_of(wish, turn, checked.notes)
        if wish.after not in checked.needs:
            checked.needs[wish.after] = needs_of(turn, wish.after)
    return checked


def _is_noticed(turn: Turn, wishes: Sequence[Wish]) -> bool:
    """Tell whether somebody wants to hear of the end of these jobs: then of all of them once, not of each."""
    return bool(turn.engine.settings.notify) or any(wish.asked.notify for wish in wishes)


def needs_of(turn: Turn, words: tuple[tuple[str, When], ...]) -> tuple[After, ...]:
    """Return the jobs that the selectors of `--after` and its kin mean now."""
    return tuple(
        dict.fromkeys(After(job.id, when) for word, when in words for job in pick(turn, selection.parse([word])))
    )


def request_of(wish: Wish, turn: Turn, notes: list[str], who: str = "the job") -> Request:
    """Return what a wish of `who` asks of this machine; what it can never give is refused."""
    inventory = turn.inventory
    if (wish.gpu_ids or wish.prefer) and not inventory.is_known:
        raise MachineError(f"the GPUs are not known yet ({inventory.problem or 'the driver has not answered'}).")
    gpu_ids = refusals.resolve(wish.gpu_ids, "--gpu-ids", inventory)
    prefer = refusals.resolve(wish.prefer, "--prefer", inventory)
    if gpu_ids and wish.gpus is not None and wish.gpus != len(gpu_ids):
        raise UserError(f"--gpus {wish.gpus} contradicts --gpu-ids, which names {len(gpu_ids)}.", "Leave --gpus out.")
    gpus = len(gpu_ids) if gpu_ids else wish.gpus
    if gpus is None:
        has_none = inventory.is_known and not inventory.devices
        gpus = 0 if has_none and not wish.gpu_type else 1
        if gpus == 0:
            notes.append("this machine has no GPU: the job asks for none (pretend ones: DIBS_DEVICES=fake:4)")
    if wish.asked.vram_enforce and not wish.vram:
        raise UserError("--vram-enforce expected --vram beside it, got none.", "Say how much, as in --vram 18G.")
    kind = (tuple(sorted(gpu_ids)), prefer, wish.gpu_type) if gpus else ((), (), None)
    use = (wish.vram, wish.ignore_foreign) if gpus else (0, False)
    request = Request(gpus, *kind, wish.cpus, wish.mem, wish.time_limit_s, *use)
    refusals.check_possible(request, inventory, turn.policy, who)
    return request


def cancel(turn: Turn, chosen: selection.Selection, grace_s: float | None = None) -> Acted:
    """Drop what waits, stop what runs."""
    found = turns.pick_words(turn, chosen)
    active = turn.store.select(selection.within(chosen, ACTIVE), turn.now)
    ended = turn.store.cancel_waiting(chosen, turn.now)
    turn.changed.update(ended.named, ended.doomed)
    turn.unsure += ended.waiters
    changed = [Changed(job_id, Outcome.CANCELLED.value) for job_id in ended.named]
    unchanged = [Left(i, word, f"it is {word} already") for i, word in found if word in FINISHED_WORDS]
    for job in active:
        if job.state is State.STOPPING:
            # A second cancel may shorten the grace.
            turn.effects.append(Order(job, _stop(turn, grace_s)))
            unchanged.append(Left(job.id, job.word, "it is being stopped already"))
        else:
            changed.append(turns.changed(_cancel(turn, job, grace_s)))
    if ended.named:
        # Last: whatever fails before undoes the ends, and then there is nothing to tell.
        turn.over += turn.store.noticed(bool(turn.engine.settings.notify), MOST_NOTICED)
    return Acted(sorted(changed, key=lambda job: job.id), sorted(unchanged, key=lambda job: job.id))


def _cancel(turn: Turn, job: Job, grace_s: float | None) -> Job:
    if job.state is State.STARTING and turn.engine.give_up(job):
        # Buried before its command ran: no runner can begin it any more.
        job = turn.record(job, lifecycle.CancelAsked(turn.now))
        return turn.record(job, lifecycle.GivenUp(turn.now, "cancelled before the command ran"))
    job = turn.record(job, lifecycle.CancelAsked(turn.now))
    if not job.is_finished:
        turn.effects.append(Order(job, _stop(turn, grace_s)))
    return job


def _stop(turn: Turn, grace_s: float | None) -> str:
    return f"stop {turn.engine.settings.grace if grace_s is None else grace_s}"


def retry(turn: Turn, chosen: selection.Selection, also_done: bool = False) -> Acted:
    """Queue a new attempt of finished jobs that did not succeed, or of all finished ones."""
    found = turns.pick_words(turn, chosen)
    outcomes = [outcome for outcome in Outcome if also_done or outcome is not Outcome.DONE]
    retried = turn.store.retry(chosen, outcomes, turn.now)
    turn.changed.update(retried.named, retried.revived)
    turn.unsure += retried.unsure
    turn.ran_out += retried.ran_out
    known = set(retried.named)
    unchanged = [
        Left(i, word, "it succeeded; --done runs it again" if word in FINISHED_WORDS else f"it is {word}, not finished")
        for i, word in found
        if i not in known
    ]
    return Acted([Changed(job_id, State.QUEUED.value) for job_id in retried.named], unchanged)


def try_again(turn: Turn, job: Job) -> Job:
    """Queue a job again, and with it those that were cancelled because of it."""
    again = turn.record(job, lifecycle.RetryAsked(turn.now))
    if lifecycle.ran_out_sharing(job):
        turn.ran_out.append(job.id)
    turn.unsure.append(job.id)
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
                turn.unsure.append(job.id)
                needs.append(job.id)


def hold(turn: Turn, chosen: selection.Selection) -> Acted:
    """Keep queued jobs back."""
    found = turns.pick_words(turn, chosen)
    held = turn.store.hold(chosen, turn.now)
    return _shifted(turn, found, held, State.HELD, "only a queued job can be held")


def unhold(turn: Turn, chosen: selection.Selection) -> Acted:
    """Let held jobs go on waiting for their turn."""
    found = turns.pick_words(turn, chosen)
    queued, unready = turn.store.unhold(chosen, turn.now)
    turn.unsure += unready
    return _shifted(turn, found, queued, State.QUEUED, "it is not held")


def _shifted(turn: Turn, found: list[tuple[JobId, str]], moved: list[JobId], state: State, why_not: str) -> Acted:
    turn.changed.update(moved)
    known = set(moved)
    unchanged = [Left(i, word, f"it is {word}: {why_not}") for i, word in found if i not in known]
    return Acted([Changed(job_id, state.value) for job_id in moved], unchanged)


def kill(turn: Turn, chosen: selection.Selection, number: int) -> Acted:
    """Send a signal to everything that running jobs consist of."""

    def send(job: Job) -> Job:
        turn.store.note(job.id, turn.now, "Signalled", processes.signal_name(number))
        turn.effects.append(Order(job, f"signal {number}"))
        return job

    return _under_way(turn, chosen, SIGNALLED, send, "only a running job can get a signal")


def pause(turn: Turn, chosen: selection.Selection) -> Acted:
    """Stop the processes of running jobs; they keep their devices, and their time limit stands still."""

    def stop(job: Job) -> Job:
        paused = turn.record(job, lifecycle.Paused(turn.now))
        turn.effects.append(Order(paused, "pause"))
        return paused

    return _under_way(turn, chosen, (State.RUNNING,), stop, "only a running job can be paused; hold keeps one waiting")


def resume(turn: Turn, chosen: selection.Selection) -> Acted:
    """Let the processes of paused jobs go on."""

    def go_on(job: Job) -> Job:
        running = turn.record(job, lifecycle.Resumed(turn.now))
        turn.effects.append(Order(running, "resume"))
        return running

    return _under_way(turn, chosen, (State.PAUSED,), go_on, "it is not paused")


def _under_way(
    turn: Turn, chosen: selection.Selection, states: Iterable[State], do: Callable[[Job], Job], why_not: str
) -> Acted:
    """Do something to the chosen jobs that are in these states and have a runner; say of the others why not."""
    changed, unchanged = [], []
    able = {job.id: job for job in turn.store.select(selection.within(chosen, states), turn.now)}
    for job_id, word in turns.pick_words(turn, chosen):
        job = able.get(job_id)
        if job is None:
            unchanged.append(Left(job_id, word, f"it is {word}: {why_not}"))
        elif job.remark is not None:
            unchanged.append(Left(job_id, word, "its runner is gone, and with it who could do that; cancel ends it"))
        else:
            changed.append(turns.changed(do(job)))
    return Acted(changed, unchanged)


def pause_queue(turn: Turn) -> None:
    """Start nothing new until `resume_queue`."""
    turn.store.set_fact(PAUSED, "yes")


def resume_queue(turn: Turn) -> None:
    """Go on starting jobs."""
    turn.store.set_fact(PAUSED, "")


def check_wish(wish: Wish, names: Sequence[str] = templates.NAMES) -> None:
    """Refuse what no machine could run; what depends on this one is checked at `submit`.

    `names` may stand in braces in the paths of its output.
    """
    asked = wish.asked
    for name, _ in asked.env:
        environs.check_given(name)
    check_command(asked)
    if not asked.cwd.startswith("/"):
        raise UserError(f'cwd expected an absolute folder, got "{asked.cwd}".')
    if wish.gpus is not None and wish.gpus < 0:
        raise UserError(f"--gpus expected a whole number from 0 up, got {wish.gpus}.")
    if wish.time_limit_s is not None and not 0 < wish.time_limit_s < 1e9:
        raise UserError("--time expected a time above 0 such as 90m or 2h.")
    check_warn(wish)
    for option, template in (("--output", asked.output), ("--stderr", asked.stderr)):
        if template is not None:
            _check_template(option, template, names)
    texts = [asked.cwd, asked.name, asked.project, *asked.tags]
    texts += [asked.output or "", asked.stderr or "", asked.notify or ""]
    for text in (*texts, *(word for pair in asked.env for word in pair)):
        commands.check_text(text)


def check_warn(wish: Wish) -> None:
    """Refuse a warning that could not come before the time limit."""
    warn = wish.asked.warn
    if warn is None:
        return
    if wish.time_limit_s is None:
        raise UserError("--signal warns before the time limit, and there is none.", "Add --time 2h, say.")
    if warn.before_s >= wish.time_limit_s:
        raise UserError(
            f"--signal comes {units.format_duration(warn.before_s)} before the time limit, "
            f"which is {units.format_duration(wish.time_limit_s)}."
        )


def _check_template(option: str, template: str, names: Sequence[str]) -> None:
    try:
        templates.check(template, names)
    except UserError as error:
        raise UserError(f"{option} {error.message}", error.hint) from None


def check_command(asked: Asked) -> None:
    """Refuse a command that no machine could run."""
    if asked.argv is not None and not asked.argv:
        raise UserError("expected a command, got none.")
    if asked.argv is None:
        check_line(asked.command)
    for text in asked.argv or ():
        commands.check_text(text)


def check_line(command: str) -> None:
    """Refuse one string that no shell could run."""
    if not command.strip():
        raise UserError("expected a command, got an empty one.")
    commands.check_text(command)
