"""What is wished for, before anything of it is kept: the jobs as a door hands them in, and what they come to here.

Two questions, in this order: could any machine run it (`check_wish`), and could this one (`check`). Neither changes
anything; `control.submit` keeps what passes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dibs.errors import MachineError, UserError
from dibs.jobqueue.turns import Turn, pick
from dibs.model import environment, path_templates, selectors, units
from dibs.model.jobs import After, Asked, Member, Request, When, default_name
from dibs.scheduling import feasibility
from dibs.system import commands

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


def check_wish(wish: Wish, names: Sequence[str] = path_templates.NAMES) -> None:
    """Refuse what no machine could run; what depends on this one is checked at `submit`.

    `names` may stand in braces in the paths of its output.
    """
    asked = wish.asked
    for name, _ in asked.env:
        environment.check_given(name)
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
        path_templates.check(template, names)
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


def needs_of(turn: Turn, words: tuple[tuple[str, When], ...]) -> tuple[After, ...]:
    """Return the jobs that the selectors of `--after` and its kin mean now."""
    return tuple(
        dict.fromkeys(After(job.id, when) for word, when in words for job in pick(turn, selectors.parse([word])))
    )


def request_of(wish: Wish, turn: Turn, notes: list[str], who: str = "the job") -> Request:
    """Return what a wish of `who` asks of this machine; what it can never give is refused."""
    inventory = turn.inventory
    if (wish.gpu_ids or wish.prefer) and not inventory.is_known:
        raise MachineError(f"the GPUs are not known yet ({inventory.problem or 'the driver has not answered'}).")
    gpu_ids = feasibility.resolve(wish.gpu_ids, "--gpu-ids", inventory)
    prefer = feasibility.resolve(wish.prefer, "--prefer", inventory)
    if gpu_ids and wish.gpus is not None and not 0 < wish.gpus <= len(gpu_ids):
        raise UserError(f"--gpus {wish.gpus} contradicts --gpu-ids, which names {len(gpu_ids)}.", "Leave --gpus out.")
    gpus = len(gpu_ids) if gpu_ids and wish.gpus is None else wish.gpus
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
    feasibility.check_possible(request, inventory, turn.policy, who)
    return request
