"""The checks of `dibs doctor`: one function per subject, each with a deadline, so that a dead disk blocks nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from dibs.client import connection, daemon_process, forgeries, machine_limits, queries
from dibs.client.answers import Gpus
from dibs.devices import probe
from dibs.engines.job_files import JobFiles
from dibs.errors import DibsError, UserError
from dibs.jobqueue import turns
from dibs.leases import blockers, prepared_folder
from dibs.model import units
from dibs.model.devices import Inventory
from dibs.store import copies, custody, marker
from dibs.store.reader import Reader
from dibs.system import disk, locks, logout_policy, paths, settings, trusted_paths
from dibs.system.settings import Settings
from dibs.version import __version__

OK, WARNING, PROBLEM = "ok", "warning", "problem"

#: Seconds for one check; longer than `DRIVER_S`, the probe's own deadline for the GPUs.
DEADLINE_S = 15.0
#: Seconds for the driver.
DRIVER_S = 8.0
#: Seconds for counting the files of jobs; after that the total is reported as incomplete.
COUNT_FOR_S = 3.0
#: Size of the state folder in bytes above which to warn.
MUCH_BYTES = 20 * 1024**3
#: Seconds that the clock may be behind the time of a file that we wrote.
CLOCK_S = 120.0
#: The driver's library, by the name under which programs load it.
NVML = "libnvidia-ml.so.1"
#: Where `dibs daemon install` and administrators put systemd units.
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/etc/systemd/user")
#: Seconds for `crontab -l`; only this tool and root can read the stored crontab.
CRONTAB_S = 3.0
#: Forged tickets and records that are listed.
MOST_FORGED = 10


@dataclass(frozen=True)
class Finding:
    """One line of `dibs doctor`."""

    check: str
    level: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Patient:
    """The environment that the checks examine."""

    environ: Mapping[str, str]
    home: Path
    note: str | None
    values: Settings
    place: str

    @property
    def queue(self) -> connection.Client:
        return connection.Client(self.home, self.environ)


def run(environ: Mapping[str, str], but_for: Collection[str] = ()) -> list[Finding]:
    """Run all checks except `but_for`; if the settings or folders are unusable, report only these."""
    found = [python()]
    try:
        values = settings.load(environ)
        home = paths.home(environ)
    except UserError as error:
        return [*found, Finding("settings", PROBLEM, error.message, error.hint or "Correct the file or the variable.")]
    found.append(_sources(values))
    place = str(values.lease_dir) if values.lease_dir else locks.standard_path()
    patient = Patient(environ, home.path, home.note, values, place)
    for name, check in CHECKS.items():
        if name in but_for:
            continue
        found += within(name, lambda check=check: check(patient))  # type: ignore[misc]
    return found


def within(name: str, check: Callable[[], list[Finding]], deadline_s: float = DEADLINE_S) -> list[Finding]:
    """Return the findings of a check; a check that hangs, as on a dead network disk, is itself a finding."""
    found: list[Finding] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            found.extend(check())
        except Exception as error:  # noqa: BLE001 - handed over to the thread that asked
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline_s)
    if thread.is_alive():
        return [Finding(name, PROBLEM, f"no answer within {deadline_s:g} s", "Is a disk or the driver stuck?")]
    match failed:
        case [DibsError() as error]:
            return [Finding(name, PROBLEM, error.message, error.hint)]
        case [OSError() as error]:
            return [Finding(name, PROBLEM, f"{error.filename or name}: {error.strerror or error}", "")]
        case [error]:
            raise error
    return found


def python() -> Finding:
    """Return the versions of Python and dibs."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", OK, f"dibs {__version__} on Python {version} ({sys.executable})")


def _sources(values: Settings) -> Finding:
    changed = [f"{name} ({source})" for name, source in values.sources.items() if source != "default"]
    return Finding("settings", OK, f"set: {', '.join(changed)}" if changed else "all at their defaults")


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
    return found or [Finding("limits", OK, "enough processes and open files")]


def gpus(patient: Patient, driver_s: float = DRIVER_S) -> list[Finding]:
    """Check the GPUs as this shell sees them, through a child process, which may hang without harm; then ask the
    daemon, whose environment is another one."""
    seen = probe.Probe(patient.values, first_deadline_s=driver_s).read()
    running = queries.identity(patient.queue)
    if running is None or seen.problem:
        return _own_gpus(patient, seen)
    if running["devices"] != patient.values.devices:
        text = f"the daemon uses the setting devices = {running['devices']}, this shell {patient.values.devices}"
        fix = "Jobs get those of the daemon. `dibs daemon restart` lets it use those of this shell."
        return [Finding("gpus", WARNING, text, fix), *_own_gpus(patient, seen)]
    answer: Gpus = patient.queue.get("/v1/gpus")
    if answer["problem"] is None and len(answer["gpus"]) == len(seen.devices):
        return [*_own_gpus(patient, seen), *_idle_leases(answer)]
    count = len(seen.devices)
    text = answer["problem"] or f"the daemon sees {len(answer['gpus']) or 'none'}"
    if not count:
        return [Finding("gpus", PROBLEM, text, "Try nvidia-smi. If the GPUs are gone: dibs config set devices none")]
    return [Finding("gpus", PROBLEM, f"{text}; this shell sees {count}", _how_to_see(patient.environ))]


def _idle_leases(answer: Gpus) -> list[Finding]:
    """Name the leases whose GPUs have not been used for a while."""
    found = []
    for gpu in (gpu for gpu in answer["gpus"] if gpu["is_idle"]):
        who = ", ".join(f"{one['user'] or 'somebody'} (pid {one['pid'] or '?'})" for one in gpu["holders"])
        text = f"GPU {gpu['index']} is leased by {who} and has not been used since {gpu['unused_since']}"
        found.append(Finding("gpus", WARNING, text, "Ask its holder to release it: dibs lease --release."))
    return found


def _how_to_see(environ: Mapping[str, str]) -> str:
    """Return how the daemon, which does not get LD_LIBRARY_PATH, comes to see what this shell sees."""
    folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    found = (Path(folder, NVML) for folder in folders if folder and Path(folder, NVML).exists())
    library = next(found, None)
    if library is None:
        return "dibs daemon restart"
    return f"LD_LIBRARY_PATH does not reach the daemon: dibs config set nvml_library {library} && dibs daemon restart"


def _own_gpus(patient: Patient, seen: Inventory) -> list[Finding]:
    if seen.problem:
        return [Finding("gpus", PROBLEM, seen.problem, "Try nvidia-smi. Jobs without GPUs still run.")]
    unwell = [
        Finding("gpus", WARNING, f"GPU {d.index}: {d.fault}", "No job starts there; see nvidia-smi -q.")
        for d in seen.devices
        if d.fault
    ]
    if seen.restriction:
        unwell.append(Finding("gpus", WARNING, f"restricted: {seen.restriction}", "Unset it to use all GPUs."))
    if not seen.devices:
        text = "none found; jobs without GPUs still run"
        return [*unwell, Finding("gpus", WARNING, text, "To try dibs with pretend GPUs: export DIBS_DEVICES=fake:4")]
    unwell += [
        Finding("gpus", PROBLEM, f"{device}: {prepared_folder.MISSING}", "`sudo dibs machine init` adds it.")
        for device in prepared_folder.missing(locks.Folder(patient.place), seen.ids)
    ]
    names = ", ".join(dict.fromkeys(device.name for device in seen.devices))
    visible = patient.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        text = f"CUDA_VISIBLE_DEVICES={visible} in this shell does not reach jobs: dibs sets it for each"
        unwell.append(Finding("gpus", OK, text))
    return [Finding("gpus", OK, f"{len(seen.devices)}: {names}"), *unwell]


def state(patient: Patient) -> list[Finding]:
    """Check the state folder: its file system, owner, mode and free space."""
    home = patient.home
    kind = paths.mount_type(os.path.realpath(home), paths.read_text("/proc/self/mountinfo"))
    found = [Finding("state", OK, patient.note)] if patient.note else []
    if not home.exists():
        nearest = next(folder for folder in home.parents if folder.exists())
        if not os.access(nearest, os.W_OK | os.X_OK):
            text = f"{home} does not exist and cannot be created in {nearest}"
            return [*found, Finding("state", PROBLEM, text, "Set DIBS_HOME to a folder of yours.")]
        return [*found, Finding("state", OK, f"{home} ({kind}) will be created by the first command"), *_room(nearest)]
    about = home.stat()
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid != os.geteuid():
        text = f"{home} belongs to user {about.st_uid}, not to you"
        return [*found, Finding("state", PROBLEM, text, paths.ELSEWHERE)]
    if mode & 0o077:
        found.append(Finding("state", PROBLEM, f"{home} is open to others ({mode:04o})", f"chmod 700 {home}"))
    if not os.access(home, os.W_OK | os.X_OK):
        found.append(Finding("state", PROBLEM, f"{home} cannot be written to", f"chmod 700 {home}, or see mount"))
    return [*(found or [Finding("state", OK, f"{home} ({kind}, {mode:04o})")]), *_room(home)]


def _room(folder: Path, fix: str = "Free some space, or move logs elsewhere with the setting files.") -> list[Finding]:
    left = disk.room(folder)
    if warning := disk.warning(folder, left):
        return [Finding("disk", WARNING, warning, fix)]
    names = "" if left.free_files is None else f", room for {left.free_files:,} files"
    text = f"{units.format_size(left.free)} of {units.format_size(left.total)} free for {folder}{names}"
    return [Finding("disk", OK, text)]


def files(patient: Patient) -> list[Finding]:
    """Check the folder for logs, if the setting `files` names one."""
    folder = patient.values.files
    if folder is None:
        return []
    if why := trusted_paths.find_problem(str(folder)):
        return [Finding("files", PROBLEM, f"{folder}: {why}", "Name another folder, or unset files.")]
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return [Finding("files", PROBLEM, f"{folder} is not a folder you can write to", "Create it, or unset files.")]
    return [Finding("files", OK, f"logs and checkpoints go to {folder}"), *_room(folder)]


def database(patient: Patient) -> list[Finding]:
    """Check that the queue's database is there, and when it was last copied."""
    path = paths.database(patient.home)
    mark = marker.read(patient.home)
    saved = copies.saved(path)
    if saved.exists():
        text = f"{path} was deleted or replaced under the daemon; all jobs are saved in {saved}"
        return [Finding("database", PROBLEM, text, "`dibs doctor --repair` restores them.")]
    if why := custody.missing(path, mark, JobFiles(patient.home, patient.home).highest_id()):
        return [Finding("database", PROBLEM, why, custody.REPAIR)]
    if not path.exists():
        return []
    with contextlib.closing(Reader.open(path)) as reader:
        question = reader.fact(turns.QUESTION)
        restored = reader.fact(turns.RESTORED) if reader.is_any_held(turns.FROM_COPY) else None
    made = copies.numbered(path)
    age = units.format_duration(max(0.0, time.time() - made[-1].stat().st_mtime)) if made else ""
    text = f"copied {age} ago, to {made[-1]}" if made else "not copied yet"
    found = [Finding("database", OK, text)]
    if restored:
        found.append(Finding("database", OK, restored))
    if question:
        found.append(Finding("database", WARNING, question, "dibs clean"))
    return found


def use(patient: Patient) -> list[Finding]:
    """Report how much disk space the queue uses."""
    if not patient.home.exists():
        return []
    until = time.monotonic() + COUNT_FOR_S
    jobs, is_whole = size_of((patient.values.files or patient.home) / "jobs", until)
    database = sum(_size(patient.home / name) for name in ("dibs.db", "dibs.db-wal"))
    copies, _ = size_of(patient.home / "backups", until)
    own = sum(_size(patient.home / name) for name in ("daemon.log", "runners.log"))
    parts = ((jobs, "jobs"), (database, "database"), (copies, "copies of it"), (own, "daemon's logs"))
    text = ", ".join(f"{name} {units.format_size(size)}" for size, name in parts)
    is_much = jobs + database + copies + own > MUCH_BYTES
    text = text if is_whole else f"{text} (or more; counting timed out)"
    return [Finding("use", WARNING if is_much else OK, text, "`dibs clean` deletes finished jobs." if is_much else "")]


def size_of(folder: Path, until: float) -> tuple[int, bool]:
    """Return the bytes below a folder, and whether all were counted in time."""
    total = 0
    for top, _, names in os.walk(folder):
        total += sum(_size(Path(top, name)) for name in names)
        if time.monotonic() > until:
            return total, False
    return total, True


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def lease_folder(patient: Patient) -> list[Finding]:
    """Check the lease folder that all users of the machine share, and who misuses it."""
    place = locks.Folder(patient.place)
    path = place.line_path
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        fix = "It must exist and be writable for all users: chmod 1777."
        return [Finding("leases", PROBLEM, f"{path} cannot be used", fix)]
    return [_lease_mode(patient, place), *_blocked(place), *_forged(place)]


def _lease_mode(patient: Patient, place: locks.Folder) -> Finding:
    mode = stat.S_IMODE(os.stat(place.line_path).st_mode)
    if patient.values.lease_dir is not None:
        fix = "Unset DIBS_LEASE_DIR: it is for tests."
        return Finding("leases", WARNING, f"{place.path} is not the lease folder of other users", fix)
    if mode & 0o1777 != 0o1777:
        fix = f"As root: chmod 1777 {place.path}"
        return Finding("leases", WARNING, f"{place.path} is not open to all users ({mode:04o})", fix)
    if place.is_prepared:
        return Finding("leases", OK, f"in {place.path}, prepared by root")
    fix = "`sudo dibs machine init` protects the files from other users."
    return Finding("leases", OK, f"in {place.path}, shared by all users", fix)


def _blocked(place: locks.Folder) -> list[Finding]:
    found = blockers.find(place, blockers.all_devices(place))
    return [Finding("leases", PROBLEM, f"{device} is {who.text}", who.cure) for device, who in found.items()]


def _forged(place: locks.Folder) -> list[Finding]:
    found = forgeries.find(place)
    told = [
        Finding("leases", WARNING, f"{path} is ignored: {why}", f"`sudo rm {path}` removes it.")
        for path, why in list(found.items())[:MOST_FORGED]
    ]
    if len(found) > MOST_FORGED:
        told.append(
            Finding("leases", WARNING, f"{len(found) - MOST_FORGED} more tickets, records or reservations are ignored")
        )
    return told


def lease_disk(patient: Patient) -> list[Finding]:
    """Check the disk of the lease folder: a lease that cannot be written is not taken."""
    place = Path(patient.place)
    return _room(place, "Free some space: without it no GPU can be leased.") if place.is_dir() else []


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
    import subprocess

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
        return [Finding("clock", WARNING, text, "Set it (timedatectl); times in the queue look odd until then.")]
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


#: In the order of the report.
CHECKS: dict[str, Callable[[Patient], list[Finding]]] = {
    "interpreter": interpreter,
    "gpus": gpus,
    "state": state,
    "files": files,
    "database": database,
    "use": use,
    "leases": lease_folder,
    "lease disk": lease_disk,
    "limits": limits,
    "daemon": service,
    "logout": logout,
    "reboot": reboot,
    "clock": clock,
    "cgroup": group,
}
