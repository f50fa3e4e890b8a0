"""Validate a submission, first for any machine, then for this one.

`check_submission` asks whether any machine could run it, `check` whether this one could. Neither changes anything;
`control.submit` stores what passes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dibs.engines import remote_starts
from dibs.errors import Impossible, MachineError, NotAllowed, UserError
from dibs.jobqueue import turns
from dibs.jobqueue.turns import Turn
from dibs.model import environment, fields, path_templates, selectors, suggestions, units
from dibs.model.fields import JobSpec
from dibs.model.jobs import LOCAL, NO, After, CommandLines, JobId, Member, Request, When, default_name
from dibs.scheduling import feasibility
from dibs.system import commands

#: Jobs in one submission, and in one that has a command line for each and nothing else.
MOST_AT_ONCE, MOST_LINES = 100_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Submission:
    """One job, or many similar jobs, as a client submits it: devices are still spelled as the user typed them."""

    spec: JobSpec
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
    #: One of `jobs.EVICTABLE`; None: as configured.
    evictable: str | None = None
    #: None: that of the settings.
    engine: str | None = None
    #: Selectors of the jobs it depends on, and the required outcome.
    after: tuple[tuple[str, When], ...] = ()
    #: The captured environment; None: none came with it.
    environ: bytes | None = None
    #: The job whose environment and folder it takes where it has none.
    environ_of: JobId | None = None
    #: The text of a script; the command consists of its file and arguments.
    script: bytes | None = None
    is_held: bool = False
    #: For many similar jobs: how each differs; None: one job.
    members: Sequence[Member] | None = None

    @property
    def count(self) -> int:
        """Return the number of jobs."""
        return 1 if self.members is None else len(self.members)

    @property
    def shape(self) -> tuple[object, ...]:
        """Return everything that determines its request."""
        devices = self.gpus, self.gpu_ids, self.prefer, self.gpu_type, self.vram, self.ignore_foreign
        # The default engine depends on the project, and an engine may refuse its own options.
        engine = self.engine, self.spec.project, self.spec.engine_options, self.spec.overflow
        return *devices, self.cpus, self.mem, self.time_limit_s, self.evictable, *engine


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of jobs that are submitted together."""

    #: How many may be active at a time.
    at_once: int | None = None
    #: The number of bad ends after which the rest is held.
    halt_after: int | None = None
    #: An existing batch that they join; its rules apply.
    batch: int | None = None
    #: Idempotency key: a second submission with the same key returns the jobs of the first.
    key: str | None = None


NO_RULES = Rules()


def check_submission(submission: Submission, names: Sequence[str] = path_templates.NAMES) -> None:
    """Refuse a submission that no machine could run; `check` tests what depends on this one.

    `names` are the placeholders allowed in its output paths.
    """
    spec = submission.spec
    for name, _ in spec.env:
        environment.check_given(name)
    check_command(spec)
    # Without a folder it gets one later, with its environment.
    if spec.cwd and not spec.cwd.startswith("/"):
        raise UserError(f'cwd expected an absolute folder, got "{spec.cwd}".')
    if submission.gpus is not None and submission.gpus < 0:
        raise UserError(f"--gpus expected a whole number from 0 up, got {submission.gpus}.")
    if submission.time_limit_s is not None and not 0 < submission.time_limit_s < 1e9:
        raise UserError("--time expected a time above 0 such as 90m or 2h.")
    check_warn(submission)
    for option, template in (("--output", spec.output), ("--stderr", spec.stderr)):
        if template is not None:
            with suggestions.inside(option):
                path_templates.check(template, names)
    plain = (getattr(spec, field.name) for field in fields.PLAIN)
    texts = [spec.cwd, *spec.tags, *(text for text in plain if isinstance(text, str))]
    for text in (*texts, *(word for pair in spec.env for word in pair)):
        commands.check_text(text)


def check_warn(submission: Submission) -> None:
    """Refuse a warning signal that does not fit before the time limit."""
    warn = submission.spec.warn
    if warn is None:
        return
    if submission.time_limit_s is None:
        if submission.evictable in (None, NO):
            raise UserError(
                "--signal needs a time limit or --evictable: it warns before one of them.",
                "Add --time 2h or --evictable.",
            )
        return
    if warn.before_s >= submission.time_limit_s:
        raise UserError(
            f"--signal comes {units.format_duration(warn.before_s)} before the time limit, "
            f"which is {units.format_duration(submission.time_limit_s)}."
        )


def check_command(spec: JobSpec) -> None:
    """Refuse a command that no machine could run."""
    if spec.argv is not None and not spec.argv:
        raise UserError("expected a command, got none.")
    if spec.argv is None:
        check_line(spec.command)
    for text in spec.argv or ():
        commands.check_text(text)


def check_line(command: str) -> None:
    """Refuse a shell command line that no shell could run."""
    if not command.strip():
        raise UserError("expected a command, got an empty one.")
    commands.check_text(command)


@dataclass(frozen=True, slots=True)
class Checked:
    """What submissions resolve to on this machine, each distinct part once: there may be 100,000 of them."""

    requests: dict[tuple[object, ...], Request] = field(default_factory=dict)
    needs: dict[tuple[tuple[str, When], ...], tuple[After, ...]] = field(default_factory=lambda: {(): ()})
    notes: list[str] = field(default_factory=list)

    def spec(
        self, submission: Submission, environ_id: int | None = None, script_id: int | None = None, batch: int = 0
    ) -> JobSpec:
        """Return the spec to store, with the ids of the stored environment and script."""
        return replace(
            submission.spec,
            request=self.requests[submission.shape],
            name=submission.spec.name or default_name(submission.spec.command, submission.spec.argv),
            after=self.needs[submission.after],
            environ_id=environ_id,
            script_id=script_id,
            batch=batch,
        )


def check(turn: Turn, submissions: Sequence[Submission]) -> Checked:
    """Refuse submissions that this machine can never run; return what they resolve to on it."""
    count = sum(submission.count for submission in submissions)
    if not count:
        raise UserError("expected at least one job, got none.")
    most = MOST_LINES if all(isinstance(each.members, CommandLines) for each in submissions) else MOST_AT_ONCE
    if count > most:
        raise UserError(f"expected at most {most:,} jobs at once, got {count:,}.", "Submit them in several calls.")
    checked = Checked()
    for submission in submissions:
        if submission.shape not in checked.requests:
            checked.requests[submission.shape] = request_of(submission, turn, checked.notes)
        if submission.after not in checked.needs:
            checked.needs[submission.after] = needs_of(turn, submission.after)
    return checked


def needs_of(turn: Turn, words: tuple[tuple[str, When], ...]) -> tuple[After, ...]:
    """Return the jobs that the selectors of `--after` and similar options mean now; waiting for none is a mistake."""
    found: dict[After, None] = {}
    for word, when in words:
        chosen = selectors.parse([word])
        jobs = turns.pick(turn, chosen)
        if not jobs:
            raise turns.nothing(chosen, turn.store.last_id())
        found |= dict.fromkeys(After(job.id, when) for job in jobs)
    return tuple(found)


def request_of(submission: Submission, turn: Turn, notes: list[str], who: str = "the job") -> Request:
    """Return the request of a submission; refuse one that this machine can never satisfy. `who` names it in errors."""
    engine = submission.engine or turn.settings.engine_for(submission.spec.project)
    if engine != LOCAL:
        return _remote_request(submission, turn, engine, who, "--engine")
    _check_overflow(submission, turn, who)
    inventory = turn.inventory
    if (submission.gpu_ids or submission.prefer) and not inventory.is_known:
        raise MachineError(f"the GPUs are not known yet ({inventory.problem or 'the driver has not answered'}).")
    gpu_ids = feasibility.resolve(submission.gpu_ids, "--gpu-ids", inventory)
    prefer = feasibility.resolve(submission.prefer, "--prefer", inventory)
    if gpu_ids and submission.gpus is not None and not 0 < submission.gpus <= len(gpu_ids):
        raise UserError(
            f"--gpus {submission.gpus} contradicts --gpu-ids, which names {len(gpu_ids)}.", "Leave --gpus out."
        )
    gpus = len(gpu_ids) if gpu_ids and submission.gpus is None else submission.gpus
    if gpus is None:
        has_none = inventory.is_known and not inventory.devices
        gpus = 0 if has_none and not submission.gpu_type else 1
        if gpus == 0:
            notes.append("this machine has no GPUs, so the job gets none (pretend GPUs: DIBS_DEVICES=fake:4)")
    if submission.spec.vram_enforce and not submission.vram:
        raise UserError("--vram-enforce needs --vram.", "For example: --vram 18G.")
    limit_s = submission.time_limit_s
    if limit_s is None and gpus and (longest_s := feasibility.longest_s(turn.policy.quotas)) is not None:
        limit_s = longest_s
        notes.append(f"time limit {units.format_duration(longest_s)}: the longest that your quota allows")
    kind = (tuple(sorted(gpu_ids)), prefer, submission.gpu_type) if gpus else ((), (), None)
    evictable = turn.settings.evictable if submission.evictable is None else submission.evictable
    use = (submission.vram, submission.ignore_foreign, evictable) if gpus else (0, False, NO)
    request = Request(gpus, *kind, submission.cpus, submission.mem, limit_s, *use)
    feasibility.check_possible(request, inventory, turn.policy, who)
    if (quota := turn.policy.project_quotas.get(submission.spec.project)) is not None:
        feasibility.check_quotas(request, [(f"the quota of project {submission.spec.project}", quota)], who)
    return request


def _remote_request(submission: Submission, turn: Turn, engine: str, who: str, option: str) -> Request:
    """Return the request of a submission on an engine that others operate, or refuse it; `option` names the engine."""
    _check_engine(turn, engine, option)
    here_only = {
        "--gpu-ids": submission.gpu_ids,
        "--prefer": submission.prefer,
        "--vram": submission.vram,
        "--ignore-foreign": submission.ignore_foreign,
        "--strict-gpus": submission.spec.strict_gpus,
        "--vram-enforce": submission.spec.vram_enforce,
        "--no-wait": submission.spec.no_wait,
        "--evictable": submission.evictable not in (None, NO),
    }
    for name, value in here_only.items():
        if value:
            raise UserError(f"{name} is about this machine's GPUs; {engine} chooses its own.", f"Leave {name} out.")
    if option == "--engine" and submission.spec.overflow is not None:
        raise UserError(f"--overflow is for jobs that wait on this machine; this one waits on {engine}.")
    remote = turn.remotes[engine]
    if submission.spec.engine_options and remote.engine.kind != "slurm":
        raise UserError(f"--slurm is for engines of kind slurm; {engine} is of kind {remote.engine.kind}.")
    gpus = 1 if submission.gpus is None else submission.gpus
    gpu_type = submission.gpu_type if gpus else None
    request = Request(gpus, (), (), gpu_type, submission.cpus, submission.mem, submission.time_limit_s, engine=engine)
    needs = remote_starts.needs_of(request, submission.spec.engine_options, remote.packer.engine, turn.settings.grace)
    why = remote.refuse(needs)
    if why is not None:
        raise Impossible(f"{who} cannot run on {engine}: {why}.", "`dibs engines` lists what the nodes have.")
    return request


def _check_engine(turn: Turn, engine: str, option: str) -> None:
    """Refuse an engine that does not exist, or cannot be used."""
    if engine in turn.remotes:
        return
    known = turn.settings.engines.get(engine)
    if known is None:
        names = ", ".join((LOCAL, *turn.remotes))
        near = suggestions.nearest(engine, (LOCAL, *turn.remotes))
        hint = f"Did you mean {near}?" if near is not None else ""
        if not hint and engine.isidentifier():
            hint = f"To add it: dibs config set engines.{engine}.kind slurm"
        raise UserError(f'{option} expected one of {names}, got "{engine}".', hint)
    if known.problem is not None:
        raise NotAllowed(f"{engine} cannot be used: {known.problem}.", "Set it with `dibs config set`.")
    raise UserError(f"the daemon does not know {engine} yet.", "Type: dibs daemon restart (jobs are not affected)")


def _check_overflow(submission: Submission, turn: Turn, who: str) -> None:
    """Refuse an overflow that could not happen."""
    spec = submission.spec
    if spec.overflow is None:
        if spec.overflow_after_s is not None:
            raise UserError("--overflow-after needs --overflow.", "Add --overflow NAME.")
        if spec.engine_options:
            raise UserError("--slurm is for jobs on a Slurm cluster; this one runs here.", "Add --engine NAME.")
        return
    if spec.overflow == LOCAL:
        raise UserError("--overflow expected a cluster, got local, where the job already waits.")
    _remote_request(submission, turn, spec.overflow, who, "--overflow")
