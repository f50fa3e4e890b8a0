"""Real clusters to measure on: those of the tests, with pretend GPUs, on loopback."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.errors import Failed
from benchmarks.sandboxes import ROOT


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Any]:
    """Start a cluster, `slurm` or `ray`, and take it down; one that cannot run here is a failed run."""
    support = str(ROOT / "tests" / "support")
    if support not in sys.path:
        sys.path.append(support)
    import port_blocks
    import ray_cluster
    import slurm_cluster

    module, make = {
        "slurm": (slurm_cluster, slurm_cluster.SlurmCluster),
        "ray": (ray_cluster, ray_cluster.RayCluster),
    }[kind]
    if why := module.missing():
        raise Failed(f"left out: {why}")
    # A short path: the names of sockets have at most 107 bytes.
    cluster = make(Path(tempfile.mkdtemp(prefix=f"dibs-{kind}-", dir="/tmp")), port_blocks.free_block())
    try:
        try:
            cluster.up()
        except AssertionError as error:
            raise Failed(f"the cluster did not start: {str(error)[-200:]}") from error
        yield cluster
    finally:
        cluster.down()
