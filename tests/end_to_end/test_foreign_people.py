"""Two users and a fake NVIDIA driver: on a leased GPU its holder is never foreign, elsewhere everybody is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

import people
from bench import wait_for
from dibs.leases import prepared_folder
from fakes.nvml import world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

GIB = 2**30
CARDS = ("gpu 0 uuid=GPU-a", "gpu 1 uuid=GPU-b")


@pytest.fixture
def machine() -> Iterator[tuple[people.Person, people.Person, world.World]]:
    """Two users who share two cards of a fake driver."""
    with people.shared_machine() as shared:
        nvml = world.World(world.build(shared.folder), shared.folder / "state.txt")
        nvml.library.chmod(0o755)
        nvml.is_now(*CARDS)
        made = shared.pair("")
        for person in made:
            person.environ |= nvml.environ
        yield *made, nvml


def test_users_are_foreign_on_every_gpu_they_did_not_lease(
    machine: tuple[people.Person, people.Person, world.World],
) -> None:
    ann, ben, nvml = machine
    hers = ann.add("sleep 1000", "--gpu-ids", "0")
    wait_for(lambda: ann.show(hers), lambda job: job["started_at"] is not None)
    pid = ann.show(hers)["pid"]
    # On her own card Ann may run any process, even one that her job did not start.
    with subprocess.Popen(["sleep", "1000"], user=ann.uid) as notebook:
        nvml.is_now(*CARDS, f"proc 0 pid={pid} mem={GIB}", f"proc 0 pid={notebook.pid} mem={5 * GIB}")
        seen = wait_for(ben.gpus, lambda gpus: len(gpus[0]["processes"]) == 2)
        assert [(gpu["state"], gpu["foreign"]) for gpu in seen] == [("leased", None), ("free", None)]
        # She has no lease of the other one.
        nvml.is_now(*CARDS, f"proc 0 pid={pid} mem={GIB}", f"proc 1 pid={notebook.pid} mem={5 * GIB}")
        wait_for(ben.gpus, lambda gpus: gpus[1]["state"] == "foreign")
        his = ben.add("true", "--gpu-ids", "1")
        told = f"{ann.name}'s sleep (pid {notebook.pid}, 5G)"
        wait_for(lambda: ben.show(his)["reason"], lambda reason: told in (reason or ""))
        assert ann.show(hers)["marks"] == []
        nvml.is_now(*CARDS, f"proc 0 pid={pid} mem={GIB}")
        notebook.kill()
    wait_for(lambda: ben.show(his)["state"], lambda state: state == "done")


def test_a_card_that_root_has_not_prepared_is_not_used_and_the_fix_is_shown(
    machine: tuple[people.Person, people.Person, world.World],
) -> None:
    ann = machine[0]
    root = str(ann.folder.parent)
    prepared_folder.prepare(root, ["GPU-a"])
    ann.environ["DIBS_LEASE_DIR"] = root + prepared_folder.FOLDER
    job = ann.add("true", "--gpu-ids", "1")
    told = wait_for(lambda: ann.json("why", str(job))["reason"], lambda reason: prepared_folder.MISSING in reason)
    assert "sudo dibs machine init" in told
    assert prepared_folder.MISSING in ann.gpus()[1]["fault"]
    other = ann.add("true")
    wait_for(lambda: ann.show(other)["state"], lambda state: state == "done")
    with ann.popen("doctor") as process:
        assert f"GPU-b: {prepared_folder.MISSING}" in " ".join(process.communicate()[0].split())
    prepared_folder.prepare(root, ["GPU-a", "GPU-b"])
    wait_for(lambda: ann.show(job)["state"], lambda state: state == "done")
