"""A GPU whose lease is idle is lent to evictable jobs of others, if root says so (a fake NVIDIA driver)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import lab_house
import people
from bench import wait_for
from fakes.nvml import world
from lab_house import Lab
from people import Person

# pytest finds fixtures by their names in this module.
lab = lab_house.lab
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

CARD = "gpu 0 uuid=GPU-aaaa bus=00000000:01:00.0"
LENDS = 'idle_gpus = "evictable"\nidle_after = "1s"\n'
#: Runs until it is stopped, and says on which GPU.
RUNS = "trap 'exit 75' TERM; echo on $CUDA_VISIBLE_DEVICES; while :; do sleep 0.02; done"


@dataclass
class Idle:
    """A machine with one GPU, which Ann has leased and does not use."""

    ann: Person
    ben: Person
    nvml: world.World
    lab: Lab
    lease: subprocess.Popen[str]


@pytest.fixture
def idle(lab: Lab) -> Iterator[Idle]:
    nvml = world.World(world.build(lab.folder), lab.folder / "state.txt")
    nvml.library.chmod(0o755)
    nvml.is_now(CARD)
    ann, ben = (lab.person(name, "") for name in people.NAMES)
    for person in (ann, ben):
        person.environ |= nvml.environ | {
            "DIBS_EVICT_MIN_RUN": "0s",
            "DIBS_EVICT_GRACE": "30s",
            "DIBS_IDLE_AFTER": "1s",
        }
    with ann.popen("lease", "sleep", "1000") as lease:
        wait_for(lambda: ben.gpus()[0]["holders"])
        yield Idle(ann, ben, nvml, lab, lease)
        lease.terminate()


def state(person: Person, job: int) -> tuple[str, int]:
    shown = person.show(job)
    return shown["state"], shown["attempt"]


def reasons(person: Person, job: int) -> str:
    return " ".join(person.dibs("show", str(job)).split())


def test_an_idle_lease_is_lent_until_its_holder_uses_the_gpu(idle: Idle) -> None:
    idle.lab.rule(LENDS)
    ben, first = idle.ben, idle.ben.add(RUNS, "--evictable")
    wait_for(lambda: state(ben, first), lambda seen: seen == ("running", 1))
    assert wait_for(lambda: ben.dibs("log", str(first)), bool).strip() == "on GPU-aaaa"
    lent = [(one["user"], one["loan"], one["evictable"]) for one in idle.ann.gpus()[0]["holders"]]
    assert lent == [(idle.ann.name, False, False), (ben.name, True, True)]
    assert f"idle lease, lent to {ben.name} job {first}" in ben.dibs("gpus")
    wait_for(lambda: ben.dibs("status"), lambda text: f"GPU 0 is an idle lease of {idle.ann.name}, lent to it" in text)

    # Neither a second evictable job nor an ordinary one gets it, and for the ordinary one nobody is evicted.
    second, ordinary = ben.add(RUNS, "--evictable"), ben.add("true")
    assert f"lent to {ben.name}'s job {first}" in ben.json("why", str(ordinary))["reason"]
    assert "lent to" in ben.json("why", str(second))["reason"]
    ben.dibs("cancel", str(ordinary), str(second))

    # The borrower may use it; when a process of Ann appears there, it leaves and waits as the same job.
    used = f"{CARD} util=90"
    idle.nvml.is_now(used, f"proc 0 pid={ben.show(first)['pid']} mem=2000000000")
    wait_for(lambda: ben.gpus()[0]["processes"])
    assert state(ben, first) == ("running", 1)
    idle.nvml.is_now(used, f"proc 0 pid={idle.lease.pid} mem=2000000000")
    wait_for(lambda: state(ben, first), lambda seen: seen == ("queued", 2))
    assert f"is used by its holder again (pid {idle.lease.pid})" in reasons(ben, first)
    assert idle.lease.poll() is None

    # Once she is done it is lent again, and when her lease ends it is his own.
    idle.nvml.is_now(CARD)
    wait_for(lambda: state(ben, first), lambda seen: seen == ("running", 2))
    idle.lease.terminate()
    wait_for(lambda: state(ben, first), lambda seen: seen == ("running", 3))
    assert "GPU 0 was lent from an idle lease, which has ended" in reasons(ben, first)
    assert [(one["user"], one["loan"]) for one in ben.gpus()[0]["holders"]] == [(ben.name, False)]


def test_nothing_is_lent_without_the_word_of_root(idle: Idle) -> None:
    """The file of a user cannot say it, and a GPU that is named idle stays with its holder."""
    idle.lab.rule('idle_after = "1s"\n')
    ben = idle.ben
    job = ben.add(RUNS, "--evictable")
    wait_for(lambda: ben.gpus()[0], lambda gpu: gpu["is_idle"])
    # The turns after that reading have decided.
    assert ben.json("why", str(job))["reason"].startswith("needs 1 GPU; 0 of 1 free")
    assert state(ben, job)[0] == "queued"
    with ben.popen("config", "set", "idle_gpus", "evictable") as refused:
        assert "can be set only in /etc/dibs/config.toml" in refused.communicate()[1]
    assert refused.returncode == 2
