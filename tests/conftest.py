"""Fixtures for all tests: a complete dibs for each, real processes, no patching."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import build
import clusters
from bench import Bench
from desk import Desk
from fakes.nvml import world
from keyboard import Typist
from ray_cluster import RayCluster
from slurm_cluster import SlurmCluster

# No test may depend on the current speed of the machine.
hypothesis.settings.register_profile("dibs", deadline=None)
hypothesis.settings.load_profile("dibs")

# Nor on who started it: `nohup`, and `&` in a script, leave signals ignored, and all programs under test inherit that.
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
os.umask(0o022)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Let a test run an event loop in a worker with an open browser, whose loop counts as running for ever.

    Tests of the page may come before any other in a worker. While they run, their loop is left as it is.
    """
    is_page = "web" in pyfuncitem.path.parts
    running = None if is_page else asyncio._get_running_loop()
    if running is not None:
        asyncio._set_running_loop(None)
    try:
        return (yield)
    finally:
        if running is not None:
            asyncio._set_running_loop(running)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A separate queue on four pretend GPUs; everything it started is ended afterwards."""
    own = Bench(tmp_path)
    yield own
    own.close()


@pytest.fixture
def started(bench: Bench) -> None:
    """Make sure that a daemon runs, for modules whose command lines would each have to start one."""
    bench.start()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A separate queue in which nothing runs, with four pretend GPUs."""
    own = Desk(tmp_path, build.inventory(4))
    with contextlib.closing(own.store):
        yield own


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake NVIDIA library, built once."""
    return world.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: Path, tmp_path: Path) -> world.World:
    """A separate fake NVIDIA driver, which reports what a test says."""
    return world.World(library, tmp_path / "state.txt")


@pytest.fixture
def stranger() -> Iterator[int]:
    """The pid of a process that holds no lease; with a lease it could be anybody's."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture(scope="session")
def typist() -> Typist:
    """A helper that runs hundreds of command lines quickly."""
    return Typist()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One queue for all tests of a module, used by the environment of this process."""
    own = Bench(tmp_path_factory.mktemp("queue"))
    own.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.environ.items():
            patch.setenv(name, value)
        yield own
    own.close()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def common_slurm(run_folder: Path) -> Iterator[SlurmCluster]:
    """The Slurm of this run; tests use `slurm`."""
    with clusters.running(run_folder, "slurm") as cluster:
        assert isinstance(cluster, SlurmCluster)
        yield cluster


@pytest.fixture(scope="session")
def common_ray(run_folder: Path) -> Iterator[RayCluster]:
    """The Ray of this run; tests use `ray`."""
    with clusters.running(run_folder, "ray") as cluster:
        assert isinstance(cluster, RayCluster)
        yield cluster


@pytest.fixture
def slurm(common_slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """A real Slurm with two nodes of four pretend GPUs, for this test alone."""
    with clusters.alone(common_slurm):
        yield common_slurm


@pytest.fixture
def ray(common_ray: RayCluster) -> Iterator[RayCluster]:
    """A real Ray with two nodes of four pretend GPUs, for this test alone."""
    with clusters.alone(common_ray):
        yield common_ray
