"""Projects that use GPUTaskScheduler, as users write them, each in a separate folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import PATIENCE_S, wait_for
from dibs.leases import device_lease, holders, tickets
from dibs.system import processes

#: A task that does what its configuration says, and records its surroundings.
TASK = """
import json, os, signal, sys, time
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def required_env(self):
        return self._config.get("env", {})

    def main(self):
        config = {key: value for key, value in self._config.items() if key != "env"}
        seen = {"cvd": os.environ.get("CUDA_VISIBLE_DEVICES"), "extra": os.environ.get("EXTRA"), "cwd": os.getcwd(),
                "work_dir": self._work_dir, "config": config, "path_last": sys.path[-1], "argv": sys.argv}
        with open(os.path.join(self._work_dir, "out.json"), "w") as file:
            json.dump(seen, file, default=repr)
        sys.stderr.write("err line\\n")
        print("hello", self._config.get("a"))
        if self._config.get("wait"):
            sys.stdout.flush()
            with open("pids", "a") as file:
                file.write(f"{os.getpid()}\\n")
            while not os.path.exists("go"):
                time.sleep(0.01)
        if self._config.get("fail"):
            raise ValueError("as asked")
        if "rc" in self._config:
            sys.exit(self._config["rc"])
        if "die" in self._config:
            os.kill(os.getpid(), self._config["die"])
"""

MAIN = """
from config import config
from my_gpu_task import MyGPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

scheduler = GPUTaskScheduler(config=config, gpu_task_class=MyGPUTask)
scheduler.start()
print("MAIN DONE")
"""

MOMENT = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d) ", re.MULTILINE)


class Project:
    """A folder with a main script, a configuration and a task."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self._leases = folder / "leases"
        self._leases.mkdir(exist_ok=True)
        self.place = device_lease.Folder(str(self._leases))
        # A mark by which all our processes are found, whatever their parent is by then.
        self._mark = f"GPU_TASK_TEST={os.urandom(8).hex()}"
        name, _, value = self._mark.partition("=")
        kept = ("PATH", "HOME", "LANG", "USER")
        self.environ = {key: os.environ[key] for key in kept if key in os.environ} | {
            name: value,
            "DIBS_HOME": str(folder / "home"),
            "DIBS_LEASE_DIR": str(self._leases),
            "DIBS_DEVICES": "",
        }
        for stem, text in {"my_gpu_task": TASK, "main": MAIN, **files}.items():
            self.write(f"{stem}.py", text)

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def configure(self, config: object, name: str = "config.py") -> None:
        """Write the configuration, as a dictionary or as text."""
        self.write(name, config if isinstance(config, str) else f"config = {config!r}\n")

    def command(self, script: str) -> list[str]:
        """Return the command for a script."""
        return [sys.executable, script]

    def run(
        self, script: str = "main.py", cwd: str = ".", patience_s: float = PATIENCE_S, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        return subprocess.run(
            self.command(script), cwd=self.folder / cwd, env=self.environ | environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=patience_s,
        )  # fmt: skip

    @contextmanager
    def started(self, script: str = "main.py", **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Start a script; everything left is killed at the end."""
        with open(self.folder / "stderr", "ab") as err, open(self.folder / "stdout", "ab") as out:
            process = subprocess.Popen(
                self.command(script), cwd=self.folder, env=self.environ | environ, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            processes.send_all(self.living(), signal.SIGKILL)
            process.wait(PATIENCE_S)

    def living(self) -> list[processes.Proc]:
        """Return the running processes that we started."""
        return list(processes.marked([self._mark.encode()]))

    def until_gone(self) -> None:
        """Wait until nothing runs any more."""
        wait_for(self.living, lambda seen: not seen)

    def pids(self, count: int) -> list[int]:
        """Wait until the given number of tasks wait for `go`; return their pids in order of arrival."""
        path = self.folder / "pids"
        return wait_for(
            lambda: [int(word) for word in path.read_text().split()] if path.exists() else [],
            lambda seen: len(seen) == count,
        )

    def go(self) -> None:
        """Let waiting tasks continue."""
        self.write("go", "")

    def held(self, *ids: str) -> set[str]:
        """Return which of the ids are held."""
        return set(holders.held(self.place, ids))

    def waiting(self) -> int:
        """Return the number of tickets in the line."""
        return len(tickets.line(self.place))

    def log(self, name: str) -> str:
        """Return the output of a task, by the name of its folder."""
        return (self.folder / "results" / name / "worker.log").read_text()

    def seen(self, name: str) -> dict[str, object]:
        """Return what a task has recorded, by the name of its folder."""
        return dict(json.loads((self.folder / "results" / name / "out.json").read_text()))

    def said(self, of: str = "scheduler.log") -> list[str]:
        """Return the lines of the scheduler's log, without their times."""
        return MOMENT.sub("<TIME> ", (self.folder / of).read_text()).splitlines()


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of a log on the console, without their times."""
    return [line for line in MOMENT.sub("<TIME> ", done.stderr).splitlines() if line.startswith("<TIME> ")]


def without_moments(text: str) -> str:
    """Return a log without the parts that differ from run to run."""
    return MOMENT.sub("<TIME> ", text)
