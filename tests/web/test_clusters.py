"""Clusters on the page: their nodes, and where a job runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lab import Lab
from slurm_cluster import SlurmCluster
from visitor import Visits, complaints, link_to


@pytest.fixture
def lab(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, {"lab": slurm.engine_settings()})
    yield own
    own.close()


def test_a_job_on_a_cluster_is_shown_with_its_node(lab: Lab, visits: Visits) -> None:
    job_id = lab.send("sleep 600", gpus=1)
    job = lab.until(job_id, "started")
    page = visits.enter(link_to(lab), f"/job/{job_id}?tab=details")
    expect(page.get_by_text(f"lab, {job['engine_ref']}, {job['node']}")).to_be_visible()
    page.goto(page.url.partition("/job/")[0] + "/gpus")
    nodes = page.get_by_role("table", name="Nodes of lab")
    expect(nodes.get_by_role("row", name=job["node"]).get_by_role("link", name=str(job_id), exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="lab (slurm)")).to_be_visible()
    assert complaints(page) == []
    nodes.get_by_role("link", name=str(job_id), exact=True).click()
    expect(page).to_have_url(re.compile(f"/job/{job_id}$"))
