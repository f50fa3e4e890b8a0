"""Checks of the daemon and of what this machine allows it: interpreter, limits, logout, reboot, clock, memory."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from dibs.client import daemon_process, machine_limits, queries
from dibs.client.checks.findings import OK, PROBLEM, WARNING, Finding, Patient
from dibs.model import units
from dibs.system import logout_policy, paths
from dibs.version import __version__

#: Seconds that the clock may be behind the time of a file that we wrote.
CLOCK_S = 120.0
#: Where `dibs daemon install` and administrators put systemd units.
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/etc/systemd/user")
#: Seconds for `crontab -l`; only this tool and root can read the stored crontab.
CRONTAB_S = 3.0


def interpreter(patient: Patient) -> list[Finding]:
    """Check the Python of this command and of the daemon: without it no job can be started."""
    pid = daemon_process.lock_holder(patient.home)
    if problem := machine_limits.interpreter(sys.executable):
        return [Finding("python", PROBLEM, *problem)]
    problem = None if pid is None else machine_limits.daemon_interpreter(pid)
    return [] if problem is None else [Finding("python", WARNING, *problem)]


def limits(patient: Patient) -> list[Finding]:
    """Check how many processes and files the daemon may have, or one that is started here."""
    pid = daemon_process.lock_holder(patient.home)
    problems = [machine_limits.process_limit(pid), machine_limits.file_limit(pid)]
    found = [Finding("limits", WARNING, *problem) for problem in problems if problem is not None]
    return found or [Finding("limits", OK, "limits of processes and open files are sufficient")]


def service(patient: Patient) -> list[Finding]:
    """Check whether a daemon answers, and whether it is this version."""
    queue = patient.queue
    socket = queue.socket_path
    running = queries.identity(queue)
    if running is None and (pid := daemon_process.lock_holder(queue.home)) is not None:
        return [
            Finding("daemon", PROBLEM, f"pid {pid} is running, but its socket {socket} is gone", "dibs daemon restart")
        ]
    if running is None:
        return [Finding("daemon", OK, "not running; it starts with the first command that needs it")]
    text = f"pid {running['pid']}, version {running['version']}, socket {socket}"
    found = [Finding("daemon", OK, text)]
    if running["version"] != __version__:
        text = f"version {running['version']} runs, {__version__} is installed"
        found = [Finding("daemon", WARNING, text, "`dibs daemon restart`; running jobs continue.")]
    mode = stat.S_IMODE(socket.stat().st_mode)
    if mode & 0o177:
        found.append(Finding("daemon", PROBLEM, f"{socket} is open to others ({mode:04o})", "dibs daemon restart"))
    return found


def logout(patient: Patient) -> list[Finding]:
    """Report whether jobs keep running after the user logs out."""
    why = logout_policy.logout_kills(daemon_process.lock_holder(patient.home) or "self")
    if why:
        return [Finding("logout", WARNING, why, logout_policy.REMEDY)]
    return [Finding("logout", OK, "jobs keep running when you log out")]


def reboot(patient: Patient) -> list[Finding]:
    """Report whether the daemon starts automatically after a reboot."""
    if how := _installed(patient.environ):
        return [Finding("reboot", OK, f"the queue restarts automatically ({how})")]
    text = "after a reboot the queue restarts with the first dibs command"
    return [Finding("reboot", WARNING, text, "`dibs daemon install` starts it at boot.")]


def _installed(environ: Mapping[str, str]) -> str | None:
    own = Path(environ.get("XDG_CONFIG_HOME") or paths.user_home(environ) / ".config") / "systemd" / "user"
    for folder in (own, *(Path(name) for name in UNIT_FOLDERS)):
        for unit in sorted(folder.glob("dibs*.service")) if folder.is_dir() else ():
            return str(unit)
    return "cron" if "@reboot" in (table := _crontab()) and "dibs" in table else None


def _crontab() -> str:
    if shutil.which("crontab") is None:
        return ""
    try:
        done = subprocess.run(["crontab", "-l"], capture_output=True, text=True, timeout=CRONTAB_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "\n".join(line for line in done.stdout.splitlines() if not line.lstrip().startswith("#"))


def clock(patient: Patient) -> list[Finding]:
    """Compare the clock with the last change of the state folder."""
    try:
        behind = patient.home.stat().st_mtime - time.time()
    except OSError:
        behind = 0.0
    if behind > CLOCK_S:
        text = f"the clock is {units.format_duration(behind)} behind the last change of {patient.home}"
        return [Finding("clock", WARNING, text, "Correct it (timedatectl); until then, times in the queue are wrong.")]
    return [Finding("clock", OK, time.strftime("%Y-%m-%d %H:%M:%S %Z"))]


def group(patient: Patient) -> list[Finding]:
    """Check the memory limit of the cgroup that a daemon started here would be in."""
    lines = paths.read_text("/proc/self/cgroup").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return [Finding("cgroup", OK, "version 1 or none; its limits are not checked")]
    for folder in (Path(f"/sys/fs/cgroup{path}"), *Path(f"/sys/fs/cgroup{path}").parents):
        limit = paths.read_text(folder / "memory.max").strip()
        if limit.isdigit():
            text = f"all your jobs together may use {units.format_size(int(limit))} of memory ({folder})"
            return [
                Finding("cgroup", WARNING, text, "Above it the kernel kills one of them; declare needs with --mem.")
            ]
        if folder == Path("/sys/fs/cgroup"):
            break
    return [Finding("cgroup", OK, "no memory limit")]
