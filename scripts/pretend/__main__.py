"""`scripts/demo`: start a day of jobs on pretend GPUs in a queue of its own, print its link, end it again."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dibs import errors
from dibs.client import connection
from dibs.jobqueue import thread
from dibs.system import paths, processes
from fakes.nvml import world
from pretend import crowd, day, history, machine, training

SCRIPTS = Path(__file__).resolve().parent.parent
#: Seconds until whatever was asked for must have happened.
PATIENCE_S = 60.0
#: Every process of a demo has it in its environment, and no shell: so it is known when all of them are gone.
MARK = "DIBS_DEMO"
DIBS = (sys.executable, "-m", "dibs")


def main(words: list[str]) -> int:
    """Start, or stop with `--stop`."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.partition(": ")[2])
    parser.add_argument("--stop", action="store_true", help="end the demo and forget it")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="also N finished jobs of last week")
    parser.add_argument("--seed", type=int, default=1, help="another day")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / f"dibs-demo-{os.geteuid()}")
    parser.add_argument("--no-link", action="store_true", help="print only the environment of the demo")
    args = parser.parse_args(words)
    if args.stop:
        return stop(args.folder)
    if (args.folder / "alive").exists():
        print(f"scripts/demo: one is there already in {args.folder}; scripts/demo --stop ends it.", file=sys.stderr)
        return 1
    if shutil.which("gcc") is None:
        print(
            "scripts/demo: expected gcc, for the pretend driver; on Debian: apt install gcc libc6-dev", file=sys.stderr
        )
        return 1
    start(args.folder, args.seed, args.jobs)
    print(
        f"# the demo's own queue; your jobs are not touched. It ends with: scripts/demo --stop\n{exports(args.folder)}"
    )
    return 0 if args.no_link else subprocess.run([*DIBS, "web"], env=environ(args.folder)).returncode


def environ(folder: Path) -> dict[str, str]:
    """Return the environment of everything in the demo."""
    base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER", "SSH_CONNECTION") if name in os.environ}
    driver = world.World(folder / "libnvidia-ml.so.1", folder / "driver.txt")
    own = {"DIBS_HOME": folder / "home", "DIBS_LEASE_DIR": folder / "leases", "DIBS_CONFIG": folder / "config.toml"}
    return base | {name: str(path) for name, path in own.items()} | driver.environ | {MARK: str(folder)}


def _mark(folder: Path) -> bytes:
    return f"{MARK}={folder}".encode()


def exports(folder: Path) -> str:
    """Return the lines that make a shell speak to the demo."""
    own = {name: value for name, value in environ(folder).items() if name.startswith("DIBS_") and name != MARK}
    return "\n".join(f"export {name}={value}" for name, value in own.items())


def start(folder: Path, seed: int = 1, many: int = 0) -> dict[str, int]:
    """Make the demo and start all of it; return the ids of its jobs by name."""
    folder.mkdir(mode=0o700, parents=True)
    lab = folder / "lab"
    for each in (lab, folder / "leases"):
        each.mkdir()
    paths.prepare(folder / "home")
    for each in ("alive", "config.toml"):
        (folder / each).touch()
    world.build(folder)
    story, now = day.make(seed), thread.now_ms()
    shutil.copy(Path(training.__file__), lab / "train.py")
    (lab / "pace.json").write_text(json.dumps(_paces(story)))
    if many:
        crowd.write(folder / "home", many, now, str(lab))
    ids = history.write(history.Place(folder / "home", lab), story, now)
    try:
        _run(folder, story, ids, now)
    except BaseException:
        end(folder)
        raise
    return {name: int(job_id) for name, job_id in ids.items()}


def _paces(story: day.Day) -> dict[str, dict[str, float]]:
    """Return how far the running jobs have come, and how long one of their epochs takes."""
    found = {}
    for work in story.running:
        every_s = work.kind.minutes * 60 / training.parse(work.command.split()[2:]).epochs
        found[work.name] = {"past": int(-work.began * 60 / every_s), "every_s": every_s}
    return found


def _run(folder: Path, story: day.Day, ids: dict[str, history.JobId], now: int) -> None:
    """Start the machine and the daemon, wait until what is to run runs, and let it have begun when the day says."""
    own = environ(folder)
    driver = world.World(folder / "libnvidia-ml.so.1", folder / "driver.txt")
    program = (
        "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path;"
        " from pretend import machine; machine.run(Path(sys.argv[1]))"
    )
    with machine.stranger() as pid:
        # The first look of the daemon must see who is there already.
        driver.is_now(*machine.lines([], pid, 0.0))
        queue = connection.Client(folder / "home", own)
        queue.start({})
        wanted = {int(ids[work.name]) for work in story.running}
        _until(lambda: {job["id"] for job in machine.running(queue)} == wanted)
        # What the next daemon sees first: its charts must not begin with cards that nobody uses.
        driver.is_now(*machine.lines(machine.running(queue), pid, 0.0))
        queue.post("/v1/daemon/stop", {})
        _until(lambda: not _has_daemon(folder))
        history.back_date(folder / "home", story, ids, now)
        queue.start({})
        with open(folder / "machine.log", "wb") as log:
            fakes = SCRIPTS.parent / "tests" / "support"
            words = [sys.executable, "-c", program, str(folder), str(SCRIPTS), str(fakes)]
            # In a session of its own and nobody's child: it stays when this process ends.
            command = ["setsid", "--fork", *words]
            subprocess.run(command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", check=True)
        _until((folder / "seen").exists)


def _has_daemon(folder: Path) -> bool:
    """Tell whether a daemon has its lock: it may still write after its socket is gone."""
    with open(paths.daemon_lock(folder / "home"), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise errors.MachineError(f"the demo did not get there within {PATIENCE_S:.0f} s; its folder tells more.")
        time.sleep(0.05)


def stop(folder: Path) -> int:
    """End the demo, and remove its folder."""
    if not (folder / "alive").exists():
        print(f"scripts/demo: none is there in {folder}.", file=sys.stderr)
        return 1
    end(folder)
    shutil.rmtree(folder)
    return 0


def end(folder: Path) -> None:
    """End everything that runs in the demo."""
    queue = connection.Client(folder / "home", environ(folder))
    queue.post("/v1/queue", {"paused": True})
    queue.post("/v1/jobs/actions", {"verb": "cancel", "select": ["all"], "grace_s": 0})
    _until(lambda: not machine.running(queue))
    queue.post("/v1/daemon/stop", {})
    (folder / "alive").unlink()
    _until(lambda: not list(processes.marked([_mark(folder)])))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except errors.DibsError as error:
        print(f"scripts/demo: {error}", file=sys.stderr)
        sys.exit(1)
