"""One site for each engine, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sites import Site, configured

#: The fixture with the cluster of each engine.
CLUSTERS = {"local": None, "slurm": "slurm", "ray": "ray"}


@pytest.fixture(params=list(CLUSTERS))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A queue and an engine, for this test alone."""
    fixture = CLUSTERS[request.param]
    cluster = request.getfixturevalue(fixture) if fixture else None
    bench, engine = configured(tmp_path, cluster.engine_settings() if cluster else None)
    nodes, gpus = (len(cluster.nodes), cluster.gpus_per_node) if cluster else (1, 4)
    yield Site(bench, engine, nodes, gpus, has_names=cluster is not None)
    bench.close()
