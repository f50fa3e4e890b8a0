"""Evictable jobs of one user yield to another: through tickets, without root, as the kernel proves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import people
from bench import wait_for
from dibs.leases import tickets
from dibs.system.locks import Folder
from people import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

#: Runs until it is stopped, and says so.
RUNS = "trap 'echo saved; exit 75' TERM; while :; do sleep 0.02; done"


@pytest.fixture
def pair() -> Iterator[tuple[Person, Person]]:
    """Two users who share two GPUs and evict at once."""
    with people.shared_machine() as machine:
        made = machine.pair("fake:2")
        for person in made:
            person.environ |= {"DIBS_EVICT_MIN_RUN": "0s", "DIBS_EVICT_GRACE": "30s", "DIBS_MAX_GPUS": "1"}
        yield made


def finished(person: Person, job: int) -> dict[str, object]:
    return dict(wait_for(lambda: person.show(job), lambda seen: seen["finished_at"] is not None))


def evicted(person: Person, jobs: range) -> list[int]:
    """Return the jobs that were evicted, once there are any: a GPU is free a moment before its eviction is recorded."""

    def recorded() -> list[int]:
        return [job["id"] for job in person.json("status", f"{jobs[0]}-{jobs[-1]}")["jobs"] if job["evictions"]]

    return list(wait_for(recorded, bool))


def users_in_line(person: Person) -> set[int]:
    """Return who has a ticket in the machine-wide line."""
    return {ticket.uid for ticket in tickets.line(Folder(person.environ["DIBS_LEASE_DIR"]))}


def hoard(person: Person, count: int) -> range:
    """Queue evictable jobs that never end; return their ids once two of them run."""
    (person.folder / "many").write_text(f"{RUNS}\n" * count)
    ids = [int(word) for word in person.dibs("add", "--evictable", "--file", "many").split()]
    wait_for(lambda: person.json("status", "running")["jobs"], lambda running: len(running) == 2)
    return range(ids[0], ids[-1] + 1)


def test_a_newcomer_gets_a_gpu_of_a_hoarder_after_one_eviction(pair: tuple[Person, Person]) -> None:
    """Ann runs two evictable jobs beyond her share and has 498 more; each of Ben's jobs costs her one eviction."""
    ann, ben = pair
    jobs = hoard(ann, 500)
    assert [gpu["holders"][0]["evictable"] for gpu in ben.gpus()] == [True, True]
    his = ben.add("true")
    assert finished(ben, his)["state"] == "done"
    assert len(evicted(ann, jobs)) == 1
    (one,) = evicted(ann, jobs)

    log = ann.dibs("show", str(one))
    assert f"another user (uid {ben.uid}) waits for its GPUs" in " ".join(log.split())
    # What she gave up is hers again, with the same job, as soon as he is done.
    wait_for(lambda: ann.show(one), lambda seen: seen["attempt"] == 2 and seen["state"] == "running")


def test_an_evictable_job_evicts_nobody(pair: tuple[Person, Person]) -> None:
    """Her jobs yield to her ordinary job only; he gets a GPU after it, because she was served before."""
    ann, ben = pair
    jobs = hoard(ann, 3)
    his = ben.add(RUNS, "--evictable")
    assert "evictable" in ben.json("why", str(his))["reason"]
    # The answer may come before his daemon has joined the line; without his ticket her own next job would be first.
    wait_for(lambda: ben.uid in users_in_line(ben))
    hers = ann.add("true")
    assert finished(ann, hers)["state"] == "done"
    wait_for(lambda: ben.show(his), lambda seen: seen["state"] == "running")
    assert ben.show(his)["started_at"] >= ann.show(hers)["finished_at"]
    assert len(evicted(ann, jobs)) == 1


def test_a_lease_in_the_foreground_evicts_too(pair: tuple[Person, Person]) -> None:
    ann, ben = pair
    jobs = hoard(ann, 2)
    assert ben.dibs("lease", "--", "echo", "mine").strip() == "mine"
    assert len(evicted(ann, jobs)) == 1
