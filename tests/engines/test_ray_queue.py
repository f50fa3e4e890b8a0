"""A whole queue on Ray: what is killed, lost or unreachable there, what answers nonsense, and many short jobs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import Bench
from dibs.system import processes
from fake_ray import FakeRay
from ray_cluster import RayCluster
from sites import Site, configured, living

#: Runs until it is ended; the second time it ends at once.
TWICE = "test $DIBS_ATTEMPT = 2 && exit 3; (setsid setsid sleep 600 &) ; trap '' TERM; while :; do sleep 0.2; done"


@contextlib.contextmanager
def queue_on(folder: Path, ray: RayCluster, **more: str) -> Iterator[Site]:
    """Have a queue with this cluster as its engine."""
    bench, engine = configured(folder, ray.engine_settings() | more)
    try:
        yield Site(bench, engine, len(ray.nodes), ray.gpus_per_node, has_names=True)
    finally:
        bench.close()


def mark_of(site: Site, job_id: int) -> str:
    return f"DIBS_JOB_DIR={Path(site.bench.job(job_id)['log']).parents[1]}"


def node_of(site: Site, ray: RayCluster, job_id: int) -> str:
    """Return which of our nodes runs a job: its processes are below that node's."""
    pids = set(living(mark_of(site, job_id)))
    below = {node: {proc.pid for proc in processes.descendants(ray.pid(node) or 0)} for node in ray.nodes}
    (found,) = [node for node, all_pids in below.items() if pids & all_pids]
    return found


def supervisor_of(site: Site, ray: RayCluster, job_id: int) -> int:
    """Return Ray's own process above a job."""
    pids = set(living(mark_of(site, job_id)))
    for node in ray.nodes:
        for proc in ray.find(node, "JobSupervisor"):
            if pids & {below.pid for below in processes.descendants(proc.pid)}:
                return proc.pid
    raise AssertionError(f"no supervisor of job {job_id}")


def start_two(site: Site, ray: RayCluster) -> dict[str, int]:
    """Start a job on each node, retried once when it is lost; return them by node."""
    jobs = [site.add(TWICE, gpus=4, retries=1, retry_on=["lost"]) for _ in ray.nodes]
    for job_id in jobs:
        site.until(job_id, "running")
        site.wait(lambda job_id=job_id: len(living(mark_of(site, job_id))) >= 3)
    return {node_of(site, ray, job_id): job_id for job_id in jobs}


def check_retried(site: Site, job_id: int) -> None:
    assert site.until(job_id, "failed")["exit_code"] == 3
    assert [one["outcome"] for one in site.bench.job(job_id)["attempts"]] == ["lost", "failed"]
    assert not living(mark_of(site, job_id))


def test_a_killed_supervisor_and_a_killed_raylet_leave_nothing(ray: RayCluster, tmp_path: Path) -> None:
    with queue_on(tmp_path, ray) as site:
        jobs = start_two(site, ray)
        first = {job_id: set(living(mark_of(site, job_id))) for job_id in jobs.values()}
        os.kill(supervisor_of(site, ray, jobs["n1"]), signal.SIGKILL)
        (raylet,) = [proc for proc in ray.find("n2", "raylet") if proc.comm == "raylet"]
        os.kill(raylet.pid, signal.SIGKILL)
        for job_id, pids in first.items():
            site.wait(lambda job_id=job_id, pids=pids: pids & set(living(mark_of(site, job_id))), lambda left: not left)
        for job_id in jobs.values():
            check_retried(site, job_id)


def test_a_lost_node(ray: RayCluster, tmp_path: Path) -> None:
    """The guardian dies with its node, so nobody but Ray can say that the job is lost."""
    with queue_on(tmp_path, ray) as site:
        jobs = start_two(site, ray)
        ray.kill_node("n2")
        check_retried_after(site, jobs["n2"], jobs["n1"])


def check_retried_after(site: Site, lost: int, other: int) -> None:
    # The other job has all GPUs that are left.
    site.wait(lambda: site.bench.job(lost)["attempt"], lambda attempt: attempt == 2)
    assert site.bench.job(other)["state"] == "running"
    site.bench.cancel(other, grace_s=0)
    check_retried(site, lost)


class Proxy:
    """Passes connections on to a cluster, or refuses them."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.resume()

    def resume(self) -> None:
        """Let connections through."""
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=[self._listener], daemon=True).start()

    def cut(self) -> None:
        """Refuse connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_pass_on, args=[here, self._target], daemon=True).start()


def _pass_on(here: socket.socket, port: int) -> None:
    with here, socket.create_connection(("127.0.0.1", port)) as there:
        back = threading.Thread(target=_pump, args=[there, here])
        back.start()
        _pump(here, there)
        back.join()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def test_while_the_head_is_away_no_job_changes(ray: RayCluster, tmp_path: Path) -> None:
    proxy = Proxy(ray.port + 1)
    with queue_on(tmp_path, ray, address=f"http://127.0.0.1:{proxy.port}") as site:
        job_id = site.add("until test -e go; do sleep 0.1; done; exit 6", gpus=1)
        site.until(job_id, "running")
        waits = site.add("true", gpus=4, hold=True)
        proxy.cut()
        site.wait(lambda: engine(site)["state"], lambda state: state == "unreachable")
        site.release(waits)
        (site.bench.folder / "go").touch()
        site.wait(lambda: not living(mark_of(site, job_id)))
        here = site.bench.add("true", gpus=1, engine="local")
        site.until(here, "done")
        assert [site.bench.job(each)["state"] for each in (job_id, waits)] == ["running", "queued"]
        assert engine(site)["since"]
        proxy.resume()
        assert site.until(job_id, "failed")["exit_code"] == 6
        site.until(waits, "done")
        assert engine(site)["state"] == "ready"
    proxy.cut()


def engine(site: Site) -> dict[str, Any]:
    """Return what the daemon says about the engine."""
    found = json.loads(site.bench.cli("engines", "--json").stdout)["engines"]
    return next(dict(one) for one in found if one["name"] == site.engine)


def test_many_short_jobs_and_nothing_left_in_ray(ray: RayCluster, tmp_path: Path) -> None:
    with queue_on(tmp_path, ray, broker="always") as site:
        refs = []

        def is_brokered() -> bool:
            job_id = site.add("true", gpus=1)
            refs.append(site.until(job_id, "done")["engine_ref"])
            return ":" in refs[-1]

        site.wait(is_brokered)
        done = site.bench.cli(
            "sweep", "echo {n} >>ran", "-p", "n=range(0,100)", "--name", "s", "-g", "1", "--engine", site.engine
        )
        assert done.returncode == 0, done.stderr
        long = site.add("trap 'exit 5' TERM; sleep 600 & wait", gpus=1)
        assert site.bench.cli("wait", "sweep:s", "--timeout", "200s").returncode == 0
        assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(100))
        assert site.until(long, "running")["node"]
        site.bench.cancel(long)
        site.until(long, "cancelled")
        # What is left is the broker, and what other tests have left.
        ours = f"{refs[0].rpartition('-')[0]}-"
        site.wait(lambda: [row["submission_id"] for row in rows(ray, ours)], lambda left: len(left) == 1)


def rows(ray: RayCluster, prefix: str) -> list[dict[str, Any]]:
    return [row for row in ray.request("GET", "/api/jobs/") if (row["submission_id"] or "").startswith(prefix)]


def test_a_killed_broker(ray: RayCluster, tmp_path: Path) -> None:
    with queue_on(tmp_path, ray, broker="always") as site:
        site.wait(lambda: ":" in site.until(site.add("true", gpus=1), "done")["engine_ref"])
        job_id = site.add(TWICE, gpus=2, retries=1, retry_on=["lost"])
        site.until(job_id, "running")
        site.wait(lambda: len(living(mark_of(site, job_id))) >= 3)
        (broker,) = [proc for proc in processes.descendants(ray.pid("n1") or 0) if is_broker(proc.pid, tmp_path)]
        os.kill(broker.pid, signal.SIGKILL)
        check_retried(site, job_id)


def is_broker(pid: int, folder: Path) -> bool:
    words = processes.words(pid)
    return len(words) > 1 and words[1].startswith(str(folder)) and words[1].endswith("broker.py")


# -- without a cluster ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda method, path, body: b"garbage\xff" * 10, id="garbage"),
        pytest.param(lambda method, path, body: (500, "x" * (10 << 20)), id="huge"),
        pytest.param(lambda method, path, body: (200, {"data": ["?"]}), id="nonsense"),
        pytest.param(None, id="hangs"),
    ],
)
def test_an_engine_that_makes_no_sense_does_not_disturb_this_machine(tmp_path: Path, reply: Any) -> None:
    fake = FakeRay(reply or (lambda method, path, body: b""))
    if reply is None:
        fake.reply = lambda method, path, body: b"late" * fake.closing.wait(300)
    bench, name = configured(tmp_path, {"kind": "ray", "address": fake.address})
    try:
        bench.start()
        site = Site(bench, name, 1, 4, has_names=True)
        before = memory(bench)
        there = site.add("true", gpus=1)
        site.wait(lambda: fake.requests)
        for _ in range(20):
            bench.until(bench.add("true", gpus=1, engine="local"))
        assert bench.cli("status").returncode == 0
        assert bench.job(there)["state"] in ("queued", "starting")
        assert memory(bench) - before < 50 << 20
        bench.cancel(there)
        assert bench.job(there)["state"] == "cancelled"
    finally:
        fake.close()
        bench.close()


def memory(bench: Bench) -> int:
    """Return the resident memory of the daemon in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{bench.pid()}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_an_address_beyond_this_machine_needs_a_token(tmp_path: Path) -> None:
    bench, name = configured(tmp_path, {"kind": "ray", "address": "http://192.0.2.99:8265"})
    try:
        done = bench.cli("add", "--engine", name, "true", environ={"HOME": str(tmp_path)})
        assert (done.returncode, "token" in done.stderr, done.stdout) == (4, True, "")
    finally:
        bench.close()
