"""A reservation among real accounts: it begins on time on all its GPUs, and nothing that would overlap starts."""

from __future__ import annotations

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


def at(job: dict[str, str], key: str) -> float:
    return datetime.fromisoformat(job[key]).timestamp()


def test_a_reservation_begins_on_time_while_short_jobs_ran_until_then(lab: Lab) -> None:
    lab.rule("[quotas.default]\nreserve_gpus = 2\n")
    ann, ben = (lab.person(name, "fake:2") for name in people.NAMES)
    begin = datetime.now().astimezone().replace(microsecond=0) + timedelta(seconds=12)
    made = ann.json("reserve", "-g", "2", "--from", begin.isoformat(), "--for", "1h", "--name", "deadline")
    assert (made["gpus"], made["user"]) == ([0, 1], ann.name)
    mine = ann.add("sleep 0.2", "-g", "2")
    # Short jobs of the other user pass; those that would overlap wait, with the reason.
    short = [ben.add("sleep 0.1", "-t", "2s") for _ in range(3)]
    long, endless = ben.add("sleep 0.1", "-t", "30m"), ben.add("sleep 0.1")
    for job in short:
        wait_for(lambda job=job: ben.show(job), lambda seen: seen["state"] == "done")
    assert time.time() < begin.timestamp(), "the machine is too slow for this test"
    for job in (long, endless):
        assert ben.show(job)["state"] == "queued"
        assert f"reserved for {ann.name} from" in ben.json("why", str(job))["reason"]
    with ben.popen("lease", "--no-wait", "true") as process:
        assert f"reserved for {ann.name} from" in process.communicate()[1]
    assert process.returncode == 75
    assert ann.show(mine)["state"] == "queued"
    done = wait_for(lambda: ann.show(mine), lambda seen: seen["state"] == "done")
    assert 0 <= at(done, "started_at") - begin.timestamp() < 1.0
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
        (ann.name, None, "to come"), (ben.name, "week", "to come"),
    }  # fmt: skip
