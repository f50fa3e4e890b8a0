"""`dibs lease`: hold GPUs for a command in this terminal or until Ctrl-C. Needs no daemon.

It uses the same leases and the same machine-wide line as all other ways to get a GPU. The command inherits the leases,
so it holds the GPUs while any of its processes lives, even if we are killed. With `--env` or `--pid` a small process
keeps them while a shell, or a process that already runs, lives (`keepers`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from select import select

from dibs.cli import screen
from dibs.client import connection
from dibs.errors import Conflict, DibsError, NotFound, TimedOut, UserError
from dibs.foreground import attached, keepers, lease_ends, lease_request, signals
from dibs.foreground.lease_ends import LeaseClock
from dibs.leases import device_lease, waiters
from dibs.model import devices, environment, units
from dibs.model.devices import DeviceId
from dibs.model.jobs import Request
from dibs.submission import drafts, job_options, options, times
from dibs.submission.options import Args, Option
from dibs.system import commands, paths, processes, settings

SUMMARY = "Lease GPUs for interactive use: a command, this shell, or until Ctrl-C."
USAGE = (
    "[OPTIONS] [COMMAND...]", '--env [OPTIONS]    as in eval "$(dibs lease --env)"', "--pid PID [OPTIONS]", "--release",
    "--extend TIME [--pid PID]",
)  # fmt: skip
TIME = Option(
    ("-t", "--time"), "Release the GPUs after this time; you are warned beforehand. "
    "The command gets SIGTERM, then SIGKILL; exit code 124.",
    options.POSITIVE_DURATION, "8h",
)  # fmt: skip
ENV: Option[bool] = Option(
    ("--env",), "Print shell commands for eval. The lease lasts until that shell exits or runs --release."
)
SHELL = Option(
    ("--shell",), "Shell syntax of --env and --release. Default: that of the calling shell.",
    options.one_of("sh", "fish", "csh"), "sh|fish|csh",
)  # fmt: skip
PID = Option(("--pid",), "Hold the GPUs until this process of yours exits.", options.whole(1), "PID")
RELEASE: Option[bool] = Option(("--release",), "Release the GPUs leased by this shell or by --pid PID.")
EXTEND = Option(
    ("--extend",), "Extend a lease that has --time: of this shell, or of --pid PID.", options.POSITIVE_DURATION, "1h"
)
NO_WAIT: Option[bool] = Option(("--no-wait",), "Exit with code 75 if the GPUs are not free now.")
OPTIONS: tuple[Option[object], ...] = (
    job_options.GPUS, job_options.GPU_IDS, job_options.PREFER, job_options.GPU_TYPE, job_options.VRAM,
    job_options.IGNORE_FOREIGN, job_options.VISIBLE, TIME, ENV, PID, RELEASE, EXTEND, SHELL, NO_WAIT,
)  # fmt: skip
#: Options that take a lease that exists, those that go with each, and what it does.
ALONE: tuple[tuple[Option[object], tuple[Option[object], ...], str], ...] = (
    (EXTEND, (EXTEND, PID), "changes a lease that exists"),
    (RELEASE, (RELEASE, PID, SHELL), "releases everything that was leased"),
)
TAKES_COMMAND = True
EXAMPLES = (
    "dibs lease -g 2 jupyter lab",
    "dibs lease -t 8h python -m pdb train.py",
    "dibs lease --gpu-ids 0",
    'eval "$(dibs lease -g 2 --env)"',
    "dibs lease --gpu-ids 1 --pid 4242",
    "dibs lease --extend 1h",
)

#: Seconds of the longest sleep, and in which our daemon has to answer.
LONGEST_S, DAEMON_S = 3600.0, 2.0
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
    if args.has(EXTEND):
        return _extend(args)
    if args.has(ENV) or args.has(PID):
        return _keep(args)
    values = settings.load(os.environ)
    given, words = drafts.split_variables(args.words)
    for name, _ in given:
        environment.check_given(name)
    argv = _argv(words, dict(given), values.shell, args.caller.folder()) if words else None
    wanted = _wanted(args, values)
    limit_s = wanted.limit_s
    with signals.Signals(*ENDING) as coming:
        try:
            held = lease_request.acquire(wanted, "lease", coming.fileno(), screen.say)
        except waiters.Interrupted:
            number = (coming.new() or [signal.SIGINT])[0]
            raise NotStarted(128 + number, "stopped waiting; nothing is leased.") from None
    ids = wanted.ordered([lease.device for lease in held])
    env = wanted.environ(ids)
    if limit_s is not None:
        screen.say(_limit_text(wanted, ids, limit_s))
    own = {name: value for name, value in os.environ.items() if name not in environment.DEVICE_NAMES}
    place = device_lease.folder()
    _let_daemon_watch()
    end = None if limit_s is None else lease_ends.begin(place, limit_s)
    clock = lease_ends.LeaseClock(end, screen.say)
    try:
        if argv is None:
            return _hold(ids, env, clock)
        return _run(argv, {**own, **dict(given), **env}, held, clock, values.grace)
    finally:
        if end is not None:
            end.remove()
        device_lease.release(place, held)


def _check(args: Args) -> None:
    """Refuse options that contradict each other."""
    apart = [option for option in (ENV, PID, RELEASE, EXTEND) if args.has(option)]
    if apart and args.words:
        name = apart[0].names[-1]
        raise UserError(f'{name} takes no command, got "{options.shown(" ".join(args.words))}".')
    if args.has(SHELL) and not (args.has(ENV) or args.has(RELEASE)):
        raise UserError("--shell has no effect without --env or --release.")
    for alone, fitting, what in ALONE:
        for option in OPTIONS if args.has(alone) else ():
            if args.has(option) and option not in fitting:
                raise UserError(f"{alone.names[-1]} {what}; {option.names[-1]} has no effect with it.")


def _wanted(args: Args, values: settings.Settings) -> lease_request.LeaseRequest:
    inventory = lease_request.inventory_now(values)
    request = lease_request.request(args, inventory, values.rules)
    visible = args.get(job_options.VISIBLE) or values.visible
    limit_s = lease_request.longest_s(args.get(TIME), values.rules)
    timeout_s = 0 if args.has(NO_WAIT) else None
    return lease_request.LeaseRequest(request, inventory, values, visible, timeout_s, limit_s)


def _let_daemon_watch() -> None:
    """Let our daemon, if one runs, look at the GPUs while they are leased: it warns if they are not used."""
    client = connection.Client(paths.home(os.environ).path, os.environ)
    client.may_start = False
    with contextlib.suppress(DibsError, OSError):
        client.get("/v1/gpus", patience_s=DAEMON_S)


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
    limit_s = wanted.limit_s
    kept = keepers.keep(
        owner, place, limit_s, lambda wake_fd, say: lease_request.acquire(wanted, owner.note, wake_fd, say), screen.say
    )
    ids = wanted.ordered(kept.devices)
    _print_kept(args, wanted, owner, ids)
    sys.stdout.flush()
    kept.confirm()
    _let_daemon_watch()
    if limit_s is not None:
        screen.say(f"{_limit_text(wanted, ids, limit_s)}; running programs are not stopped then")
    return 0


def _print_kept(args: Args, wanted: lease_request.LeaseRequest, owner: keepers.Owner, ids: Sequence[DeviceId]) -> None:
    if not args.has(ENV):
        print("\n".join(ids))
        return
    language = _language(args, keepers.shell_name(owner))
    for name, value in wanted.environ(ids).items():
        print(SET[language].format(name=name, value=value))
    if sys.stdout.isatty():
        screen.say('these lines are for your shell: eval "$(dibs lease --env)"; release with dibs lease --release')


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
    screen.say(f"released: {', '.join(device for each in held for device in each.devices)}")
    if pid is None:
        owner = processes.look(held[0].owner)
        language = _language(args, owner.comm.removeprefix("-") if owner else "")
        others = (name for name in environment.DEVICE_NAMES[1:] if name in os.environ)
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "DIBS_GPU_INDICES", *others):
            print(UNSET[language].format(name=name))
    return 0


def _extend(args: Args) -> int:
    """Move the end of the leases of this shell, or of the process in `--pid`."""
    pid, more_s = args.get(PID), args.get(EXTEND) or 0.0
    found = lease_ends.find(device_lease.folder(), keepers.above_us() if pid is None else [pid])
    if not found:
        who = "this shell" if pid is None else f"process {pid}"
        raise NotFound(
            f"no lease with a time limit (--time) belongs to {who}.",
            "A lease without one lasts until it is released. Name another with --pid; dibs gpus shows the pids.",
        )
    rules = settings.load(os.environ).rules
    for each in found:
        lease_request.longest_s(each.at + more_s - each.began_at, rules)
    for each in found:
        later = each.extended(more_s)
        later.write()
        left_s = later.at - time.monotonic()
        end = times.shown(datetime.now(UTC) + timedelta(seconds=left_s))
        screen.say(f"the lease of process {each.owner} lasts {units.format_duration(left_s)} more, until {end}")
    return 0


# -- for a command of this terminal -----------------------------------------------------------------------------------


def _argv(words: Sequence[str], given: dict[str, str], shell: str, cwd: str) -> tuple[str, ...]:
    """Return the command to run; report a missing program before anything is leased."""
    path = given.get("PATH") or os.environ.get("PATH", os.defpath)
    is_string = commands.is_string(words)
    argv = commands.words(words[0], None if is_string else words, shell, path, cwd)
    if not commands.is_found(argv[0], path, cwd):
        raise NotStarted(127, f"command not found: {options.shown(argv[0])}.")
    return argv


def _hold(ids: Sequence[DeviceId], env: dict[str, str], clock: LeaseClock) -> int:
    """Hold the GPUs until a signal arrives. That is the normal end, so the exit code is 0."""
    with signals.Signals(*ENDING) as coming:
        print("\n".join(ids))
        for name in (name for name in environment.DEVICE_NAMES if name in env):
            print(f"export {name}={env[name]}")
        sys.stdout.flush()
        while not clock.is_over(time.monotonic()):
            if select([coming], [], [], min(LONGEST_S, max(0.0, clock.wake_at - time.monotonic())))[0]:
                return 0
    screen.say("lease time limit reached: the GPUs are released")
    return TimedOut.exit_code


def _run(
    argv: tuple[str, ...],
    env: dict[str, str],
    held: Sequence[device_lease.Lease],
    clock: LeaseClock,
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
        attended = attached.AttachedCommand(start, is_limited=clock.is_limited)
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        raise NotStarted(code, f'cannot run "{options.shown(argv[0])}": {error.strerror}.') from None
    return attended.wait(clock, grace_s, screen.say)
