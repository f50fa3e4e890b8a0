"""A whole dibs in a temporary folder: separate state, separate leases, real daemon, real jobs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import forking
from dibs.client import connection
from dibs.errors import NoDaemon
from dibs.model import environment
from dibs.system import paths, processes
from forking import Forked
from waits import PATIENCE_S, wait_for


def end(procs: Iterable[processes.Proc]) -> None:
    """Kill processes and wait until they have released everything they held."""
    for proc in list(procs):
        pidfd = processes.open_verified(proc.pid, proc.starttime)
        if pidfd is not None:
            processes.send(pidfd, signal.SIGKILL)
            # Readable when it is dead, even before it is reaped.
            wait_for(lambda pidfd=pidfd: select.select([pidfd], [], [], 1)[0])
            os.close(pidfd)


class Starter(connection.Client):
    """A client whose daemons are forked from the warm interpreter; everything else about a start is unchanged."""

    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        super().__init__(home, environ)
        self.daemons: list[Forked] = []

    def spawn(self, environ: Mapping[str, str], tell: int) -> None:
        """Start the process of a daemon."""
        log = os.open(paths.daemon_log(self.home), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(log, "ab"), open(os.devnull, "rb") as nothing:
            ends = [nothing.fileno(), log, log, tell]
            self.daemons.append(forking.start("daemon", ["--ready-fd", "3"], environ, Path("/"), ends))


class Bench:
    """One user's dibs."""

    def __init__(self, folder: Path, devices: str = "fake:4", home: Path | None = None, **environ: str) -> None:
        self.folder = folder
        self.home = home or folder / "home"
        self.leases = folder / "leases"
        self.leases.mkdir(exist_ok=True)
        base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER") if name in os.environ}
        self.environ = base | {
            "DIBS_HOME": str(self.home),
            "DIBS_LEASE_DIR": str(self.leases),
            "DIBS_DEVICES": devices,
            "DIBS_CPU_SLOTS": "4",
            # One process less for each of thousands of daemons; its own tests switch it on.
            "DIBS_COMMAND_SERVER": "false",
            # Thousands of files less for each of them; likewise.
            "DIBS_PREPARED_FOLDERS": "0",
            **environ,
        }
        self.client = Starter(self.home, self.environ)

    # -- the daemon --

    def start(self, **extra: str) -> None:
        """Start the daemon; crash points and the like by `extra`."""
        self.client.start(extra)

    def pid(self) -> int | None:
        """Return the pid of the running daemon."""
        sock = self.client.connect()
        if sock is None:
            return None
        sock.close()
        return int(paths.daemon_lock(self.home).read_text())

    def kill(self) -> None:
        """kill -9 the daemon, if one runs, and wait until it is gone."""
        pid = self._living_pid()
        if pid is not None:
            # It may be gone, and a child that it was forking may have its lock.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: self._living_pid() is None)

    def _living_pid(self) -> int | None:
        import fcntl

        try:
            fd = os.open(paths.daemon_lock(self.home), os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = os.pread(fd, 32, 0)
            return int(text) if text.strip() else None
        finally:
            os.close(fd)

    def stop(self) -> None:
        """Stop the daemon as a user would, and wait until it is gone."""
        if self._living_pid() is not None:
            self.client.post("/v1/daemon/stop", {})
            wait_for(lambda: self._living_pid() is None)

    def close(self) -> None:
        """End everything that belongs to this bench."""
        try:
            if self._living_pid() is not None:
                self.client.post("/v1/jobs/actions", {"verb": "cancel", "select": ["all"], "grace_s": 0})
        except Exception as error:  # noqa: BLE001
            print("could not cancel:", error, file=sys.stderr)
        self.kill()
        for daemon in self.client.daemons:
            daemon.kill()
            daemon.wait()
        end(processes.marked([f"DIBS_HOME={self.home}".encode()]))

    # -- jobs --

    def add(self, command: str | list[str], **fields: Any) -> int:
        """Queue one job; return its id."""
        how = {"command": command} if isinstance(command, str) else {"argv": command}
        body = {"cwd": str(self.folder), "umask": 0o022, "environ": self.packed(), **how, **fields}
        return int(self.client.post("/v1/jobs", body)["ids"][0])

    def add_many(self, jobs: list[dict[str, Any]], **defaults: Any) -> list[int]:
        """Queue many jobs at once."""
        common = {"cwd": str(self.folder), "umask": 0o022, "environ": self.packed()}
        body = {"defaults": {**common, **defaults}, "jobs": jobs}
        return list(self.client.post("/v1/jobs", body)["ids"])

    def packed(self) -> str:
        """Return the environment of this bench as a client sends it."""
        environ = {os.fsencode(name): os.fsencode(value) for name, value in self.environ.items()}
        return b2a_base64(environment.capture(environ), newline=False).decode()

    def job(self, job_id: int) -> dict[str, Any]:
        """Return a job as the API shows it."""
        return dict(self.client.get(f"/v1/jobs/{job_id}"))

    def jobs(self, *select: str) -> list[dict[str, Any]]:
        """Return the selected jobs."""
        return list(self.client.get("/v1/jobs", [("select", word) for word in select or ("all",)])["jobs"])

    def events(self, job_id: int) -> list[dict[str, Any]]:
        """Return the events of a job."""
        return list(self.client.get(f"/v1/jobs/{job_id}/events")["events"])

    def cancel(self, *select: object, grace_s: float | None = None) -> Any:
        """Cancel jobs."""
        body = {"verb": "cancel", "select": [str(word) for word in select], "grace_s": grace_s}
        return self.client.post("/v1/jobs/actions", body)

    def retry(self, *select: object, done: bool = False) -> Any:
        """Retry jobs."""
        body = {"verb": "retry", "select": [str(word) for word in select], "done": done}
        return self.client.post("/v1/jobs/actions", body)

    def until(self, job_id: int, state: str = "finished") -> dict[str, Any]:
        """Wait until a job has started or finished; return it."""
        finished = ("done", "failed", "cancelled", "timeout", "lost")

        def look() -> dict[str, Any]:
            return dict(self.client.get(f"/v1/jobs/{job_id}", [("until", state), ("wait_s", "10")]))

        def is_reached(job: dict[str, Any]) -> bool:
            return job["state"] in finished or (state == "started" and job["started_at"] is not None)

        return wait_for(look, is_reached)

    def long_job(self, **wanted: Any) -> int:
        """Queue a job that runs until it is ended; return its id once it runs."""
        job_id = self.add(["sleep", "1000"], **wanted)
        self.until(job_id, "started")
        return job_id

    def reason(self, job_id: int) -> str:
        """Return why a job waits."""
        return str(self.client.get(f"/v1/jobs/{job_id}/why")["reason"])

    def wait_all(self, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait until nothing is unfinished, even across daemons that die; return all jobs."""

        def look() -> bool:
            try:
                return bool(
                    self.client.get("/v1/jobs/wait", [("select", "all"), ("seen", "-2"), ("wait_s", "0")])["over"]
                )
            except NoDaemon:
                return False

        wait_for(look, patience_s=patience_s)
        return self.jobs()

    def log(self, job_id: int) -> str:
        """Return the output of a job."""
        return Path(self.job(job_id)["log"]).read_text()

    def free_devices(self) -> list[int]:
        """Return the indices of the devices that are not held."""
        return [gpu["index"] for gpu in self.client.get("/v1/gpus")["gpus"] if gpu["state"] == "free"]

    def cli(self, *words: str, input: str = "", environ: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would, piped."""
        return forking.run("dibs", words, self.environ | environ, self.folder, stdin=input)

    def fresh(self, *words: str, environ: Mapping[str, str] = {}, **how: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line in a separate interpreter, for tests of what Python or the kernel do for it."""
        command = [sys.executable, "-m", "dibs", *words]
        return subprocess.run(
            command,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=self.folder,
            **how,
        )
