"""Two users on one machine: leases exclude, holders are named, and the line is fair."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import people
from bench import wait_for
from dibs.leases import drains
from dibs.system import locks
from people import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")


@pytest.fixture
def pair() -> Iterator[Callable[[str], tuple[Person, Person]]]:
    """Make two users who share `devices`."""
    with people.shared_machine() as machine:
        yield machine.pair


def gated(gate: Path) -> str:
    """Return a command that runs until `gate` exists."""
    return f"while [ ! -e {gate} ]; do sleep 0.01; done"


def until_started(person: Person, job: int) -> None:
    wait_for(lambda: person.show(job), lambda seen: seen["started_at"] is not None)


def until_waiting(person: Person, user: str) -> None:
    """Wait until `user` is in the machine-wide line, as `person` sees it."""
    wait_for(lambda: person.json("gpus")["waiters"], lambda line: user in [w["user"] for w in line])


def test_leases_exclude_and_name_the_other_user(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    gate = ann.folder / "gate"
    hers = ann.add(gated(gate))
    until_started(ann, hers)
    his = ben.add("true")
    holder = ben.gpus()[0]["holders"][0]
    assert (holder["user"], holder["job"]) == (ann.name, str(hers))
    assert Path(f"/proc/{holder['pid']}").stat().st_uid == ann.uid
    assert ann.gpus()[0]["holders"] == ben.gpus()[0]["holders"]
    assert ann.name in ben.json("why", str(his))["reason"]
    gate.touch()
    assert wait_for(lambda: ben.show(his), lambda seen: seen["finished_at"] is not None)["state"] == "done"


def test_the_other_user_gets_the_next_free_gpu(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    gate = ann.folder / "gate"
    first = ann.add(gated(gate))
    until_started(ann, first)
    (ann.folder / "many").write_text("sleep 0.05\n" * 50)
    many = [int(word) for word in ann.dibs("add", "--file", "many").split()]
    until_waiting(ben, ann.name)
    his = ben.add("true")
    until_waiting(ben, ben.name)
    gate.touch()
    mine = wait_for(lambda: ben.show(his), lambda seen: seen["finished_at"] is not None)
    second = wait_for(lambda: ann.show(many[0]), lambda seen: seen["started_at"] is not None)
    assert mine["state"] == "done"
    assert mine["finished_at"] <= second["started_at"]


def test_a_foreground_lease_gets_the_next_free_gpu_too(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    gate = ann.folder / "gate"
    until_started(ann, ann.add(gated(gate)))
    (ann.folder / "many").write_text("sleep 0.05\n" * 50)
    many = [int(word) for word in ann.dibs("add", "--file", "many").split()]
    until_waiting(ann, ann.name)
    with ben.popen("lease", "sh", "-c", "date +%s%N; read line") as lease:
        until_waiting(ann, ben.name)
        gate.touch()
        assert lease.stdout is not None
        held_since_ns = int(lease.stdout.readline())
        assert ann.gpus()[0]["holders"][0]["user"] == ben.name
        assert ann.show(many[0])["state"] == "queued"
        lease.communicate("go\n")
    assert lease.returncode == 0
    second = wait_for(lambda: ann.show(many[0]), lambda seen: seen["started_at"] is not None)
    assert held_since_ns > 0
    assert second["state"] in ("running", "done")


def test_a_ticket_for_all_gpus_is_served_among_small_jobs(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:4")
    gate = ann.folder / "gate"
    (ann.folder / "many").write_text(f"{gated(gate)}\n" * 4 + "sleep 0.1\n" * 20)
    many = [int(word) for word in ann.dibs("add", "--file", "many").split()]
    until_started(ann, many[3])
    big = ben.add("echo $CUDA_VISIBLE_DEVICES", "-g", "4")
    # Otherwise a slow start of Ben's daemon could come after the last of Ann's jobs.
    until_waiting(ann, ben.name)
    gate.touch()
    seen = wait_for(lambda: ben.show(big), lambda job: job["finished_at"] is not None)
    assert seen["state"] == "done"
    assert sorted(seen["gpu_indices"]) == [0, 1, 2, 3]
    ann.dibs("wait")
    last = max(ann.show(job)["started_at"] for job in many[-4:])
    assert seen["started_at"] < last


def test_a_deleted_lease_file_does_not_allow_two_holders(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    gate = ann.folder / "gate"
    hers = ann.add(gated(gate))
    until_started(ann, hers)
    (Path(ann.environ["DIBS_LEASE_DIR"]) / ".dibs-lease-FAKE-0").unlink()
    with ben.popen("lease", "--no-wait", "true") as refused:
        refused.communicate(timeout=60)
    assert refused.returncode == 75
    his = ben.add("true")
    until_waiting(ben, ben.name)
    assert ben.show(his)["state"] == "queued"
    gate.touch()
    assert wait_for(lambda: ben.show(his), lambda seen: seen["finished_at"] is not None)["state"] == "done"


def test_the_ticket_of_a_killed_lease_command_disappears(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    gate = ann.folder / "gate"
    until_started(ann, ann.add(gated(gate)))
    with ben.popen("lease", "true") as lease:
        until_waiting(ann, ben.name)
        lease.kill()
        lease.communicate()
    wait_for(lambda: ann.json("gpus")["waiters"], lambda line: line == [])
    after = ann.add("true")
    gate.touch()
    assert wait_for(lambda: ann.show(after), lambda seen: seen["finished_at"] is not None)["state"] == "done"


def test_no_user_can_read_or_use_the_queue_of_another(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    ann.add("echo secret")
    ann.dibs("wait")
    ben.environ = ben.environ | {"DIBS_HOME": ann.environ["DIBS_HOME"]}
    with ben.popen("status") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert len(err.splitlines()) == 1
    for path in Path(ann.environ["DIBS_HOME"]).rglob("*"):
        assert path.is_symlink() or path.lstat().st_mode & 0o077 == 0, path


def test_a_users_drain_applies_to_own_jobs_and_roots_to_everybody(pair: Callable[[str], tuple[Person, Person]]) -> None:
    ann, ben = pair("fake:1")
    assert ann.dibs("gpus", "drain", "0", "--reason", "mine") == "GPU 0: drained by you: mine; running jobs continue\n"
    hers = ann.add("true")
    assert "GPU 0: drained by you: mine" in ann.dibs("why", str(hers))
    his = ben.add("true")
    wait_for(lambda: ben.show(his)["state"], lambda state: state == "done")
    place = locks.Folder(ann.environ["DIBS_LEASE_DIR"])
    drains.mark(place, "FAKE-0", "fan")
    assert ann.dibs("gpus", "undrain", "0") == "GPU 0: drained by root: fan\n"
    his = ben.add("true")
    assert "GPU 0: drained by root: fan" in ben.dibs("why", str(his))
    with ben.popen("gpus", "undrain", "0") as process:
        _, complaint = process.communicate()
    assert (process.returncode, "GPU 0 is drained by root for all users" in complaint) == (4, True)
    drains.unmark(place, "FAKE-0")
    # The marks of root are read in every turn; any request of a user causes one.
    for person, job in ((ann, hers), (ben, his)):
        person.dibs("resume")
        wait_for(lambda person=person, job=job: person.show(job)["state"], lambda state: state == "done")  # type: ignore[misc]
