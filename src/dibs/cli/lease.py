"""`dibs lease`: hold GPUs by hand, around a command of this terminal or until Ctrl-C. No daemon is needed.

Leases and the machine-wide line are those of every other door. The command inherits the leases, so the GPUs are its
own for as long as any part of it lives, also if we are killed.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from select import select

from dibs import commands, devices, environs, holders, leases, probe, scheduling, settings, waiting
from dibs.cli import options, screen, signals, submission
from dibs.cli.options import Args, Option
from dibs.devices import DeviceId, Inventory
from dibs.errors import Busy, DibsError, MachineError, UserError
from dibs.jobs import Request

SUMMARY = "Hold GPUs for a command in this terminal, or by hand until Ctrl-C."
USAGE = ("[OPTIONS] [COMMAND...]",)
NO_WAIT: Option[bool] = Option(("--no-wait",), "If they are not free now, exit with 75.")
OPTIONS: tuple[Option[object], ...] = (
    submission.GPUS, submission.GPU_IDS, submission.PREFER, submission.GPU_TYPE, submission.VISIBLE, NO_WAIT,
)  # fmt: skip
TAKES_COMMAND = True
EXAMPLES = ("dibs lease -g 2 jupyter lab", "dibs lease python -m pdb train.py", "dibs lease --gpu-ids 0")

#: Where inherited descriptors begin: above what shells and programs number themselves.
FIRST_FD = 100
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotStarted(DibsError):
    """The command cannot be run; the code is a shell's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = code


def main(args: Args) -> int:
    """Wait for the GPUs, then run the command with them, or hold them."""
    values = settings.load(os.environ)
    given, words = submission.split_variables(args.words)
    for name, _ in given:
        environs.check_given(name)
    argv = _argv(words, dict(given), values.shell) if words else None
    inventory = _inventory(values)
    request = _request(args, inventory)
    held = _acquire(request, inventory, values, is_patient=not args.has(NO_WAIT))
    # The preferred ones first, as in a job.
    order = {device: place for place, device in enumerate(scheduling.eligible(inventory, request))}
    ids = sorted((DeviceId(lease.device) for lease in held), key=lambda device: order[device])
    env = environ(inventory, ids, args.get(submission.VISIBLE) or values.visible)
    if argv is None:
        return _hold(ids, env)
    return _run(argv, {**_own_environ(), **dict(given), **env}, held)


def _argv(words: Sequence[str], given: dict[str, str], shell: str) -> tuple[str, ...]:
    """Return what is really run; a program that is not there is said before anything is leased."""
    path = given.get("PATH") or os.environ.get("PATH", os.defpath)
    is_string = len(words) == 1 and (commands.needs_shell(words[0]) or len(words[0].split()) > 1)
    argv = commands.words(words[0], None if is_string else words, shell, path, os.getcwd())
    if not commands.is_found(argv[0], path, os.getcwd()):
        raise NotStarted(127, f'"{options.shown(argv[0])}" is not a program here.')
    return argv


def _inventory(values: settings.Settings) -> Inventory:
    inventory = probe.read(values)
    if inventory.problem and not inventory.devices:
        raise MachineError(inventory.problem)
    return inventory


def _request(args: Args, inventory: Inventory) -> Request:
    count, gpu_ids = args.get(submission.GPUS), args.get(submission.GPU_IDS)
    submission.check_count(count, gpu_ids, args.get(submission.GPU_TYPE))
    if count and count.gpus == 0:
        raise UserError("lease expected at least one GPU, got --gpus 0.")
    chosen = scheduling.resolve(gpu_ids or (), "--gpu-ids", inventory)
    request = Request(
        len(chosen) or (count.gpus if count else 1),
        chosen,
        scheduling.resolve(args.get(submission.PREFER) or (), "--prefer", inventory),
        args.get(submission.GPU_TYPE) or (count.gpu_type if count else None),
    )
    scheduling.check_possible(request, inventory, scheduling.Policy())
    return request


def _acquire(
    request: Request, inventory: Inventory, values: settings.Settings, *, is_patient: bool
) -> list[leases.Lease]:
    """Stand in the line until the GPUs are ours."""
    place = leases.folder()
    wanted = scheduling.eligible(inventory, request)
    need = scheduling.count_gpus(request.gpus)
    if len(wanted) < request.gpus:
        faults = "; ".join(f"GPU {device.index}: {device.fault}" for device in inventory.devices if device.fault)
        raise Busy(f"needs {need}; only {len(wanted)} can be used now ({faults}).")
    with signals.Signals(*ENDING) as coming:
        try:
            return waiting.acquire(
                place,
                request.gpus,
                wanted,
                leases.Note("lease", _user()),
                collect_for_s=values.collect_for,
                wake_fd=coming.fileno(),
                timeout_s=None if is_patient else 0,
                on_wait=lambda ticket: screen.say(f"waiting for {need}: {held_by(place, inventory, wanted)}"),
            )
        except waiting.TimedOut:
            raise Busy(f"{need} cannot be had now: {held_by(place, inventory, wanted)}.") from None


def held_by(place: leases.Folder, inventory: Inventory, wanted: Sequence[DeviceId]) -> str:
    """Say who holds which of the devices."""
    told = [
        f"GPU {inventory.index_of(DeviceId(device))}: {who[0].user or 'somebody'}"
        + (f" {_job(who[0].job)}" if who[0].job else "")
        + (f" (pid {who[0].pid})" if who[0].pid else "")
        for device, who in holders.survey(place, wanted).items()
        if who
    ]
    return ", ".join(told) or "others are next in the line"


def _job(job: str) -> str:
    return f"job {job}" if job.isdigit() else job


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def environ(inventory: Inventory, ids: Sequence[DeviceId], visible: str) -> dict[str, str]:
    """Return the variables that tell a program which GPUs are its own."""
    numbers = ",".join(str(index) for index in devices.indices(inventory, ids))
    return {
        "CUDA_VISIBLE_DEVICES": numbers if visible == "index" else ",".join(ids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DIBS_GPU_INDICES": numbers,
    }


def _own_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in environs.DEVICE_NAMES}


def _hold(ids: Sequence[DeviceId], env: dict[str, str]) -> int:
    """Hold the GPUs until we are told to let go; that is how it is meant to end, so the code is 0."""
    with signals.Signals(*ENDING) as coming:
        print("\n".join(ids))
        print(f"export CUDA_VISIBLE_DEVICES={env['CUDA_VISIBLE_DEVICES']}", flush=True)
        select([coming], [], [])
    return 0


def _unblock() -> None:
    """Give the child the signals that the parent holds back while it starts it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGHUP))


def _run(argv: tuple[str, ...], env: dict[str, str], held: Sequence[leases.Lease]) -> int:
    """Run the command as our child on this terminal, holding the leases itself; return its exit code."""
    import fcntl
    import subprocess

    inherited = [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FD) for lease in held for fd in lease.fds()]

    def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(words, env=env, pass_fds=inherited, preexec_fn=_unblock)

    # Handlers and not SIG_IGN, which the command would inherit. Ctrl-C and Ctrl-\ reach it from the terminal itself.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda number, frame: None)
    # What comes before the child is there waits until it is.
    passed_on = (signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    try:
        try:
            child = start(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without #!: run by sh, as every shell does.
            child = start(("/bin/sh", *argv))
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        raise NotStarted(code, f'cannot run "{options.shown(argv[0])}": {error.strerror}.') from None
    for number in passed_on:
        signal.signal(number, lambda number, frame: child.send_signal(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    code = child.wait()
    return 128 - code if code < 0 else code
