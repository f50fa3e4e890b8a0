"""Several unix users on one machine, each with a separate dibs, and one lease folder for all.

Needs root. The interpreter that runs the tests may not be readable for other users, so they get a separate Python
environment, built once and readable for all.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("dibs-test-ann", "dibs-test-ben")


def reachable_python() -> str:
    """Return a Python that every user of this machine can run."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        check = [python, "-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(check, user=65534, group=65534, capture_output=True, cwd="/").returncode == 0:
                return python
        except OSError:
            continue
    raise RuntimeError("no Python >= 3.11 here can be run by other users")


def digest_of_sources() -> str:
    """Return a digest of the sources: names and bytes of all files of an installation."""
    digest = hashlib.sha256()
    found = [
        ROOT / "pyproject.toml",
        ROOT / "requirements" / "run.lock",
        *(ROOT / "src").rglob("*"),
        *(ROOT / "compat").rglob("*"),
    ]
    made = ("__pycache__", "build")
    for path in sorted(path for path in found if path.is_file()):
        name = path.relative_to(ROOT)
        if not any(part in made or part.endswith(".egg-info") for part in name.parts):
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def shared_environment() -> Path:
    """Return an installation of dibs that every user can run, rebuilt when the sources changed."""
    place = Path(tempfile.gettempdir()) / f"dibs-test-people-{os.getuid()}-{digest_of_sources()}"
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            subprocess.run([reachable_python(), "-m", "venv", "--clear", place], check=True, cwd="/")
            pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            locked = ["--require-hashes", "-r", ROOT / "requirements" / "run.lock"]
            for words in (locked, ["--no-deps", "--no-build-isolation", ROOT, ROOT / "compat"]):
                subprocess.run([*pip, *words], check=True, cwd="/", capture_output=True)
            subprocess.run(["chmod", "-R", "a+rX", place], check=True)
            (place / "ready").touch()
    return place


def make_user(name: str) -> pwd.struct_passwd:
    """Return a user of this name, created if there is none."""
    with open(Path(tempfile.gettempdir()) / "dibs-test-useradd.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return pwd.getpwnam(name)
        except KeyError:
            command = ["useradd", "--system", "--no-create-home", "--shell", "/bin/sh", name]
            subprocess.run(command, check=True, capture_output=True)
            return pwd.getpwnam(name)


def make_group(name: str, members: Sequence[str]) -> None:
    """Make a Unix group with these members, or add them to it."""
    with open(Path(tempfile.gettempdir()) / "dibs-test-useradd.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["groupadd", "--force", "--system", name], check=True, capture_output=True)
        for member in members:
            subprocess.run(["usermod", "--append", "--groups", name, member], check=True, capture_output=True)


@dataclass
class Person:
    """A user with a separate home."""

    name: str
    uid: int
    gid: int
    folder: Path
    environ: dict[str, str]
    python: Path

    def popen(self, *words: str, tool: str = "dibs", **kwargs: Any) -> subprocess.Popen[str]:
        """Start `dibs ...`, or another of our commands, as this user."""
        command = [str(self.python.with_name(tool)), *words]
        defaults: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            command, env=self.environ, cwd=self.folder, text=True,
            user=self.uid, group=self.gid, extra_groups=[], **(defaults | kwargs),
        )  # fmt: skip

    def dibs(self, *words: str) -> str:
        """Run `dibs ...` as this user; return its output."""
        with self.popen(*words) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out

    def json(self, *words: str) -> Any:
        """Run `dibs ... --json` as this user."""
        return json.loads(self.dibs(words[0], "--json", *words[1:]))

    def add(self, command: str, *options: str) -> int:
        """Queue a command; return its id."""
        return int(self.dibs("add", *options, command))

    def show(self, job: int) -> Any:
        """Return a job."""
        return self.json("show", str(job))

    def gpus(self) -> list[dict[str, Any]]:
        """Return the GPUs as this user sees them."""
        return list(self.json("gpus")["gpus"])

    def close(self) -> None:
        """End all processes of this user."""
        for _ in range(50):
            listed = subprocess.run(["ps", "-o", "pid=", "-u", str(self.uid)], capture_output=True, text=True).stdout
            mine = [pid for pid in listed.split() if self.is_mine(int(pid))]
            if not mine:
                return
            subprocess.run(["kill", "-9", *mine], capture_output=True)

    def is_mine(self, pid: int) -> bool:
        """Return whether a process belongs to this dibs."""
        try:
            text = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"DIBS_HOME={self.environ['DIBS_HOME']}".encode() in text


def make_person(name: str, folder: Path, leases: Path, devices: str) -> Person:
    """Return a user with an empty home below `folder`."""
    user = make_user(name)
    home = folder / name
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    environ = {
        "HOME": str(home),
        "USER": name,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "DIBS_HOME": str(home / "state"),
        "DIBS_LEASE_DIR": str(leases),
        "DIBS_DEVICES": devices,
    }
    return Person(name, user.pw_uid, user.pw_gid, home, environ, shared_environment() / "bin" / "python")


@dataclass
class SharedMachine:
    """A folder that all users can reach, the lease folder in it, and the users who have a home there."""

    folder: Path
    leases: Path
    people: list[Person] = field(default_factory=list)

    def person(self, name: str, devices: str) -> Person:
        """Return a new user of this machine."""
        self.people.append(make_person(name, self.folder, self.leases, devices))
        return self.people[-1]

    def pair(self, devices: str) -> tuple[Person, Person]:
        """Return the two users who take part in most tests."""
        return self.person(NAMES[0], devices), self.person(NAMES[1], devices)


@contextmanager
def shared_machine(leases: str = "leases") -> Iterator[SharedMachine]:
    """Make a machine with its lease folder at this path; end all users' processes at the end, and remove it."""
    # Not tmp_path: its folders are private to root.
    folder = Path(tempfile.mkdtemp(prefix="dibs-people-"))
    folder.chmod(0o755)
    found = SharedMachine(folder, folder / leases)
    found.leases.mkdir(parents=True, exist_ok=True)
    found.leases.chmod(0o1777)
    try:
        yield found
    finally:
        for person in found.people:
            person.close()
        shutil.rmtree(folder)
