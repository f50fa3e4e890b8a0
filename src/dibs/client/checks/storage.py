"""Checks of what is on disk: the state folder, the logs, the database, and how much room they use and have."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from dibs.client.checks.findings import OK, PROBLEM, WARNING, Finding, Patient
from dibs.engines.job_files import JobFiles
from dibs.jobqueue import turns
from dibs.model import units
from dibs.store import copies, custody, marker
from dibs.store.reader import Reader
from dibs.system import disk, paths, trusted_paths

#: Seconds for counting the files of jobs; after that the total is reported as incomplete.
COUNT_FOR_S = 3.0
#: Size of the state folder in bytes above which to warn.
MUCH_BYTES = 20 * 1024**3


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
        return [*found, Finding("state", OK, f"{home} ({kind}) will be created by the first command"), *room(nearest)]
    about = home.stat()
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid != os.geteuid():
        text = f"{home} belongs to user {about.st_uid}, not to you"
        return [*found, Finding("state", PROBLEM, text, paths.ELSEWHERE)]
    if mode & 0o077:
        found.append(Finding("state", PROBLEM, f"{home} is open to others ({mode:04o})", f"chmod 700 {home}"))
    if not os.access(home, os.W_OK | os.X_OK):
        found.append(Finding("state", PROBLEM, f"{home} cannot be written to", f"chmod 700 {home}, or see mount"))
    return [*(found or [Finding("state", OK, f"{home} ({kind}, {mode:04o})")]), *room(home)]


def room(folder: Path, fix: str = "Free some space, or move logs elsewhere with the setting files.") -> list[Finding]:
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
    return [Finding("files", OK, f"logs and checkpoints go to {folder}"), *room(folder)]


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
    text = f"last backup {age} ago: {made[-1]}" if made else "no backup yet"
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
    parts = ((jobs, "jobs"), (database, "database"), (copies, "backups"), (own, "daemon's logs"))
    text = ", ".join(f"{name} {units.format_size(size)}" for size, name in parts)
    is_much = jobs + database + copies + own > MUCH_BYTES
    text = text if is_whole else f"{text} (at least; counting timed out)"
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
