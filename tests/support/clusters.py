"""Real clusters for tests: each is started once for a whole run of pytest, whichever workers need it.

A worker that uses a cluster holds a shared lock, which the kernel releases however the worker ends. The last user
takes the cluster down; a small process beside it does so if that user died. One test at a time has a cluster, so that
it may kill nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import background
import ray_cluster
import slurm_cluster
from port_blocks import free_block
from ray_cluster import RayCluster
from slurm_cluster import SlurmCluster

Cluster = SlurmCluster | RayCluster

KINDS: dict[str, tuple[type[SlurmCluster] | type[RayCluster], Any]] = {
    "slurm": (SlurmCluster, slurm_cluster),
    "ray": (RayCluster, ray_cluster),
}
#: Seconds between two looks of the keeper.
PAUSE_S = 0.2


@contextlib.contextmanager
def running(run: Path, kind: str) -> Iterator[Cluster]:
    """Use the cluster of this run, whose folder all workers share; start it if nobody else has."""
    kind_class, module = KINDS[kind]
    why = module.missing()
    if why is not None:
        pytest.skip(why)
    place = run / f"cluster-{kind}"
    place.mkdir(exist_ok=True)
    with open(place / "users", "a") as users:
        with _locked(place / "door"):
            fcntl.flock(users, fcntl.LOCK_SH)
            _start(place, kind)
        try:
            yield kind_class(*_read(place))
        finally:
            with _locked(place / "door"):
                fcntl.flock(users, fcntl.LOCK_UN)
                _take_down_if_unused(place, kind)


@contextlib.contextmanager
def alone(cluster: Cluster) -> Iterator[Cluster]:
    """Have a cluster for one test; afterwards end the jobs that it left and bring back what it killed."""
    with _locked(cluster.folder / "test"):
        try:
            yield cluster
        finally:
            cluster.restore()


@contextlib.contextmanager
def separate(kind: str, **options: Any) -> Iterator[Cluster]:
    """Start another cluster for one test, with options of its own."""
    kind_class, _ = KINDS[kind]
    cluster = kind_class(_new_folder(kind), free_block(), **options)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def _start(place: Path, kind: str) -> None:
    if (place / "cluster.json").exists():
        return
    failure = place / "failure"
    if failure.exists():
        pytest.fail(f"{kind} did not start for an earlier test: {failure.read_text()}")
    kind_class, _ = KINDS[kind]
    cluster = kind_class(_new_folder(kind), free_block())
    try:
        cluster.up()
    except BaseException as error:
        failure.write_text(f"{type(error).__name__}: {error}")
        cluster.down()
        raise
    (place / "cluster.json").write_text(json.dumps([str(cluster.folder), cluster.port]))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    background.start([sys.executable, __file__, str(place), kind], environ, place / "keeper.log")


def _read(place: Path) -> tuple[Path, int]:
    folder, port = json.loads((place / "cluster.json").read_text())
    return Path(folder), port


def _take_down_if_unused(place: Path, kind: str) -> bool:
    """Take the cluster down unless somebody uses it; the caller has the door. Return whether it is down."""
    if not (place / "cluster.json").exists():
        return True
    with open(place / "users", "a") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        kind_class, _ = KINDS[kind]
        kind_class(*_read(place)).down()
        (place / "cluster.json").unlink()
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _new_folder(kind: str) -> Path:
    """Return a new folder with a short path: the names of sockets have at most 107 bytes."""
    return Path(tempfile.mkdtemp(prefix=f"dibs-{kind}-", dir="/tmp"))


def keep(place: Path, kind: str) -> None:
    """Wait until the cluster is down or nobody uses it any more, and take it down then."""
    is_down = False
    while not is_down:
        time.sleep(PAUSE_S)
        with _locked(place / "door"):
            is_down = _take_down_if_unused(place, kind)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2])
