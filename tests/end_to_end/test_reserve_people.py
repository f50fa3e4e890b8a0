"""A reservation among real accounts: it begins on time on all its GPUs, and nothing that would overlap starts."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timedelta

import pytest

import lab_house
import people
from bench import wait_for
from lab_house import Lab
from people import Person

# pytest finds fixtures by their names in this module.
lab = lab_house.lab
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making unix users needs root")


#: Seconds until a reservation begins: the next one if the machine was too busy to do the rest before.
MARGINS_S = (15, 60, 240)


def at(job: dict[str, str], key: str) -> float:
    return datetime.fromisoformat(job[key]).timestamp()


#: Prints the events of a job.
EVENTS = """
import json, os, sys
from dibs.client import connection
print(json.dumps(connection.connect(os.environ).get(f"/v1/jobs/{sys.argv[1]}/events")["events"]))
"""


def placed_at(person: Person, job: int) -> float:
    """Return when the daemon decided to start a job."""
    with person.popen("-c", EVENTS, str(job), tool="python") as process:
        events = json.loads(process.communicate()[0])
    (moment,) = [event["at"] for event in events if event["kind"] == "Placed"]
    return datetime.fromisoformat(moment).timestamp()


def is_done_before(moment: datetime, person: Person, jobs: list[int]) -> bool:
    for job in jobs:
        wait_for(lambda job=job: person.show(job), lambda seen: seen["state"] == "done")
    return time.time() < moment.timestamp()


def test_a_reservation_begins_on_time_while_short_jobs_ran_until_then(lab: Lab) -> None:
    lab.rule("[quotas.default]\nreserve_gpus = 2\n")
    ann, ben = (lab.person(name, "fake:2") for name in people.NAMES)
    for margin_s in MARGINS_S:
        begin = datetime.now().astimezone().replace(microsecond=0) + timedelta(seconds=margin_s)
        # Starts at the same time for another reason: the machine may be so busy that every start is late.
        control = ann.add("true", "-g", "0", "--begin", begin.isoformat())
        made = ann.json("reserve", "-g", "2", "--from", begin.isoformat(), "--for", "1h", "--name", "deadline")
        assert (made["gpus"], made["user"]) == ([0, 1], ann.name)
        mine = ann.add("sleep 0.2", "-g", "2")
        # Short jobs of the other user pass; those that would overlap wait, with the reason.
        short = [ben.add("sleep 0.1", "-t", "2s") for _ in range(3)]
        long, endless = ben.add("sleep 0.1", "-t", "30m"), ben.add("sleep 0.1")
        told = [ben.json("why", str(job))["reason"] for job in (long, endless)]
        with ben.popen("lease", "--no-wait", "true") as process:
            told.append(process.communicate()[1])
        states = [ben.show(long)["state"], ben.show(endless)["state"], ann.show(mine)["state"]]
        if is_done_before(begin, ben, short):
            break
        for person in (ann, ben):
            person.dibs("cancel", "-y", "all")
        ann.dibs("reserve", "cancel", str(made["id"]))
    else:
        raise AssertionError("the machine is too slow for this test")
    assert [f"reserved for {ann.name} from" in text for text in told] == [True] * 3, told
    assert process.returncode == 75
    assert states == ["queued"] * 3
    done = wait_for(lambda: ann.show(mine), lambda seen: seen["state"] == "done")
    wait_for(lambda: ann.show(control), lambda seen: seen["state"] == "done")
    late_s = at(done, "started_at") - begin.timestamp()
    print(f"started {late_s:.3f} s after the reservation began")
    assert late_s >= 0
    assert placed_at(ann, mine) - placed_at(ann, control) < 1.0
    assert late_s < 1.0 or not os.environ.get("DIBS_PROVE")
    assert [ben.show(job)["state"] for job in (long, endless)] == ["queued", "queued"]
    assert f"reserved for {ann.name} until" in ben.json("why", str(long))["reason"]
    # Once it is cancelled, the others start.
    assert ann.dibs("reserve", "cancel", str(made["id"])) == f"reservation {made['id']} cancelled\n"
    ben.dibs("hold", str(long))
    ben.dibs("unhold", str(long))
    for job in (long, endless):
        wait_for(lambda job=job: ben.show(job), lambda seen: seen["state"] == "done")


def refused(person: Person, *words: str) -> tuple[int, str]:
    with person.popen("reserve", *words) as process:
        _, err = process.communicate()
    return process.returncode, err


def test_what_cannot_be_reserved_is_refused_in_words(lab: Lab) -> None:
    lab.rule("")
    ann, ben = (lab.person(name, "fake:4") for name in people.NAMES)
    when = ("--from", "now+2h", "--for", "1h")
    for person, words, code, told in (
        (ann, ("-g", "3", *when), 69, "you may reserve 2 GPUs at once, not 3."),
        (ann, ("-g", "1", "--from", "now+2h", "--for", "25h"), 69, "a user's reservation lasts 24 hours at most."),
        (ann, ("-g", "1", "--from", "now+8d", "--for", "1h"), 69, "a user reserves 7 days ahead at most."),
        (ann, ("-g", "1", *when, "--user", ben.name), 4, "only root reserves for somebody else"),
        (ann, ("-g", "1", *when, "--user", "nobody-here"), 3, 'there is no user "nobody-here"'),
        (ann, ("-g", "0", *when), 2, "reserve expected at least one GPU"),
        (ann, ("-g", "1", "--from", "now+2h"), 2, "reserve expected --from TIME and --for DURATION."),
        (ann, ("cancel", "9"), 3, "there is no reservation 9."),
        (ann, ("lst",), 2, "reserve expected list, cancel ID, or --from and --for"),
    ):  # fmt: skip
        got = refused(person, *words)
        assert (got[0], told in got[1]) == (code, True), (words, got)
    number = ann.dibs("reserve", "-g", "2", *when).strip()
    assert "beside 2 GPUs that you have reserved" in refused(ann, "-g", "1", "--from", "now+150m", "--for", "1h")[1]
    assert ben.dibs("reserve", "-g", "2", *when, "--every", "week")
    code, told = refused(lab.person("dibs-test-eve", "fake:4"), "-g", "1", *when)
    assert (code, "0 GPUs of 4 can be reserved for that time" in told, ann.name in told) == (2, True, True)
    assert refused(ben, "cancel", number)[0] == 4
    listed = ben.json("reserve", "list")["reservations"]
    assert {(one["user"], one["every"], one["state"]) for one in listed} == {
        (ann.name, None, "planned"), (ben.name, "week", "planned"),
    }  # fmt: skip
    assert ben.dibs("reserve", "list", "-q").splitlines() == [str(one["id"]) for one in listed]
    assert ann.dibs("reserve", "cancel", "-q", number) == f"{number}\n"


def reboot(lab: Lab, *daemons: Person) -> None:
    """Leave what a reboot leaves: no process and an empty lease folder. Then start daemons again."""
    for person in lab.people:
        person.close()
    for path in lab.leases.iterdir():
        path.unlink()
    for person in daemons:
        person.dibs("daemon", "start")


def ids(person: Person) -> list[tuple[int, str]]:
    return sorted((one["id"], one["name"]) for one in person.json("reserve", "list")["reservations"])


def test_a_reservation_outlives_a_reboot_once_its_users_daemon_runs(lab: Lab) -> None:
    lab.rule("[quotas.default]\nreserve_gpus = 2\n")
    ann, ben = (lab.person(name, "fake:2") for name in people.NAMES)
    cancelled = ann.dibs("reserve", "-g", "1", "--from", "now+5h", "--for", "1h", "--name", "cancelled").strip()
    ann.dibs("reserve", "-g", "2", "--from", "now+1h", "--for", "2h", "--name", "kept")
    ann.dibs("reserve", "cancel", cancelled)
    reboot(lab, ann, ben)
    assert ids(ben) == [(2, "kept")]
    # It is honoured by the other user's daemon as before, and short jobs still pass.
    waits, passes = ben.add("true"), ben.add("true", "-t", "1m")
    wait_for(lambda: ben.show(passes), lambda seen: seen["state"] == "done")
    assert f"reserved for {ann.name} from" in ben.json("why", str(waits))["reason"]
    # Cancelled after that, it stays away.
    ann.dibs("reserve", "cancel", "2")
    reboot(lab, ann, ben)
    assert ids(ben) == []


def test_what_root_reserved_or_cancelled_is_so_after_a_reboot(lab: Lab) -> None:
    """Root runs no daemon, and the user's daemon does not run while root cancels."""
    lab.rule("")
    root, ann, ben = (lab.person(name, "fake:4") for name in ("root", *people.NAMES))
    when = ("--from", "now+1h", "--for", "1h")
    root.dibs("reserve", "-g", "2", *when, "--user", ben.name, "--name", "course")
    ann.dibs("reserve", "-g", "1", *when, "--name", "cancelled")
    ann.dibs("reserve", "-g", "1", *when, "--name", "kept")
    ann.close()
    root.dibs("reserve", "cancel", "2")
    reboot(lab, ann)
    assert ids(ben) == [(1, "course"), (3, "kept")]
    code, told = refused(lab.person("dibs-test-eve", "fake:4"), "-g", "2", *when)
    assert (code, f"{ben.name} has 2 GPUs from" in told) == (2, True), told
    # The next one with that number is not the one that root cancelled.
    assert ann.dibs("reserve", "-g", "1", "--from", "now+3h", "--for", "1h", "--name", "new").strip() == "2"
    reboot(lab, ann)
    assert ids(ben) == [(1, "course"), (2, "new"), (3, "kept")]


def test_a_user_has_eight_reservations(lab: Lab) -> None:
    lab.rule("")
    ann = lab.person(people.NAMES[0], "fake:2")
    for hour in range(8):
        ann.dibs("reserve", "-g", "1", "--from", f"now+{2 * hour + 1}h", "--for", "1h")
    code, told = refused(ann, "-g", "1", "--from", "now+30h", "--for", "1h")
    assert (code, "you have 8 reservations (1, 2, 3, 4, 5, 6, 7, 8), and a user may have 8." in told) == (69, True), (
        told
    )
