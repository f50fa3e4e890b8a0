"""A user who attacks the lease folder beside two who work: nothing fails, and the right user is always named."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import people
from bench import wait_for
from dibs.leases import prepared_folder
from dibs.system import locks
from people import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making unix users needs root")

HOSTILE = Path(__file__).parents[1] / "support" / "programs" / "hostile.py"
DEVICES = ("FAKE-0", "FAKE-1")
#: Attacks on the line, on all users at once, and on files that the attacker made first.
ATTACKS = ("gates", "tickets", "names", "others", "table", "backlogs", "churn", "plants", "records")
PROVING = bool(os.environ.get("DIBS_PROVE"))
#: Jobs of each user during an attack; how often each attack is made at least, and for how many seconds.
JOBS, ROUNDS, LEAST_S = (7, 2, 60.0) if PROVING else (4, 2, 0.0)


@dataclass
class House:
    """A machine with two users who work, and a third account for an attacker."""

    folder: Path
    leases: Path
    ann: Person
    ben: Person
    eve: Person
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def attack(self, *names: str) -> subprocess.Popen[str]:
        """Let the third user attack; return when the first attack has begun."""
        place = locks.Folder(str(self.leases))
        words = [place.path, place.prefix, str(self.ann.uid), ",".join(DEVICES), ",".join(names)]
        command = ["/usr/bin/python3", str(self.folder / "hostile.py"), *words]
        who: dict[str, Any] = {"user": self.eve.uid, "group": self.eve.gid, "extra_groups": []}
        self.started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", **who))
        assert self.started[-1].stdout is not None
        assert self.started[-1].stdout.readline().strip() == names[0]
        return self.started[-1]

    def end_attack(self) -> None:
        """Kill the third user's programs."""
        while self.started:
            program = self.started.pop()
            program.kill()
            program.communicate()


@pytest.fixture(params=["open", "prepared"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    with people.shared_machine("run/dibs") as machine:
        if request.param == "prepared":
            prepared_folder.prepare(str(machine.folder), DEVICES)
        shutil.copy(HOSTILE, machine.folder / "hostile.py")
        (machine.folder / "hostile.py").chmod(0o644)
        three = [machine.person(name, f"fake:{len(DEVICES)}") for name in (*people.NAMES, "dibs-test-eve")]
        found = House(machine.folder, machine.leases, *three)
        yield found
        found.end_attack()


def gpus(person: Person) -> Any:
    return person.json("gpus")


def is_done(person: Person, job: int) -> Callable[[], bool]:
    return lambda: person.show(job)["state"] == "done"


@pytest.mark.parametrize(("attack", "is_pid_seen"), [("gates", True), ("names", False)])
def test_a_user_who_blocks_everybody_is_named_in_every_output(house: House, attack: str, is_pid_seen: bool) -> None:
    ann, eve = house.ann, house.eve
    # So that the gates exist.
    wait_for(is_done(ann, ann.add("true", "-g", "2")))
    program = house.attack(attack)
    job = ann.add("true")
    pid = program.pid if is_pid_seen else None
    for gpu in wait_for(lambda: gpus(ann)["gpus"], lambda seen: all(one["blocked"] for one in seen)):
        assert (gpu["blocked"]["uid"], gpu["blocked"]["user"], gpu["blocked"]["pid"]) == (eve.uid, eve.name, pid)
        assert gpu["state"] == "leased"
    why = ann.json("why", str(job))
    assert f"blocked by {eve.name}" in why["reason"]
    assert ("sudo kill" if is_pid_seen else "sudo dibs doctor") in why["hint"]
    assert eve.name in ann.dibs("gpus")
    with ann.popen("doctor") as process:
        told = process.communicate()[0]
    assert f"blocked by {eve.name}" in " ".join(told.split())
    with ann.popen("lease", "--no-wait", "true") as process:
        assert eve.name in process.communicate()[1]
    house.end_attack()
    wait_for(is_done(ann, job))
    assert ann.show(job)["attempt"] == 1


def test_root_sees_which_process_bound_a_name(house: House) -> None:
    program = house.attack("names")
    environ = {**house.ann.environ, "DIBS_HOME": str(house.folder / "root"), "HOME": str(house.folder / "root")}
    command = [str(house.ann.python.with_name("dibs")), "doctor"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, cwd="/")
    assert f"sudo kill {program.pid}" in " ".join(done.stdout.split())


def test_nobody_can_wait_in_the_name_of_another_user(house: House) -> None:
    wait_for(is_done(house.ann, house.ann.add("true", "-g", "2")))
    house.attack("others")
    assert gpus(house.ben)["waiters"] == []
    with house.ben.popen("doctor") as process:
        told = " ".join(process.communicate()[0].split())
    assert f"{house.eve.name} made it in the name of {house.ann.name}" in told
    house.end_attack()
    house.attack("tickets")
    seen = gpus(house.ben)["waiters"]
    assert {one["user"] for one in seen} == {house.eve.name}
    assert 0 < len(seen) <= 16
    assert all(set(one["devices"]) <= set(DEVICES) for one in seen)


def test_planted_records_and_reservations_stop_nobody_and_speak_for_nobody(house: House) -> None:
    ann, ben, eve = house.ann, house.ben, house.eve
    house.attack("records")
    job = ann.add("true", "-g", "2", "--retries", "0")
    wait_for(is_done(ann, job))
    assert ann.show(job)["attempt"] == 1
    ann.dibs("lease", "true")
    assert {(one["user"], one["name"]) for one in ann.json("reserve", "list")["reservations"]} == {
        (eve.name, "x??[2Jroot")
    }
    assert {one["user"] for one in ann.json("usage")["people"]} <= {ann.name, eve.name}
    with ben.popen("doctor") as process:
        told = " ".join(process.communicate()[0].split())
    assert f"{eve.name} made it in the name of {ann.name}" in told


def test_two_users_finish_their_jobs_during_constant_attacks(house: House) -> None:
    """Jobs keep coming while each attack is made twice; with `DIBS_PROVE=1` for a minute, a hundred of each user."""
    ann, ben, eve = house.ann, house.ben, house.eve
    # She came first, so in an open folder the files of this GPU are hers.
    eve.dibs("lease", "--gpu-ids", "1", "true")
    wait_for(is_done(ann, ann.add("true", "-g", "2")))
    program = house.attack(*ATTACKS)
    names = {person.uid: person.name for person in (ann, ben, eve)}
    blocked: Counter[str] = Counter()
    began, attacks = time.monotonic(), 0
    while attacks < ROUNDS * len(ATTACKS) or time.monotonic() - began < LEAST_S:
        for person in (ann, ben):
            if attacks < ROUNDS * len(ATTACKS):
                person.dibs("add", "--retries", "0", "--repeat", str(JOBS), "sleep 0.05")
            blocked += _check_names(gpus(person), names, eve)
        assert program.stdout is not None
        assert program.stdout.readline().strip() in ATTACKS
        attacks += 1
    seconds = time.monotonic() - began

    def unfinished() -> int:
        counts = [person.json("status")["counts"] for person in (ann, ben)]
        assert sum(one.get("failed", 0) + one.get("lost", 0) for one in counts) == 0
        return sum(one.get(state, 0) for one in counts for state in ("queued", "starting", "running"))

    wait_for(unfinished, lambda left: left == 0)
    for person in (ann, ben):
        ended = [(job["state"], job["attempt"]) for job in person.json("status", "all")["jobs"]]
        assert set(ended) == {("done", 1)}
        print(f"{person.name}: {len(ended)} jobs done in their first attempt, 0 failed")
    print(f"{attacks} attacks in {seconds:.0f} s; GPUs seen blocked, by the user that was named: {dict(blocked)}")


def _check_names(seen: Any, people_by_uid: dict[int, str], eve: Person) -> Counter[str]:
    """Check every reported name against what the kernel knows; return how many GPUs are blocked, by whom."""
    blocked: Counter[str] = Counter()
    for gpu in seen["gpus"]:
        for holder in gpu["holders"]:
            assert people_by_uid[holder["uid"]] == holder["user"]
        if gpu["blocked"]:
            assert gpu["blocked"]["user"] in (eve.name, None)
            blocked[gpu["blocked"]["user"] or "unknown"] += 1
    for waiter in seen["waiters"]:
        assert waiter["user"] in people_by_uid.values()
        assert waiter["devices"]
    return blocked
