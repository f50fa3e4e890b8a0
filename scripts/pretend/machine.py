"""The pretend machine while the demo is there: a driver that tells of the jobs which really run, and one stranger.

A process of its own. Every second or two it asks the daemon who runs where and rewrites what the pretend driver tells.
It ends when the file `alive` is gone, and takes the stranger with it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dibs import errors
from dibs.client import connection
from fakes.nvml.world import World
from pretend import cards, day
from pretend.day import Kind, Work

#: Seconds between two states of the driver.
EVERY_S = 2.0
#: What a job is taken for whose name no kind has.
ANY = Kind("job", "default", "", 10, 12, 64)

#: The program of the stranger: where there is a Python for everybody, it looks like a training of somebody's.
PYTHON = Path("/usr/bin/python3")
STRANGER = (
    (str(PYTHON.resolve()), "-ISc", "import signal; signal.pause()") if PYTHON.exists() else ("sleep", "infinity")
)


def lines(jobs: list[dict[str, Any]], stranger: int | None, minute: float) -> Iterator[str]:
    """Yield the state of the driver while these jobs run."""
    held = {index: job for job in jobs for index in job["gpu_indices"]}
    for index in range(day.GPUS):
        job = held.get(index)
        work = None if job is None else Work(kind_of(job["name"]), job["name"], "", 0.0, began=minute - 5)
        is_foreign = stranger is not None and index == day.FOREIGN and job is None
        shown = cards.reading(index, minute if work or is_foreign else -day.DAY, work)
        yield (
            f"gpu {index} uuid={cards.uuid(index)} name={cards.NAME} total={cards.TOTAL} used={shown.memory} "
            f"util={shown.utilization} temp={shown.temperature} power={round(shown.power_w * 1000)} plimit=400000 "
            f"bus=00000000:{7 + 16 * index:02X}:00.0"
        )
        pid = stranger if is_foreign else None if job is None else job["pid"]
        if pid is not None:
            yield f"proc {index} pid={pid} mem={shown.memory}"


def running(queue: connection.Client) -> list[dict[str, Any]]:
    """Return the jobs whose processes are there."""
    return [job for job in queue.get("/v1/jobs")["jobs"] if job["state"] in ("running", "paused", "stopping")]


def kind_of(name: str) -> Kind:
    """Return the kind of a job by its name."""
    kinds = (*day.KINDS, day.RUN, day.SEEDS)
    return next((kind for kind in kinds if name.startswith(kind.name)), ANY)


@contextlib.contextmanager
def stranger() -> Iterator[int]:
    """Run somebody who did not ask: another user of this machine where we may become one."""
    with subprocess.Popen(STRANGER, cwd="/", user="nobody" if os.geteuid() == 0 else None) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def run(folder: Path) -> None:
    """Tell the driver what happens, until the demo is over."""
    world = World(folder / "libnvidia-ml.so.1", folder / "driver.txt")
    queue = connection.Client(folder / "home", dict(os.environ))
    with stranger() as pid:
        while (folder / "alive").exists():
            # A daemon that is briefly away is no reason to change anything.
            with contextlib.suppress(errors.NoDaemon):
                world.is_now(*lines(running(queue), pid, time.time() // EVERY_S * EVERY_S / 60 % day.DAY))
                (folder / "seen").touch()
            time.sleep(EVERY_S)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
