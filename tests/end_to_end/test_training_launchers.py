"""Trainings that run at once meet at ports of their own: torchrun's rendezvous never finds its address in use.

With torchrun itself where there is a torch: on Debian `apt-get install python3-torch`, for CPUs, 650 MB. The wheels on
PyPI have CUDA in them, several GB. Everywhere with a stand-in that takes its port from the environment and binds it as
torchrun's store does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench

DEBIAN_TORCH = Path("/usr/lib/python3/dist-packages/torch")

#: Each stays until all four trainings have met.
TOGETHER = """
import os, pathlib, time
def stay(rank, folder):
    pathlib.Path(folder, f"{os.environ['DIBS_JOB_ID']}-{rank}").touch()
    while len({path.name.partition("-")[0] for path in pathlib.Path(folder).glob("*-0")}) < 4:
        time.sleep(0.01)
"""
STAND_IN = f"""{TOGETHER}
import socket, sys
port = int(os.environ.get("PET_MASTER_PORT", 29500))
store = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
stay(0, sys.argv[1])
"""
TRAINING = f"""{TOGETHER}
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
assert total.item() == sum(range(1, dist.get_world_size() + 1))
stay(dist.get_rank(), sys.argv[1])
dist.barrier()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Six GPUs, for two trainings with one and two with two."""
    own = Bench(tmp_path, devices="fake:6")
    own.start()
    yield own
    own.close()


def launch(launcher: str, folder: Path, processes: int) -> list[str]:
    """Return the command of a training."""
    (folder / "stand_in.py").write_text(STAND_IN)
    (folder / "training.py").write_text(TRAINING)
    marks = folder / "marks"
    if launcher == "stand-in":
        return ["python3", "stand_in.py", str(marks)]
    # Debian's torch 1.13 is older than its Python, where it can only start with a map of redirections.
    words = ["/usr/bin/python3", "-m", "torch.distributed.run", "--redirects", "0:1", "--tee", "0:1"]
    return [*words, f"--nproc_per_node={processes}", "training.py", str(marks)]


@pytest.mark.parametrize("launcher", ["stand-in", *(["torchrun"] if DEBIAN_TORCH.exists() else [])])
def test_trainings_at_once_do_not_share_a_port(bench: Bench, launcher: str) -> None:
    (bench.folder / "marks").mkdir()
    ids = [bench.add(launch(launcher, bench.folder, gpus), gpus=gpus) for gpus in (1, 1, 2, 2)]
    # Six processes load torch at the same time.
    ended = bench.wait_all(patience_s=300)
    assert {job["state"] for job in ended} == {"done"}, "\n".join(bench.log(job_id) for job_id in ids)
