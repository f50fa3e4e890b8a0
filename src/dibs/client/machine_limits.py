"""Limits of this machine that would keep jobs from starting: the interpreter, processes, open files.

Each function returns what is wrong and what to do about it, or None; `client.doctor` reports them.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

from dibs.errors import MachineError
from dibs.system import locks, processes

#: What is wrong, and the fix.
Problem = tuple[str, str]

#: Seconds for an interpreter to tell its version; a cold one on a loaded machine needs several.
VERSION_FOR_S = 10.0
#: Processes and threads that should be left: a job with data loaders and a BLAS library starts dozens.
FEW_PROCESSES = 200
#: Open files that a daemon should be allowed: each job and each connection needs some.
FEW_FILES = 512
#: The share of its open files from which a daemon is close to its limit.
MUCH_USED = 0.8


def interpreter(path: str) -> Problem | None:
    """Check the Python that runs dibs: it must be there, be executable, and still be the same version."""
    if not os.path.exists(path):
        return f"{path} is missing: no daemon or job can be started", "Install dibs again."
    if not os.access(path, os.X_OK):
        return f"{path} cannot be executed", f"chmod +x {path}, or see mount for noexec."
    own = "{}.{}.{}".format(*sys.version_info)
    code = "import sys; print('{}.{}.{}'.format(*sys.version_info))"
    try:
        asked = [path, "-I", "-S", "-c", code]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=VERSION_FOR_S, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path} does not run: {error}", "Install dibs again."
    if told != own:
        return f"{path} is Python {told} now, dibs started with {own}", "`dibs daemon restart`, or install dibs again."
    return None


def daemon_interpreter(pid: int) -> Problem | None:
    """Check the Python of a running daemon, which starts runners with the same path."""
    words = processes.words(pid)
    try:
        was_removed = os.readlink(f"/proc/{pid}/exe").endswith(" (deleted)")
    except OSError:
        return None
    if words and os.path.isabs(words[0]) and not os.access(words[0], os.X_OK):
        text = f"{words[0]}, the daemon's interpreter for starting jobs, cannot be executed any more"
        return text, "Install dibs again, then `dibs daemon restart`."
    if was_removed:
        return "the Python of the daemon was replaced while it ran", "`dibs daemon restart`; running jobs continue."
    return None


def process_limit(pid: int | None) -> Problem | None:
    """Check how many more processes this user, or the cgroup of a process, may start; root has no limit of its own."""
    limit = _limit("Max processes", pid)
    left = None if limit is None or os.geteuid() == 0 else limit - _count_threads()
    group = _left_in_group(pid)
    if left is not None and left < FEW_PROCESSES and (group is None or left <= group[0]):
        fix = "Raise it: `ulimit -u`, /etc/security/limits.conf, or LimitNPROC of the service."
        return f"only {max(0, left)} more processes may be started (limit {limit})", fix
    if group is not None and group[0] < FEW_PROCESSES:
        return f"only {group[0]} more processes may be started (limit of {group[1]})", "Raise TasksMax of that unit."
    return None


def file_limit(pid: int | None) -> Problem | None:
    """Check how many files a daemon may open, and how many of them it has open. It raises its limit to the hard one."""
    if pid is None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limit = None if hard == resource.RLIM_INFINITY else hard
    else:
        limit = _limit("Max open files", pid)
    fix = "Raise the hard limit: /etc/security/limits.conf, or LimitNOFILE of the service; then `dibs daemon restart`."
    if limit is not None and limit < FEW_FILES:
        return f"the daemon may open only {limit} files: this allows only few jobs and connections at a time", fix
    opened = _count_open(pid)
    if limit is not None and opened is not None and opened > MUCH_USED * limit:
        return f"the daemon has {opened} of {limit} files open", fix
    return None


def _limit(name: str, pid: int | None) -> int | None:
    """Return a soft limit of a process, or of ours; None if there is none."""
    try:
        text = locks.read_all(f"/proc/{pid or 'self'}/limits").decode()
    except OSError as error:
        raise MachineError(f"the limits of process {pid} cannot be read: {error.strerror}.") from error
    found = re.search(rf"^{name} +(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _count_threads() -> int:
    """Return how many processes and threads this user has: the kernel's limit counts both."""
    count = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            # It has ended.
            continue
    return count


def _count_open(pid: int | None) -> int | None:
    try:
        return None if pid is None else len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _left_in_group(pid: int | None) -> tuple[int, str] | None:
    """Return how many processes the cgroup of a process may still have, and which group has the tightest limit."""
    try:
        lines = locks.read_all(f"/proc/{pid or 'self'}/cgroup").decode().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    top = Path("/sys/fs/cgroup")
    found = []
    for folder in () if path is None else (top / path.lstrip("/"), *(top / path.lstrip("/")).parents):
        try:
            most, now = ((folder / name).read_text().strip() for name in ("pids.max", "pids.current"))
        except OSError:
            continue
        if most.isdecimal():
            found.append((int(most) - int(now), str(folder)))
    return min(found, default=None)
