"""`dibs lease`: hold GPUs for a command in this terminal or until Ctrl-C. Needs no daemon.

It uses the same leases and the same machine-wide line as all other ways to get a GPU. The command inherits the leases,
so it holds the GPUs while any of its processes lives, even if we are killed. With `--env` or `--pid` a small process
keeps them while a shell, or a process that already runs, lives (`keepers`).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from select import select

from dibs.cli import screen
from dibs.errors import Conflict, DibsError, NotFound, TimedOut, UserError
from dibs.foreground import attached, keepers, lease_request, signals
from dibs.leases import device_lease, waiters
from dibs.model import devices, environment, units
from dibs.model.devices import DeviceId
from dibs.model.jobs import Request
from dibs.submission import drafts, job_options, options, times
from dibs.submission.options import Args, Option
from dibs.system import commands, processes, settings

SUMMARY = "Hold GPUs for a command in this terminal, for a shell, or by hand until Ctrl-C."
USAGE = (
    "[OPTIONS] [COMMAND...]", '--env [OPTIONS]    as in eval "$(dibs lease --env)"', "--pid PID [OPTIONS]", "--release"
)  # fmt: skip
TIME = Option(
    ("-t", "--time"), "Hand the GPUs back after this long: the command gets TERM, KILL after the grace; exit code 124.",
    options.DURATION, "8h",
)  # fmt: skip
ENV: Option[bool] = Option(
    ("--env",), "Print commands for the shell that reads them; the GPUs are leased until it ends, or until --release."
)
SHELL = Option(
    ("--shell",), "The language of --env and --release, if it is not that of the shell that asks.",
    options.one_of("sh", "fish", "csh"), "sh|fish|csh",
)  # fmt: skip
PID = Option(("--pid",), "Lease for as long as this process of yours lives.", options.whole(1), "PID")
RELEASE: Option[bool] = Option(("--release",), "Give back what this shell (or --pid PID) leased.")
NO_WAIT: Option[bool] = Option(("--no-wait",), "If they are not free now, exit with 75.")
OPTIONS: tuple[Option[object], ...] = (
    job_options.GPUS, job_options.GPU_IDS, job_options.PREFER, job_options.GPU_TYPE, job_options.VRAM,
    job_options.IGNORE_FOREIGN, job_options.VISIBLE, TIME, ENV, PID, RELEASE, SHELL, NO_WAIT,
)  # fmt: skip
TAKES_COMMAND = True
EXAMPLES = (
    "dibs lease -g 2 jupyter lab",
    "dibs lease -t 8h python -m pdb train.py",
    "dibs lease --gpu-ids 0",
    'eval "$(dibs lease -g 2 --env)"',
    "dibs lease --gpu-ids 1 --pid 4242",
)

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


#: How each language of a shell sets and unsets a variable.
SET = {"sh": "export {name}={value};", "fish": "set -gx {name} {value};", "csh": "setenv {name} {value};"}
UNSET = {"sh": "unset {name};", "fish": "set -e {name};", "csh": "unsetenv {name};"}
#: The shortest failing command that all these shells understand.
FAILURE = "false;"
#: Shells whose language is not sh.
LANGUAGES = {"fish": "fish", "csh": "csh", "tcsh": "csh"}


class NotStarted(DibsError):
    """The command was not run; the exit code is the one a shell would return."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = code


def main(args: Args) -> int:
    """Wait for the GPUs, then run the command with them, or hold them."""
    _check(args)
    if args.has(RELEASE):
        return _release(args)
    if args.has(ENV) or args.has(PID):
        return _keep(args)
    values = settings.load(os.environ)
    given, words = drafts.split_variables(args.words)
    for name, _ in given:
        environment.check_given(name)
    argv = _argv(words, dict(given), values.shell) if words else None
    wanted = _wanted(args, values)
    with signals.Signals(*ENDING) as coming:
        try:
            held = lease_request.acquire(wanted, "lease", coming.fileno(), screen.say)
        except waiters.Interrupted:
            number = (coming.new() or [signal.SIGINT])[0]
            raise NotStarted(128 + number, "stopped waiting; nothing is leased.") from None
    ids = wanted.ordered([lease.device for lease in held])
    env = wanted.environ(ids)
    limit_s = args.get(TIME)
    if limit_s is not None:
        screen.say(_limit_text(wanted, ids, limit_s))
    if argv is None:
        return _hold(ids, env, limit_s)
    own = {name: value for name, value in os.environ.items() if name not in environment.DEVICE_NAMES}
    return _run(argv, {**own, **dict(given), **env}, held, limit_s, values.grace)


def _check(args: Args) -> None:
    """Refuse options that contradict each other."""
    apart = [option for option in (ENV, PID, RELEASE) if args.has(option)]
    if apart and args.words:
        name = apart[0].names[-1]
        raise UserError(f'{name} takes no command, got "{options.shown(" ".join(args.words))}".')
    if args.has(SHELL) and not (args.has(ENV) or args.has(RELEASE)):
        raise UserError("--shell says how --env prints; it means nothing without it.")
    if args.has(RELEASE):
        for option in OPTIONS:
            if args.has(option) and option not in (RELEASE, PID, SHELL):
                raise UserError(f"--release gives back all that was leased; {option.names[-1]} means nothing with it.")


def _wanted(args: Args, values: settings.Settings) -> lease_request.LeaseRequest:
    inventory = lease_request.inventory_now(values)
    request = lease_request.request(args, inventory)
    visible = args.get(job_options.VISIBLE) or values.visible
    return lease_request.LeaseRequest(request, inventory, values, visible, timeout_s=0 if args.has(NO_WAIT) else None)


def _limit_text(wanted: lease_request.LeaseRequest, ids: Sequence[DeviceId], limit_s: float) -> str:
    indices = ", ".join(str(index) for index in devices.indices(wanted.inventory, ids))
    end = times.shown(datetime.now(UTC) + timedelta(seconds=limit_s))
    return f"GPU {indices} leased for {units.format_duration(limit_s)}, until {end}"


# -- for a shell, or for a process that runs already ------------------------------------------------------------------


def _keep(args: Args) -> int:
    """Keep the GPUs leased while another process lives; on an error, make `eval` fail too."""
    try:
        return _kept(args)
    except (DibsError, KeyboardInterrupt):
        if args.has(ENV):
            print(FAILURE)
        raise


def _kept(args: Args) -> int:
    pid = args.get(PID)
    owner = keepers.asking_shell() if pid is None else keepers.adopted(pid)
    place = device_lease.folder()
    if args.has(ENV) and (held := keepers.keepers_of(place, [owner.pid])):
        raise Conflict(
            f"{owner.kind} {owner.pid} has leased {', '.join(held[0].devices)} already.", "First: dibs lease --release"
        )
    wanted = _wanted(args, settings.load(os.environ))
    if pid is not None:
        wanted = replace(wanted, request=_used_by(args, pid, wanted))
    limit_s = args.get(TIME)
    kept = keepers.keep(
        owner, place, limit_s, lambda wake_fd, say: lease_request.acquire(wanted, owner.note, wake_fd, say), screen.say
    )
    ids = wanted.ordered(kept.devices)
    _print_kept(args, wanted, owner, ids)
    sys.stdout.flush()
    kept.confirm()
    if limit_s is not None:
        screen.say(f"{_limit_text(wanted, ids, limit_s)}; what runs on them then is not stopped")
    return 0


def _print_kept(args: Args, wanted: lease_request.LeaseRequest, owner: keepers.Owner, ids: Sequence[DeviceId]) -> None:
    if not args.has(ENV):
        print("\n".join(ids))
        return
    language = _language(args, keepers.shell_name(owner))
    for name, value in wanted.environ(ids).items():
        print(SET[language].format(name=name, value=value))
    if sys.stdout.isatty():
        screen.say('these lines are for your shell: eval "$(dibs lease --env)"; dibs lease --release gives back')


def _used_by(args: Args, pid: int, wanted: lease_request.LeaseRequest) -> Request:
    """Return the request for a running process: by default, the GPUs that it already uses."""
    if args.has(job_options.GPUS) or args.has(job_options.GPU_IDS):
        return wanted.request
    family = {pid, *(proc.pid for proc in processes.descendants(pid))}
    used = [
        device.id for device in wanted.inventory.devices if any(process.pid in family for process in device.processes)
    ]
    return replace(wanted.request, gpus=len(used), gpu_ids=tuple(used)) if used else wanted.request


def _language(args: Args, shell: str) -> str:
    return args.get(SHELL) or LANGUAGES.get(shell, "sh")


def _release(args: Args) -> int:
    """Release the leases of this shell, or of the process in `--pid`."""
    pid = args.get(PID)
    owners = keepers.above_us() if pid is None else [pid]
    held = keepers.keepers_of(device_lease.folder(), owners)
    if not held:
        raise NotFound(
            "nothing is leased for this shell." if pid is None else f"nothing is leased for process {pid}.",
            "dibs gpus shows who holds what.",
        )
    keepers.end(held)
    screen.say(f"given back: {', '.join(device for each in held for device in each.devices)}")
    if pid is None:
        owner = processes.look(held[0].owner)
        language = _language(args, owner.comm.removeprefix("-") if owner else "")
        others = (name for name in environment.DEVICE_NAMES[1:] if name in os.environ)
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "DIBS_GPU_INDICES", *others):
            print(UNSET[language].format(name=name))
    return 0


# -- for a command of this terminal -----------------------------------------------------------------------------------


def _argv(words: Sequence[str], given: dict[str, str], shell: str) -> tuple[str, ...]:
    """Return the command to run; report a missing program before anything is leased."""
    path = given.get("PATH") or os.environ.get("PATH", os.defpath)
    is_string = commands.is_string(words)
    argv = commands.words(words[0], None if is_string else words, shell, path, os.getcwd())
    if not commands.is_found(argv[0], path, os.getcwd()):
        raise NotStarted(127, f"command not found: {options.shown(argv[0])}.")
    return argv


def _hold(ids: Sequence[DeviceId], env: dict[str, str], limit_s: float | None) -> int:
    """Hold the GPUs until a signal arrives. That is the normal end, so the exit code is 0."""
    with signals.Signals(*ENDING) as coming:
        print("\n".join(ids))
        for name in (name for name in environment.DEVICE_NAMES if name in env):
            print(f"export {name}={env[name]}")
        sys.stdout.flush()
        has_signal, _, _ = select([coming], [], [], limit_s)
    if not has_signal:
        screen.say("the time is over: the GPUs are given back")
    return 0 if has_signal else TimedOut.exit_code


def _run(
    argv: tuple[str, ...],
    env: dict[str, str],
    held: Sequence[device_lease.Lease],
    limit_s: float | None,
    grace_s: float,
) -> int:
    """Run the command as our child on this terminal, holding the leases itself; return its exit code."""
    import fcntl
    import subprocess

    inherited = [fcntl.fcntl(fd, fcntl.F_DUPFD, processes.FIRST_FD) for lease in held for fd in lease.fds()]

    def start(prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(argv, env=env, pass_fds=inherited, preexec_fn=prepare)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without #!: sh runs it, as in every shell.
            return subprocess.Popen(("/bin/sh", *argv), env=env, pass_fds=inherited, preexec_fn=prepare)

    try:
        attended = attached.AttachedCommand(start, is_limited=limit_s is not None)
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        raise NotStarted(code, f'cannot run "{options.shown(argv[0])}": {error.strerror}.') from None
    return attended.wait(limit_s, grace_s, screen.say)
