"""Trouble that only ordinary users have: a limit of processes, and files of other users in the lease folder."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import people
from bench import wait_for
from people import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making unix users needs root")

MANY = 300


@pytest.fixture
def pair() -> Iterator[tuple[Person, Person]]:
    """Two users who share three pretend GPUs."""
    with people.shared_machine() as machine:
        yield machine.pair("fake:3")


def submit_many(person: Person, command: str = "true") -> list[int]:
    """Queue many jobs without retries; return their ids."""
    person.dibs("add", "--array", f"1-{MANY}", "--retries", "0", command)
    return [job["id"] for job in person.json("status", "all")["jobs"]][-MANY:]


def check_all_done(person: Person) -> None:
    """Wait until no job is left: none failed, none used a second attempt."""
    person.dibs("wait", "all")
    jobs = person.json("status", "all")["jobs"]
    assert len(jobs) >= MANY
    assert {(job["state"], job["attempt"]) for job in jobs} == {("done", 1)}


def set_process_limit(person: Person, most: str) -> None:
    """Set the soft limit of all processes of a user's dibs, as this user."""
    listed = subprocess.run(["ps", "-o", "pid=", "-u", str(person.uid)], capture_output=True, text=True).stdout
    for pid in listed.split():
        if person.is_mine(int(pid)):
            command = ["prlimit", "--pid", pid, f"--nproc={most}:"]
            subprocess.run(command, user=person.uid, group=person.gid, extra_groups=[], capture_output=True)


def test_jobs_survive_a_limit_of_processes(pair: tuple[Person, Person]) -> None:
    ann, _ = pair
    ann.dibs("wait", str(ann.add("true")))
    hard = str(resource.getrlimit(resource.RLIMIT_NPROC)[1]).replace("-1", "unlimited")
    ann.dibs("why", "1")
    set_process_limit(ann, "1")
    ids = submit_many(ann)
    log = Path(ann.environ["DIBS_HOME"]) / "daemon.log"
    wait_for(lambda: log.read_text().count("a start was refused: "), lambda count: count >= 3)
    told = wait_for(lambda: ann.dibs("why", str(ids[-1])), lambda text: "starts are paused: " in text)
    assert "Resource temporarily unavailable" in told
    assert ann.json("status")["counts"]["failed"] == 0
    # Runners that came to be meanwhile have inherited the limit.
    wait_for(lambda: [set_process_limit(ann, hard), ann.json("status")["counts"]["done"]][1], lambda done: done > 20)
    check_all_done(ann)


def test_a_gate_that_another_user_closed_is_a_condition_of_its_gpu(pair: tuple[Person, Person]) -> None:
    ann, ben = pair
    ben.dibs("wait", str(ben.add("true", "--gpu-ids", "1")))
    gate = Path(ann.environ["DIBS_LEASE_DIR"]) / ".dibs-gate-FAKE-1"
    assert gate.stat().st_uid == ben.uid
    gate.chmod(0o600)
    named = ann.add("true", "--gpu-ids", "1", "--retries", "0")
    ids = submit_many(ann)
    ann.dibs("wait", f"{ids[0]}-{ids[-1]}")
    told = wait_for(lambda: ann.dibs("why", str(named)), lambda text: str(gate) in text)
    assert "(owner: dibs-test-ben)" in told
    assert str(gate) in ann.dibs("gpus")
    with ann.popen("pipe") as piped:
        _, err = piped.communicate("true\ntrue\n")
    assert (piped.returncode, "GPU 1 is not used: " in err) == (0, True)
    gate.chmod(0o1666)
    check_all_done(ann)
