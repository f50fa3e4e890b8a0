"""Rules of root for several real accounts: quotas hold for every way to a GPU, and the reasons are in words."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

import pytest

import lab_house
import people
from bench import wait_for
from dibs.leases import usage_records
from dibs.system.locks import Folder
from lab_house import Lab
from people import Person

# pytest finds fixtures by their names in this module.
lab = lab_house.lab
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making unix users needs root")

PYTHON_LEASE = "import dibs, sys\nwith dibs.lease(gpus=1):\n    print('held', flush=True)\n    sys.stdin.readline()\n"

#: A task of gpu_task_scheduler, and a script that runs it on four GPUs.
SLEEPER = """
import time
from gpu_task_scheduler.gpu_task import GPUTask

class Sleeper(GPUTask):
    def main(self):
        time.sleep(1000)
"""
TASKS = """
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
from sleeper import Sleeper

config = {
    "scheduler_config": {"gpu": ["0", "1", "2", "3"]},
    "global_config": {},
    "test_config": [{"name": [str(n)]} for n in range(4)],
}
scheduler = GPUTaskScheduler(config=config, gpu_task_class=Sleeper)
scheduler.start(raise_on_failure=True)
"""


def held_by(person: Person, viewer: Person) -> int:
    """Return how many GPUs a user holds."""
    return sum(any(one["user"] == person.name for one in gpu["holders"]) for gpu in viewer.gpus())


def _pipe(person: Person) -> subprocess.Popen[str]:
    return _fed(person, "dibs", "pipe")


def _fed(person: Person, tool: str, *words: str) -> subprocess.Popen[str]:
    process = person.popen(*words, tool=tool)
    assert process.stdin is not None
    # It may have refused everything and ended.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("sleep 1000\n" * 4)
        process.stdin.close()
    return process


def _lease(person: Person) -> subprocess.Popen[str]:
    return person.popen("lease", "sleep", "1000")


def _python_lease(person: Person) -> subprocess.Popen[str]:
    return person.popen("-c", PYTHON_LEASE, tool="python")


def _simple_gpu_scheduler(person: Person) -> subprocess.Popen[str]:
    return _fed(person, "simple_gpu_scheduler", "--gpus", "0", "1", "2", "3")


def _schedule(person: Person) -> subprocess.Popen[str]:
    return person.popen("sleep 1000", tool="schedule")


def _sch(person: Person) -> subprocess.Popen[str]:
    return person.popen("-i", "4", "sleep", "1000", tool="sch")


def _gpu_task_scheduler(person: Person) -> subprocess.Popen[str]:
    (person.folder / "sleeper.py").write_text(SLEEPER)
    (person.folder / "tasks.py").write_text(TASKS)
    return person.popen("tasks.py", tool="python")


DOORS: list[Callable[[Person], subprocess.Popen[str]]] = [
    _pipe,
    _lease,
    _python_lease,
    _simple_gpu_scheduler,
    _schedule,
    _sch,
    _gpu_task_scheduler,
]


def told_by(process: subprocess.Popen[str], text: str) -> str:
    """Read the errors of a process up to the line with a text."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__[1:])
def test_a_quota_of_two_gpus_holds_beside_a_daemon(lab: Lab, door: Callable[[Person], subprocess.Popen[str]]) -> None:
    lab.rule("[quotas.user.dibs-test-ann]\ngpus = 2\n")
    ann, ben = (lab.person(name, "fake:4") for name in people.NAMES)
    first = [ann.add("sleep 1000") for _ in range(2)]
    for job in first:
        wait_for(lambda job=job: ann.show(job), lambda seen: seen["started_at"] is not None)
    third = ann.add("sleep 1000")
    why = ann.json("why", str(third))["reason"]
    assert why == "your quota is 2 GPUs at once, and you hold 2"
    process = door(ann)
    try:
        told_by(process, "your quota is 2 GPUs at once, and you hold 2")
        assert held_by(ann, ben) == 2
        # The next GPU of the quota goes to one of those who wait, and never to both.
        ann.dibs("cancel", "-y", str(first[0]))
        wait_for(lambda: ann.show(first[0])["state"] == "cancelled" and held_by(ann, ben) == 2)
        # Others are not limited.
        his = [ben.add("sleep 1000") for _ in range(2)]
        for job in his:
            wait_for(lambda job=job: ben.show(job), lambda seen: seen["started_at"] is not None)
        assert held_by(ann, ben) == 2
    finally:
        ann.close()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_what_a_quota_never_allows_is_refused_at_once(lab: Lab) -> None:
    lab.rule('[quotas.default]\ngpus = 2\ntime = "2h"\n[quotas.user.dibs-test-ben]\nvram = "8G"\n')
    ann, ben = (lab.person(name, "fake:4x24G") for name in people.NAMES)
    for person, words, told in (
        (ann, ("add", "-g", "3", "true"), "the job asks for 3 GPUs; your quota is 2 at once."),
        (ann, ("run", "-t", "3h", "true"), "the job asks for 3h00m; your quota is 2h00m."),
        (ann, ("lease", "-g", "3", "true"), "the lease asks for 3 GPUs; your quota is 2 at once."),
        (ann, ("lease", "-t", "3h", "true"), "the lease asks for 3h00m; your quota is 2h00m."),
        (ann, ("pipe", "-g", "3"), "each command asks for 3 GPUs; your quota is 2 at once."),
        (ben, ("add", "true"), "the job asks for whole GPUs; your quota is 8G of each GPU."),
        (ben, ("add", "--vram", "9G", "true"), "the job asks for --vram 9G; your quota is 8G of each GPU."),
        (ben, ("lease", "true"), "the lease asks for whole GPUs; your quota is 8G of each GPU."),
        (ben, ("pipe",), "each command asks for whole GPUs; your quota is 8G of each GPU."),
    ):
        with person.popen(*words) as process:
            _, err = process.communicate()
        assert (process.returncode, told in err) == (69, True), (words, err)
    job = ann.add("true")
    assert ann.show(job)["time_limit_s"] == 7200
    assert ben.show(ben.add("true", "--vram", "8G"))["vram"] == 8 * 2**30


#: What each way to a GPU without a daemon says when a quota of time ends its command.
LIMITED: list[tuple[Callable[[Person], subprocess.Popen[str]], str]] = [
    (_pipe, "command 1 stopped: it reached the 1s that the quota allows"),
    (_simple_gpu_scheduler, "command 1 stopped: it reached the 1s that the quota allows"),
    (_schedule, "schedule: the task was ended: it reached the 1s that the quota allows"),
    (_sch, "sch: the task was ended: it reached the 1s that the quota allows"),
    (_gpu_task_scheduler, "tasks failed and will run again next time"),
]


@pytest.mark.parametrize(("door", "told"), LIMITED, ids=[door.__name__[1:] for door, _ in LIMITED])
def test_quotas_of_time_and_memory_hold_without_a_daemon(
    lab: Lab, door: Callable[[Person], subprocess.Popen[str]], told: str
) -> None:
    lab.rule('[quotas.user.dibs-test-ann]\ntime = "1s"\n[quotas.user.dibs-test-ben]\nvram = "8G"\n')
    ann, ben = (lab.person(name, "fake:4x24G") for name in people.NAMES)
    refused = "each command asks for whole GPUs; your quota is 8G of each GPU."
    for person, expected in ((ann, told), (ben, refused)):
        with door(person) as process:
            told_by(process, expected)
            assert process.stderr is not None
            process.stderr.read()
    assert process.returncode != 0
    assert held_by(ann, ben) == held_by(ben, ben) == 0


def test_quotas_hold_for_jobs_of_gpupeasy(lab: Lab) -> None:
    """They are jobs of the daemon: the third waits, and each has the longest time that is allowed."""
    lab.rule('[quotas.user.dibs-test-ann]\ngpus = 2\ntime = "2h"\n[quotas.user.dibs-test-ben]\nvram = "8G"\n')
    ann, ben = (lab.person(name, "fake:4x24G") for name in people.NAMES)
    for person, answers in ((ann, ["successful"] * 3), (ben, ["failed"])):
        with person.popen("--port", "0", "--gpus", "0", "1", "2", "3", tool="gpupeasy-server") as server:
            assert server.stdout is not None
            address = next(line for line in server.stdout if " on http://" in line).split(" on ")[1].strip()
            for number, answer in enumerate(answers):
                job = {"jobName": "j", "outFile": str(person.folder / f"out{number}"), "jobCommand": ["sleep", "1000"]}
                request = urllib.request.Request(
                    f"{address}addnewjob", json.dumps({"job": job}).encode(), {"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request) as got:
                    assert json.load(got)["status"] == answer
            server.kill()
    wait_for(lambda: held_by(ann, ben), lambda held: held == 2)
    assert ann.json("why", "3")["reason"] == "your quota is 2 GPUs at once, and you hold 2"
    assert [job["time_limit_s"] for job in ann.json("status", "all")["jobs"]] == [7200] * 3
    assert ben.json("status", "all")["jobs"] == []


def test_a_project_that_used_its_gpu_hours_waits(lab: Lab) -> None:
    lab.rule("[quotas.project.demo]\ngpu_hours_per_week = 0.00001\n")
    ann = lab.person(people.NAMES[0], "fake:2")
    first = ann.add("sleep 0.1", "--project", "demo")
    wait_for(lambda: ann.show(first), lambda seen: seen["state"] == "done")
    second, other = ann.add("true", "--project", "demo"), ann.add("true")
    wait_for(lambda: ann.show(other), lambda seen: seen["state"] == "done")
    told = "the jobs of project demo used 0.0 of 1e-05 GPU-hours in 7 days (quota)"
    assert ann.json("why", str(second))["reason"] == told
    # It is known after a restart, too.
    ann.dibs("daemon", "restart")
    assert ann.json("why", str(second))["reason"] == told
    assert ann.show(second)["state"] == "queued"


def test_a_quota_of_a_project_holds_without_a_restart(lab: Lab) -> None:
    ann = lab.person(people.NAMES[0], "fake:2")
    first = ann.add("sleep 1000", "--project", "demo")
    wait_for(lambda: ann.show(first), lambda seen: seen["state"] == "running")
    lab.rule("[quotas.project.demo]\ngpus = 1\n")
    with ann.popen("add", "-g", "2", "--project", "demo", "true") as refused:
        assert "the quota of project demo is 1 at once" in refused.communicate()[1]
    assert refused.returncode == 69
    second = ann.add("true", "--project", "demo")
    assert ann.json("why", str(second))["reason"] == "the jobs of project demo use 1 of 1 GPUs (quota)"
    lab.rule("")
    ann.dibs("group", "set", "other", "-j", "1")
    wait_for(lambda: ann.show(second), lambda seen: seen["state"] == "done")


def test_a_group_has_a_quota_together_and_one_for_each_member(lab: Lab) -> None:
    ann, ben, eve = (lab.person(name, "fake:4") for name in (*people.NAMES, "dibs-test-eve"))
    people.make_group("dibs-test-students", [ann.name, ben.name])
    lab.rule("[quotas.group.dibs-test-students]\ngpus = 3\n[quotas.group.dibs-test-students.each]\ngpus = 2\n")
    for person in (ann, ben):
        for _ in range(3):
            person.add("sleep 1000")
        wait_for(lambda person=person: held_by(person, eve), lambda held: held >= 1)
    wait_for(lambda: held_by(ann, eve) + held_by(ben, eve), lambda held: held == 3)
    assert held_by(ann, eve) == 2
    reason = ben.json("why", "3")["reason"]
    assert reason == "the quota of group dibs-test-students is 3 GPUs at once, and its members hold 3"
    # A GPU of the quota that is released goes to the member who waits for it.
    ann.dibs("cancel", "-y", "all")
    wait_for(lambda: held_by(ben, eve), lambda held: held == 2)
    assert ben.json("why", "3")["reason"] == "your quota is 2 GPUs at once, and you hold 2"


def test_a_rule_that_root_did_not_write_does_not_count(lab: Lab) -> None:
    lab.rule("[quotas.default]\ngpus = 1\n")
    ann = lab.person(people.NAMES[0], "fake:2")
    os.chown(lab.folder / "etc" / "dibs" / "config.toml", ann.uid, ann.gid)
    ids = [ann.add("sleep 1000") for _ in range(2)]
    for job in ids:
        wait_for(lambda job=job: ann.show(job), lambda seen: seen["started_at"] is not None)


# -- fair share -------------------------------------------------------------------------------------------------------


def hold_all(lab: Lab, count: int) -> Person:
    """Let a third user hold all GPUs until `gate` exists in their folder."""
    eve = lab.person("dibs-test-eve", f"fake:{count}")
    job = eve.add("while [ ! -e gate ]; do sleep 0.01; done", "-g", str(count))
    wait_for(lambda: eve.show(job), lambda seen: seen["started_at"] is not None)
    return eve


def queue_many(person: Person, count: int, command: str) -> None:
    """Queue jobs that are alike, and wait until the first of them is in the machine-wide line."""
    (person.folder / "many").write_text(f"{command}\n" * count)
    person.dibs("add", "--file", "many")
    wait_for(lambda: person.json("gpus")["waiters"], lambda line: person.name in [one["user"] for one in line])


def started_by(people_here: Sequence[Person]) -> list[tuple[float, str]]:
    """Return when each job started and whose it was, in order, by the clocks of the jobs."""
    return sorted(
        (datetime.fromisoformat(job["started_at"]).timestamp(), person.name)
        for person in people_here
        for job in person.json("status", "all")["jobs"]
        if job["started_at"] is not None
    )


def recorded_s(lab: Lab, people_here: Sequence[Person]) -> list[float]:
    """Return the GPU time that counts for these users, at one moment."""
    days = usage_records.days_of_users(Folder(str(lab.leases)), [person.uid for person in people_here])
    return [sum(days[person.uid].values()) / 1000 for person in people_here]


@pytest.mark.parametrize("shares", [(3, 1), (3, 2, 1)], ids=["two", "three"])
def test_users_get_gpu_time_by_their_shares(lab: Lab, shares: Sequence[int]) -> None:
    """Over 200 jobs, within 10 % of GPU time, beside the one job by which users must differ who take turns.

    Of time, not of jobs: on a busy machine a job of one user may take longer than that of another.
    """
    names = (*people.NAMES, "dibs-test-dan")[: len(shares)]
    lab.rule("[shares.user]\n" + "".join(f"{name} = {share}\n" for name, share in zip(names, shares, strict=True)))
    eve = hold_all(lab, 1)
    all_people = [lab.person(name, "fake:1") for name in names]
    for person in all_people:
        queue_many(person, 200, "sleep 0.03")
    (eve.folder / "gate").touch()
    wait_for(
        lambda: sum(person.json("status")["counts"].get("done", 0) for person in all_people),
        lambda done: done >= 200,
        patience_s=280,
    )
    used_s = recorded_s(lab, all_people)
    starts = started_by(all_people)
    # The first ones come from the crowd at the gate.
    longest_s = max(later - earlier for (earlier, _), (later, _) in pairwise(starts[10:]))
    order = [name for _, name in starts[:200]]
    counts = [order.count(name) for name in names]
    print(f"shares {shares}: {counts} of 200 jobs, {used_s} s, at most {longest_s:.3f} s between two starts")
    one_share_s = sum(used_s) / sum(shares)
    for share, used in zip(shares, used_s, strict=True):
        assert abs(used - share * one_share_s) <= 0.1 * share * one_share_s + longest_s
    assert 0.7 <= counts[0] / counts[-1] / (shares[0] / shares[-1]) <= 1.3


def test_a_daemon_and_a_pipe_of_two_users_take_turns(lab: Lab) -> None:
    """Device time is shared equally; the pipe keeps a GPU for longer with each command, so it runs fewer of them."""
    lab.rule("")
    eve = hold_all(lab, 1)
    ann, ben = (lab.person(name, "fake:1") for name in people.NAMES)
    queue_many(ann, 60, "sleep 0.05")
    stamp = "date +%s%N >> stamps; sleep 0.05"
    with ben.popen("pipe", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as pipe:
        assert pipe.stdin is not None
        pipe.stdin.write(f"{stamp}\n" * 60)
        pipe.stdin.close()
        wait_for(lambda: ann.json("gpus")["waiters"], lambda line: ben.name in [one["user"] for one in line])
        (eve.folder / "gate").touch()
        assert pipe.wait() == 0
    his = [int(line) / 1e9 for line in (ben.folder / "stamps").read_text().split()]
    hers = [
        datetime.fromisoformat(job["started_at"]).timestamp()
        for job in ann.json("status", "all")["jobs"]
        if job["started_at"] is not None
    ]
    both = sorted([(at, "ben") for at in his] + [(at, "ann") for at in hers])[:60]
    assert 15 <= [who for _, who in both].count("ben") <= 45


def test_a_newcomer_waits_for_one_job_at_most_beside_a_hoarder(lab: Lab) -> None:
    """The first GPU that any of 500 jobs gives back is the newcomer's."""
    lab.rule("")
    ann, ben = (lab.person(name, "fake:2") for name in people.NAMES)
    queue_many(ann, 500, 'while [ ! -e "end.$DIBS_JOB_ID" ]; do sleep 0.02; done')
    wait_for(lambda: held_by(ann, ann), lambda held: held == 2)
    job = ben.add("true")
    wait_for(lambda: ann.json("gpus")["waiters"], lambda line: ben.name in [one["user"] for one in line])
    (ann.folder / "end.1").touch()
    wait_for(lambda: ben.show(job), lambda seen: seen["state"] == "done")
    # Then it is the hoarder's again.
    third = wait_for(lambda: ann.show(3), lambda seen: seen["started_at"] is not None)
    assert ben.show(job)["started_at"] <= third["started_at"]
    assert ann.show(2)["state"] == "running"
    ann.dibs("cancel", "-y", "unfinished")
