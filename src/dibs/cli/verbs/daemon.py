"""`dibs daemon`: start, stop, restart or inspect the process that runs the queue. Jobs run without it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from dibs.cli import screen
from dibs.client import answers, connection, daemon_process, queries
from dibs.client.connection import Client
from dibs.client.daemon_process import Unresponsive
from dibs.errors import MachineError, NoDaemon, NotFound, UserError
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import paths

SUMMARY = "Start, stop or inspect the daemon. Jobs keep running without it."
USAGE = (
    "start [--foreground]", "stop [--drain | --force]", "restart [--drain | --force]", "status [--json]",
    "install [--print]", "uninstall",
)  # fmt: skip
FOREGROUND: Option[bool] = Option(("--foreground",), "Run in the foreground, in this environment (start).")
DRAIN: Option[bool] = Option(("--drain",), "Start no new jobs and wait for running ones first (stop, restart).")
FORCE: Option[bool] = Option(("--force",), "Kill a daemon that does not respond; jobs keep running (stop, restart).")
PRINT: Option[bool] = Option(("--print",), "Only print what would be installed (install).")
OPTIONS: tuple[Option[object], ...] = (FOREGROUND, DRAIN, FORCE, PRINT, options.JSON)
EXAMPLES = (
    "dibs daemon status", "CUDA_VISIBLE_DEVICES=0,1 dibs daemon start", "dibs daemon stop --drain",
    "dibs daemon install",
)  # fmt: skip

#: Seconds that --force leaves a daemon to answer.
FORCE_AFTER_S = 2.0
#: Seconds within which a daemon must end.
STOP_FOR_S = 60.0
LOOK_EVERY_S = 0.02
#: Seconds between checks of running jobs, which may take hours.
DRAIN_EVERY_S = 0.2
NOT_RUNNING = 5


def main(args: Args) -> int:
    """Run the action that follows `daemon`."""
    word = options.action_of(args, "daemon", ACTIONS)
    action, fitting = ACTIONS[word]
    for option in OPTIONS:
        if args.has(option) and option not in fitting:
            raise UserError(f"daemon {word} has no option {option.names[-1]}.")
    if args.has(DRAIN) and args.has(FORCE):
        raise UserError("expected --drain or --force, got both.")
    return action(connection.connect(os.environ), args)


def start(queue: Client, args: Args) -> int:
    """Start a daemon with the GPUs that this shell allows."""
    running = queries.identity(queue)
    if running is not None:
        if args.has(FOREGROUND):
            raise UserError(f"a daemon is already running (pid {running['pid']}).", "Stop it: dibs daemon stop.")
        print(f"already running (pid {running['pid']})")
        return 0
    if args.has(FOREGROUND):
        queue.prepare_home()
        os.execv(sys.executable, [sys.executable, "-P", "-m", "dibs.daemon"])
    # Inside a job or a lease, dibs has set the variable, only for that job.
    visible = None if "DIBS_GPU_INDICES" in os.environ else os.environ.get("CUDA_VISIBLE_DEVICES")
    queue.start({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    running = queries.identity(queue)
    if running is None:
        raise NoDaemon("the daemon exited immediately after it started.", f"Its log is {paths.daemon_log(queue.home)}.")
    print(f"started (pid {running['pid']})")
    return 0


def stop(queue: Client, args: Args) -> int:
    """End the daemon and wait until it is gone; running jobs are not affected."""
    if args.has(FORCE) and not _answers(queue):
        with queue.start_lock():
            pid = daemon_process.replace(queue.home, STOP_FOR_S)
        print("not running" if pid is None else f"killed (pid {pid}); running jobs continue")
        return 0
    running = queries.identity(queue)
    pid = running["pid"] if running else daemon_process.lock_holder(queue.home)
    if pid is None:
        print("not running")
        return 0
    if running is None:
        os.kill(pid, signal.SIGTERM)
    elif args.has(DRAIN):
        _drain(queue)
    else:
        queue.post("/v1/daemon/stop", {})
    _wait_until_gone(queue, pid)
    print("stopped; no jobs are running" if args.has(DRAIN) else "stopped; running jobs continue")
    return 0


def _answers(queue: Client) -> bool:
    """Return whether a daemon answers at once."""
    try:
        return queries.identity(queue, FORCE_AFTER_S) is not None
    except MachineError:
        return False


def _drain(queue: Client) -> None:
    """Wait until the daemon, which starts nothing new, ends after the last job; Ctrl-C revokes the drain."""
    queue.post("/v1/daemon/stop", {"drain": True})
    queue.may_start = False
    shown = ""
    try:
        while (left := _under_way(queue)) is not None:
            text = f"waiting for {len(left)} job{'' if len(left) == 1 else 's'}: {', '.join(left[:8])}" if left else ""
            if text and text != shown:
                shown = text
                screen.say(text)
            time.sleep(DRAIN_EVERY_S)
    except KeyboardInterrupt:
        queue.post("/v1/daemon/stop", {"drain": False})
        screen.say("the daemon keeps running and starts jobs again.")
        raise
    finally:
        queue.may_start = True


def _under_way(queue: Client) -> list[str] | None:
    """Return the active jobs, with paused ones marked; None if the daemon is gone."""
    words = [("select", word) for word in ("starting", "running", "paused", "stopping")]
    try:
        jobs: list[answers.Job] = queue.get("/v1/jobs", words)["jobs"]
    except NotFound:
        return []
    except Unresponsive:
        raise
    except NoDaemon:
        return None
    return [f"{job['id']} (paused)" if job["state"] == "paused" else str(job["id"]) for job in jobs]


def _wait_until_gone(queue: Client, pid: int) -> None:
    """Wait until the daemon's lock is free. Only check it: taking it would block the next daemon."""
    until = time.monotonic() + STOP_FOR_S
    while daemon_process.lockers(queue.home):
        if time.monotonic() > until:
            text = f"the daemon (pid {pid}) did not end within {STOP_FOR_S:.0f} s."
            raise MachineError(text, f"Its log is {paths.daemon_log(queue.home)}.")
        time.sleep(LOOK_EVERY_S)


def restart(queue: Client, args: Args) -> int:
    """Stop the daemon if it runs, and start the installed version."""
    stop(queue, args)
    return start(queue, args)


def status(queue: Client, args: Args) -> int:
    """Print whether a daemon runs; the exit code says it too."""
    try:
        running = queries.identity(queue)
    except Unresponsive as error:
        return _tell_unresponsive(queue, args, error)
    if args.has(options.JSON):
        screen.print_json(running or {"running": False, "socket": str(queue.socket_path)})
    elif running is None and (pid := daemon_process.lock_holder(queue.home)) is not None:
        print(f"running (pid {pid}), but its socket is gone: dibs daemon restart")
    elif running is None:
        print("not running; it starts with the first command that needs it")
    else:
        view = screen.screen_of_stream(sys.stdout, args)
        since = screen.moment(view, running["started_at"], screen.now())
        print(f"running (pid {running['pid']}, version {screen.clean(running['version'])}, started {since})")
        print(f"socket {screen.clean(running['socket'])}")
    return 0 if running else NOT_RUNNING


def _tell_unresponsive(queue: Client, args: Args, error: Unresponsive) -> int:
    if args.has(options.JSON):
        told = {"running": False, "socket": str(queue.socket_path), "pid": error.pid, "problem": error.message}
        screen.print_json(told)
    else:
        print(f"not answering: {error.line()}")
    return NOT_RUNNING


def install(queue: Client, args: Args) -> int:
    """Make the system start the daemon at boot."""
    from dibs.cli import boot_service

    way = boot_service.find(os.environ)
    if args.has(PRINT):
        print(way.shown(), end="")
        return 0
    way.check()
    # The daemon of the service replaces ours; jobs are not affected.
    if queries.identity(queue) is not None:
        stop(queue, Args())
    for line in way.install():
        print(line)
    return 0


def uninstall(queue: Client, args: Args) -> int:
    """Undo `install`."""
    from dibs.cli import boot_service

    way = boot_service.available(os.environ)
    if way is None:
        screen.say("nothing was installed: neither systemd nor cron is available.")
        return 0
    for line in way.uninstall():
        print(line)
    return 0


#: The actions, and the options of each.
ACTIONS: dict[str, tuple[Callable[[Client, Args], int], tuple[Option[object], ...]]] = {
    "start": (start, (FOREGROUND,)), "stop": (stop, (DRAIN, FORCE)), "restart": (restart, (DRAIN, FORCE)),
    "status": (status, (options.JSON,)), "install": (install, (PRINT,)), "uninstall": (uninstall, ()),
}  # fmt: skip
