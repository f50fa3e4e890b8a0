"""Choose where the commands of `dibs pipe` run: on named or available GPUs; inside a job, on the GPUs of the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dibs.errors import UserError
from dibs.foreground import device_check, inherited, lease_request
from dibs.foreground.lease_request import LeaseTerms, held_by
from dibs.foreground.slot_kinds import ChosenSlots, FixedSlots, SharedSlots
from dibs.foreground.slots import Etiquette, LeaseOptions, Slot, Slots
from dibs.leases import device_lease, rules_file
from dibs.model import units
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Request
from dibs.scheduling import capacity, choice, feasibility, views
from dibs.submission import job_options, options
from dibs.submission.options import Args, Kind, Option
from dibs.system import settings


def _read_groups(text: str) -> tuple[tuple[str, ...], ...]:
    """Parse `0,2-4`, or several such groups separated by blanks."""
    return tuple(tuple(name for part in word.split(",") for name in _names(part.strip())) for word in text.split())


def _names(part: str) -> list[str]:
    first, dash, last = part.partition("-")
    if not part:
        raise ValueError
    if not (dash and all(end.isascii() and end.isdigit() and len(end) <= 4 for end in (first, last))):
        return [part]
    if int(first) > int(last):
        raise UserError(f'expected a range that goes up, got "{part}".')
    return [str(number) for number in range(int(first), int(last) + 1)]


GROUPS = Kind("GPUs such as 0,2-4 or GPU-8f4a..., or groups such as 0,1 2,3", _read_groups)

GPU_IDS = Option(
    ("--gpu-ids",), "Use only these GPUs, by index, range or UUID. Groups: 0,1 2,3. Default: all.", GROUPS, "0,2-4",
    is_repeatable=True,
)  # fmt: skip
GPUS = Option(("--gpus",), "Same as --gpu-ids: a list, not a count.", GROUPS, "0,1,2", is_repeatable=True)
COUNT = Option(("-g",), "GPUs per command. Default: 1.", job_options.GPUS.kind, "N")
PER_GPU = Option(("--per-gpu",), "Run up to N commands at a time on each GPU.", options.whole(1, 1000), "N")
AT_ONCE = Option(("-j", "--jobs"), "Run at most N commands at a time.", options.whole(1), "N")


def groups(args: Args) -> list[tuple[str, ...]]:
    """Return the named GPUs, group by group; several words are groups, as in `--gpu-ids 0,1 2,3`."""
    if args.has(GPU_IDS) and args.has(GPUS):
        raise UserError("--gpus and --gpu-ids both name GPUs.", "Leave --gpus out.")
    named = [group for groups in (*args.all(GPU_IDS), *args.all(GPUS)) for group in groups]
    if not named:
        options.refuse_words("pipe", args)
        return []
    for word in args.words:
        try:
            named += _read_groups(word)
        except ValueError:
            raise UserError(f'expected {GROUPS.expected}, got "{options.shown(word)}".') from None
    if args.has(GPUS) and len(named) == 1 and len(named[0]) == 1 and named[0][0].isdigit():
        number = named[0][0]
        raise UserError(
            f"--gpus {number} could be a count or a GPU.",
            f"Write -g {number} for {number} GPUs per command, or --gpu-ids {number} for the GPU.",
        )
    return named


def slots(
    args: Args,
    named: Sequence[tuple[str, ...]],
    values: settings.Settings,
    inventory: Inventory,
    say: Callable[[str], None],
) -> Slots:
    """Return the slots for commands; `named` is the result of `groups`."""
    place, note = device_lease.folder(), device_lease.own_note("pipe")
    count = args.get(COUNT)
    per_gpu = args.get(PER_GPU) or 1

    def tell_wait(wanted: Sequence[str]) -> None:
        if wanted:
            say(f"waiting for a GPU: {held_by(place, inventory, [DeviceId(name) for name in wanted])}")
        else:
            say(f"waiting: the setting keep_free leaves {units.count_gpus(values.keep_free)} free for others")

    def label(ids: Sequence[str]) -> str:
        return "GPU " + ",".join(str(inventory.index_of(DeviceId(device))) for device in ids)

    found = [_resolved(group, inventory) for group in named]
    if args.has(job_options.VRAM) and args.has(PER_GPU):
        raise UserError(
            "--vram and --per-gpu both decide how many commands share a GPU.",
            "Leave one of them out.",
        )
    chosen = tuple(device for group in found for device in group)
    if (count and count.gpus == 0) or (count is None and not inventory.devices):
        if count is None:
            say(f"no GPU found: up to {values.cpu_slots} commands at a time run without one")
        free = [Slot((), "no GPU")] * (args.get(AT_ONCE) or values.cpu_slots)
        return FixedSlots(LeaseOptions(place, note), free)

    is_grouped = len(found) > 1 and any(len(group) > 1 for group in found)
    request = Request(
        max(map(len, found)) if is_grouped else count.gpus if count else 1,
        prefer=chosen,
        gpu_type=args.get(job_options.GPU_TYPE) or (count.gpu_type if count else None),
        vram=args.get(job_options.VRAM) or 0,
        ignore_foreign=args.has(job_options.IGNORE_FOREIGN),
    )
    vet = device_check.check_for_request(values, say, request)
    etiquette = Etiquette(values.max_gpus, values.keep_free, inventory.usable())

    def how(terms: Callable[[], choice.Terms] = choice.alone) -> LeaseOptions:
        return LeaseOptions(
            place, note, collect_for_s=values.collect_for, on_wait=tell_wait, terms=terms, vet=vet,
            etiquette=etiquette, on_limit=lambda text: say(f"waiting: {text}"), span_s=values.assumed_time,
        )  # fmt: skip

    def fixed(groups: Sequence[Sequence[DeviceId]], ours: Sequence[DeviceId] = ()) -> Slots:
        return FixedSlots(how(), [Slot(group, label(group)) for _ in range(per_gpu) for group in groups][::-1], ours)

    ours = inherited.devices(place, inventory)
    if not ours:
        lease_request.report_unusable(inventory, chosen, say)
    if is_grouped:
        if args.has(job_options.VRAM):
            raise UserError("--vram cannot be combined with groups of --gpu-ids.", "Leave one out.")
        _check_groups(count, found, inventory)
    if ours:
        _check_ours(args, chosen, ours, inventory)
        return fixed(found if is_grouped else _dealt(chosen or ours, count.gpus if count else 1), ours)
    quotas = rules_file.quotas(values.rules)
    policy = views.Policy(max_gpus=values.max_gpus, keep_free=values.keep_free, quotas=quotas)
    feasibility.check_possible(request, inventory, policy, "each command")
    if is_grouped:
        return fixed(found)
    eligible = [d for d in views.eligible(inventory, request) if not chosen or d in chosen]
    if len(eligible) < request.gpus:
        can = units.count_gpus(len(eligible))
        told = {d.index: capacity.obstacle(d, request) for d in inventory.devices if not chosen or d.id in chosen}
        why = inventory.problem or "; ".join(f"GPU {index}: {text}" for index, text in told.items() if text)
        raise UserError(f"-g {request.gpus}: only {can} can be used{why and f' ({why})'}.", "See `dibs gpus`.")
    on_terms = how(LeaseTerms(place, inventory, values, request).terms)
    if request.vram:
        return SharedSlots(on_terms, request.gpus, eligible, label)
    return ChosenSlots(on_terms, request.gpus, eligible, per_gpu, label)


def _check_ours(args: Args, chosen: Sequence[DeviceId], ours: Sequence[DeviceId], inventory: Inventory) -> None:
    """Refuse options that the GPUs that are already leased for us cannot satisfy."""
    have = f"GPU {','.join(str(inventory.index_of(device)) for device in ours)}"
    for device in (device for device in chosen if device not in ours):
        raise UserError(f"--gpu-ids names GPU {inventory.index_of(device)}; only {have} can be used here.")
    if args.has(job_options.VRAM):
        raise UserError(f"--vram has no effect here: {have} is leased already.", "Use --per-gpu 2.")


def _dealt(ours: Sequence[DeviceId], count: int) -> list[Sequence[DeviceId]]:
    """Split our GPUs into groups of `count`."""
    if count > len(ours):
        raise UserError(f"-g {count}: only {units.count_gpus(len(ours))} can be used here.")
    return [ours[at : at + count] for at in range(0, len(ours) - count + 1, count)]


def _resolved(group: Sequence[str], inventory: Inventory) -> tuple[DeviceId, ...]:
    found = feasibility.resolve(group, "--gpu-ids", inventory)
    if len(found) < len(group):
        raise UserError("--gpu-ids names a GPU twice.", "Several commands on each GPU: --per-gpu 2.")
    return found


def _check_groups(count: job_options.Count | None, named: Sequence[Sequence[DeviceId]], inventory: Inventory) -> None:
    if count and any(len(group) != count.gpus for group in named):
        raise UserError(f"-g {count.gpus} contradicts the groups of --gpu-ids.", "Leave -g out.")
    usable = inventory.usable()
    for device in (device for group in named for device in group if device not in usable):
        why = inventory.problem or inventory.by_id[device].obstacle
        raise UserError(f"GPU {inventory.index_of(device)} cannot be used: {why}.")
