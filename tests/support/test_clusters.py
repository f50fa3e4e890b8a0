"""The clusters that tests use: they work, they can lose a node, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import port_blocks
import ray_cluster
import slurm_cluster
from dibs.system import processes
from ray_cluster import RayCluster
from slurm_cluster import SlurmCluster
from waits import wait_for


def test_slurm_gives_a_job_its_pretend_gpus(slurm: SlurmCluster, tmp_path: Path) -> None:
    output = tmp_path / "output"
    script = '#!/bin/sh\necho "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"\n'
    slurm.run("sbatch", "--gres=gpu:2", "--wait", f"--output={output}", stdin=script)
    assert output.read_text() == "n1 0,1\n"


def test_a_lost_slurm_node_takes_its_jobs_with_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"#!/bin/sh\necho $$ >{started}\nsleep 1000\n"
    slurm.run("sbatch", "--nodelist=n2", f"--output={tmp_path}/output", stdin=script)
    pid = int(wait_for(lambda: started.read_text() if started.exists() else "", lambda seen: seen.endswith("\n")))
    slurm.kill_node("n2")
    wait_for(lambda: processes.look(pid), lambda seen: seen is None or seen.is_dead)


def test_slurm_has_all_nodes_again_afterwards(slurm: SlurmCluster) -> None:
    assert slurm.run("sinfo", "-h", "-N", "-o", "%N %t").split() == ["n1", "idle", "n2", "idle"]


def test_ray_gives_a_job_its_pretend_gpus(ray: RayCluster) -> None:
    body = {"submission_id": "one", "entrypoint": 'echo "[$CUDA_VISIBLE_DEVICES]"', "entrypoint_num_gpus": 2}
    ray.request("POST", "/api/jobs/", body)
    wait_for(lambda: ray.request("GET", "/api/jobs/one")["status"], lambda seen: seen == "SUCCEEDED", 120)
    assert "[0,1]" in ray.request("GET", "/api/jobs/one/logs")["logs"]
    ray.request("DELETE", "/api/jobs/one")


def test_ray_loses_a_node_and_has_it_again(ray: RayCluster) -> None:
    assert ray.living() == ["n1", "n2"]
    ray.kill_node("n2")
    assert ray.living() == ["n1"]
    ray.restore()
    assert ray.living() == ["n1", "n2"]


@pytest.mark.skipif(slurm_cluster.missing() is not None, reason=str(slurm_cluster.missing()))
def test_a_cluster_goes_with_its_last_user_even_if_that_one_is_killed(tmp_path: Path) -> None:
    """A worker that hangs is ended by pytest without a chance to clean up."""
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
import clusters, pathlib
with clusters.running(pathlib.Path({str(tmp_path)!r}), "slurm") as cluster:
    print(cluster.folder, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        folder = Path(user.stdout.readline().strip())
        pids = [int(path.read_text()) for path in folder.glob("*.pid")]
        assert len(pids) == 4
        os.kill(user.pid, signal.SIGKILL)
    wait_for(folder.exists, lambda seen: not seen)
    for pid in pids:
        wait_for(lambda pid=pid: processes.look(pid), lambda seen: seen is None or seen.is_dead)


def test_the_ports_of_a_cluster_fit_into_its_block() -> None:
    assert max(ray_cluster.PORTS, slurm_cluster.PORTS) <= port_blocks.BLOCK
