"""What a user asks, one function a verb, named as it is typed.

Each runs inside the core thread's present transaction and leaves what must be done after the commit in `turn.effects`.
Bad input raises before anything is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dibs import commands, environs, lifecycle, scheduling, selection
from dibs.devices import Inventory
from dibs.engines.local import Local
from dibs.errors import NotFound, UserError
from dibs.jobs import Asked, Job, JobId, Outcome, Request, State, default_name
from dibs.store import Store

#: Jobs in one submission.
MOST_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class StartRunner:
    """Start the runner of a job that was placed."""

    job: Job


@dataclass(frozen=True, slots=True)
class Order:
    """Tell a job's runner something; where it is gone, end what it left."""

    job: Job
    line: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Be told when this process ends; then look at the job again."""

    job: Job
    pidfd: int


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Look at the job again in a moment: somebody is deciding about it right now."""

    job: Job


@dataclass(frozen=True, slots=True)
class Sweep:
    """End what may be left of a job whose runner is gone."""

    job: Job


Effect = StartRunner | Order | Watch | LookAgain | Sweep


@dataclass(slots=True)
class Turn:
    """One turn of the core thread: what a verb may read and change, and what is to be done after the commit."""

    store: Store
    engine: Local
    inventory: Inventory
    now: int
    effects: list[Effect] = field(default_factory=list)
    changed: set[JobId] = field(default_factory=set)

    def record(self, job: Job, event: lifecycle.Event, detail: str = "") -> Job:
        """Record an event and remember that the job changed."""
        self.changed.add(job.id)
        return self.store.record(job, event, detail)


@dataclass(frozen=True, slots=True)
class Wish:
    """One job as a door hands it in: devices still by the words the user typed."""

    asked: Asked
    #: None: one GPU, or none on a machine without any.
    gpus: int | None = None
    gpu_ids: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    gpu_type: str | None = None
    #: The captured environment; None: the daemon's own.
    environ: bytes | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The ids given, and what the submitter should know."""

    ids: list[JobId]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Left:
    """A job that a verb did not change, and why."""

    job: Job
    why: str


@dataclass(frozen=True, slots=True)
class Acted:
    """What a verb did to the jobs it was given."""

    changed: list[Job]
    unchanged: list[Left]


def submit(turn: Turn, wishes: Sequence[Wish]) -> Submitted:
    """Queue all of `wishes`, or none of them."""
    if not wishes:
        raise UserError("expected at least one job, got none.")
    if len(wishes) > MOST_AT_ONCE:
        raise UserError(
            f"expected at most {MOST_AT_ONCE:,} jobs at once, got {len(wishes):,}.", "Submit them in parts."
        )
    notes: list[str] = []
    requests: dict[tuple[object, ...], Request] = {}
    environ_ids: dict[bytes, int] = {}
    asked = []
    for wish in wishes:
        key = (wish.gpus, wish.gpu_ids, wish.prefer, wish.gpu_type)
        if key not in requests:
            requests[key] = _request(wish, turn.inventory, notes)
        asked.append(replace(wish.asked, request=requests[key], name=wish.asked.name or default_name(wish.asked)))
    for blob in {wish.environ for wish in wishes if wish.environ is not None}:
        environ_ids[blob] = turn.store.keep_environ(blob)
    asked = [
        replace(a, environ_id=environ_ids[w.environ]) if w.environ is not None else a
        for a, w in zip(asked, wishes, strict=True)
    ]
    ids = turn.store.submit(asked, turn.now)
    turn.changed.update(ids)
    return Submitted(ids, notes)


def _request(wish: Wish, inventory: Inventory, notes: list[str]) -> Request:
    gpu_ids = scheduling.resolve(wish.gpu_ids, "--gpu-ids", inventory)
    prefer = scheduling.resolve(wish.prefer, "--prefer", inventory)
    if gpu_ids and wish.gpus is not None and wish.gpus != len(gpu_ids):
        raise UserError(f"--gpus {wish.gpus} contradicts --gpu-ids, which names {len(gpu_ids)}.", "Leave --gpus out.")
    gpus = len(gpu_ids) if gpu_ids else wish.gpus
    if gpus is None:
        has_none = inventory.is_known and not inventory.devices
        gpus = 0 if has_none and not wish.gpu_type else 1
        if gpus == 0:
            notes.append("this machine has no GPU: the job asks for none (pretend ones: DIBS_DEVICES=fake:4)")
    request = Request(gpus, tuple(sorted(gpu_ids)), prefer, wish.gpu_type) if gpus else Request(0)
    scheduling.check_possible(request, inventory)
    return request


def cancel(turn: Turn, chosen: selection.Selection, grace_s: float | None = None) -> Acted:
    """Drop what waits, stop what runs."""
    changed, unchanged = [], []
    for job in pick(turn, chosen):
        if job.is_finished:
            unchanged.append(Left(job, f"it is {job.word} already"))
        elif job.state is State.STOPPING:
            # A second cancel may shorten the grace.
            turn.effects.append(Order(job, _stop(turn, grace_s)))
            unchanged.append(Left(job, "it is being stopped already"))
        else:
            changed.append(_cancel(turn, job, grace_s))
    return Acted(changed, unchanged)


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
    changed, unchanged = [], []
    for job in pick(turn, chosen):
        if not job.is_finished:
            unchanged.append(Left(job, f"it is {job.word}, not finished"))
        elif job.outcome is Outcome.DONE and not also_done:
            unchanged.append(Left(job, "it succeeded; --done runs it again"))
        else:
            changed.append(turn.record(job, lifecycle.RetryAsked(turn.now)))
    return Acted(changed, unchanged)


def pick(turn: Turn, chosen: selection.Selection) -> list[Job]:
    """Return the jobs that a selection means; meaning none is an error."""
    return require(turn.store.select(chosen, turn.now), chosen, turn.store.last_id())


def require(found: list[Job], chosen: selection.Selection, last_id: int) -> list[Job]:
    """Return `found`, or say that nothing was."""
    if found:
        return found
    ids = [ends for atoms in chosen for atom in atoms if isinstance(atom, selection.Ids) for ends in atom.ranges]
    newest = f" (the newest is {last_id})" if last_id else ": no job yet"
    if len(ids) == 1 and ids[0][0] == ids[0][1]:
        raise NotFound(f"there is no job {ids[0][0]}{newest}.")
    raise NotFound(f"no job matches{newest}.")


def check_wish(wish: Wish) -> None:
    """Refuse what no machine could run; what depends on this one is checked at `submit`."""
    asked = wish.asked
    for name, _ in asked.env:
        environs.check_given(name)
    if asked.argv is not None and not asked.argv:
        raise UserError("expected a command, got none.")
    if asked.argv is None and not asked.command.strip():
        raise UserError("expected a command, got an empty one.")
    if not asked.cwd.startswith("/"):
        raise UserError(f'cwd expected an absolute folder, got "{asked.cwd}".')
    if wish.gpus is not None and wish.gpus < 0:
        raise UserError(f"--gpus expected a whole number from 0 up, got {wish.gpus}.")
    if asked.time_limit_s is not None and not 0 < asked.time_limit_s < 1e9:
        raise UserError("--time expected a time above 0 such as 90m or 2h.")
    texts = [asked.command, asked.cwd, asked.name, asked.project, *(asked.argv or ()), *asked.tags]
    texts += [word for pair in asked.env for word in pair] + [asked.output or "", asked.stderr or ""]
    if any("\0" in text for text in texts):
        raise UserError("a command, name or folder cannot contain a NUL byte.")
    longest = max(_bytes(text) for text in texts)
    if longest > commands.LONGEST_BYTES:
        raise UserError(
            f"one text may have {commands.LONGEST_BYTES:,} bytes, this one has {longest:,}.", "Keep it in a file."
        )


def _bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise UserError("a command, name or folder is expected in UTF-8, got other bytes.") from None
