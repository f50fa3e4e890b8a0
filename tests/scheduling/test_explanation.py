"""Why a job waits, and what would help."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.test_planner import WORLDS

import build
from dibs.model import devices
from dibs.model.devices import DeviceId
from dibs.model.jobs import JobId, Request
from dibs.scheduling import explanation, planner
from dibs.scheduling.explanation import Reason
from dibs.scheduling.views import Active, Collector, Occupant, Policy, View, WaitingJob

HOW_THEY_ARE = "`dibs gpus` shows the state of the GPUs."
PRIORITY = "A higher --priority would let it start first."
HELD = "`dibs gpus` shows who holds them and since when."
SOME_ENDED = "It starts when enough of them finish; `dibs cancel` stops one of yours."
ENDED = "It starts when job 3 finishes; `dibs cancel 3` stops that job."


@given(WORLDS, st.booleans())
def test_every_waiting_job_has_a_reason_and_a_hint(world, is_paused):
    view = dataclasses.replace(world.view, is_paused=is_paused)
    for job in view.waiting:
        reason = explanation.explain(job, view, world.inventory, world.policy, build.NOW)
        assert reason.hint or reason.text == "it is about to start"


@given(WORLDS)
def test_the_reason_says_about_to_start_exactly_for_the_jobs_that_start(world):
    started = {start.id for start in world.plan.starts}
    for job in world.view.waiting:
        reason = explanation.explain(job, world.view, world.inventory, world.policy, build.NOW)
        assert (reason.text == "it is about to start") is (job.id in started)


@given(WORLDS)
def test_the_hint_that_fewer_gpus_would_start_now_is_correct(world):
    for job in world.plan.waits:
        reason = explanation.explain(job, world.view, world.inventory, world.policy, build.NOW)
        if reason.hint.startswith("It would start now with -g "):
            fewer = dataclasses.replace(job.request, gpus=int(reason.hint.split()[-1].rstrip(".")))
            queue = [
                dataclasses.replace(other, request=fewer) if other is job else other for other in world.view.waiting
            ]
            edited = dataclasses.replace(world.view, waiting=queue)
            assert job.id in {
                start.id for start in planner.plan(edited, world.inventory, world.policy, build.NOW).starts
            }


BLOCKED = Occupant("eve", 7, note="blocked by eve", cure="`sudo kill 7` ends it.")
MINE = build.waiting(10, gpus=2)


@pytest.mark.parametrize(
    ("job", "view", "inventory", "reason"),
    [
        pytest.param(
            MINE,
            View([MINE], is_paused=True),
            build.inventory(2),
            Reason("the queue is paused", "`dibs resume` resumes it."),
            id="the queue is paused",
        ),
        pytest.param(
            MINE, View([MINE]), build.inventory(2), Reason("it is about to start"), id="nothing is in its way"
        ),
        pytest.param(
            build.waiting(10, gpus=0),
            View([build.waiting(10, gpus=0)], [Active(JobId(1)), Active(JobId(2))]),
            build.inventory(2),
            Reason("all 2 CPU slots are in use", "The setting cpu_slots raises the limit."),
            id="no CPU slot",
        ),
        pytest.param(
            MINE,
            View([MINE]),
            build.inventory(2, faulty=[1]),
            Reason("needs 2 GPUs; only 1 of the right kind can be used now (GPU 1: reset required)", HOW_THEY_ARE),
            id="a device is unwell",
        ),
        pytest.param(
            MINE,
            View([MINE]),
            devices.Inventory(problem="nvidia-smi exited 9"),
            Reason("needs 2 GPUs; nvidia-smi exited 9", "`dibs doctor` has details."),
            id="the devices cannot be read",
        ),
        pytest.param(
            MINE,
            View([MINE], [Active(JobId(3), build.ids(1))]),
            build.inventory(2),
            Reason("needs 2 GPUs; 1 of 2 free, GPU 1: job 3", "It would start now with -g 1."),
            id="a job of ours has one",
        ),
        pytest.param(
            MINE,
            View([MINE], [Active(JobId(n + 100), build.ids(n)) for n in range(10)]),
            build.inventory(10),
            Reason("needs 2 GPUs; 0 of 10 free, " + ", ".join(f"GPU {n}: job {n + 100}" for n in range(8)), SOME_ENDED),
            id="only the first eight of many are listed",
        ),
        pytest.param(
            MINE,
            View([MINE], [Active(JobId(3), build.ids(0, 1, 3)), Active(JobId(4), build.ids(2))]),
            build.inventory(4),
            Reason("needs 2 GPUs; 0 of 4 free, GPU 0-1,3: job 3, GPU 2: job 4", SOME_ENDED),
            id="what is the same of several is said once",
        ),
        pytest.param(
            MINE,
            View([MINE]),
            build.inventory(1),
            Reason("needs 2 GPUs; this machine has 1 now", HOW_THEY_ARE),
            id="there were more of them once",
        ),
        pytest.param(
            build.waiting(10, gpu_ids=build.ids(5)),
            View([build.waiting(10, gpu_ids=build.ids(5))]),
            build.inventory(2),
            Reason("needs 1 GPU; this machine has none matching", "Without --gpu-ids it could use the others."),
            id="the one it named is gone",
        ),
        pytest.param(
            MINE,
            View([MINE, build.waiting(11), build.waiting(5, priority=-1)], [Active(JobId(3), build.ids(0, 1))]),
            build.inventory(2),
            Reason("needs 2 GPUs; 0 of 2 free, GPU 0-1: job 3", ENDED),
            id="jobs behind are not to blame",
        ),
        pytest.param(
            MINE,
            View([MINE], [Active(JobId(3), build.ids(0, 1))]),
            build.inventory(2),
            Reason("needs 2 GPUs; 0 of 2 free, GPU 0-1: job 3", ENDED),
            id="a job of ours has all",
        ),
        pytest.param(
            build.waiting(10, gpu_ids=build.ids(0, 1)),
            View([build.waiting(10, gpu_ids=build.ids(0, 1))], [Active(JobId(3), build.ids(1))]),
            build.inventory(3),
            Reason("needs 2 GPUs; 1 of 2 free, GPU 1: job 3", "Without --gpu-ids it could use GPUs that are free."),
            id="it named a device that is in use",
        ),
        pytest.param(
            MINE,
            View([MINE], held=dict(zip(build.ids(0, 1), [Occupant("bob", 7, "12"), Occupant("eve", 8)], strict=True))),
            build.inventory(2),
            Reason(
                "needs 2 GPUs; 0 of 2 free, GPU 0: bob's job 12, GPU 1: eve's pid 8",
                HELD,
            ),
            id="other people have them",
        ),
        pytest.param(
            MINE,
            View([MINE], held={DeviceId("FAKE-0"): Occupant("bob")}),
            build.inventory(2),
            Reason("needs 2 GPUs; 1 of 2 free, GPU 0: bob's lease", "It would start now with -g 1."),
            id="somebody has one, nobody knows with what",
        ),
        pytest.param(
            MINE,
            View([build.waiting(4, gpus=4), MINE], [Active(JobId(3), build.ids(0))]),
            build.inventory(4),
            Reason(
                "needs 2 GPUs; 3 of 4 free, GPU 0: job 3; "
                "free GPUs are reserved for job 4, which is ahead and needs 4 GPUs",
                "A higher --priority, or a --time that ends before that job can start, would let it start earlier.",
            ),
            id="a larger job collects",
        ),
        pytest.param(
            MINE,
            View([build.waiting(4), MINE], [Active(JobId(3), build.ids(0, 1))]),
            build.inventory(2),
            Reason(
                "needs 2 GPUs; 0 of 2 free, GPU 0-1: job 3; job 4 is ahead of it",
                PRIORITY,
            ),
            id="behind another job",
        ),
        pytest.param(
            MINE,
            View([build.waiting(4, gpus=2), MINE]),
            build.inventory(2),
            Reason("needs 2 GPUs; 0 of 2 free, GPU 0-1: job 4", ENDED.replace("3", "4")),
            id="an earlier job takes them just now",
        ),
        pytest.param(
            MINE,
            View([build.waiting(4, gpu_ids=build.ids(0)), MINE], [Active(JobId(3), build.ids(0, 1))]),
            build.inventory(3),
            Reason(
                "needs 2 GPUs; 1 of 3 free, GPU 0-1: job 3; job 4 is ahead of it",
                PRIORITY,
            ),
            id="the job ahead waits for others than the free ones",
        ),
        pytest.param(
            MINE,
            View([MINE], line=[Collector("bob", 1, frozenset(build.ids(0, 1)))], ahead=1),
            build.inventory(2),
            Reason("needs 2 GPUs; 2 of 2 free; bob is next in the machine-wide line", explanation.THEIR_TURN),
            id="somebody is ahead in the line",
        ),
        pytest.param(
            MINE,
            View(
                [MINE],
                [Active(JobId(3), build.ids(1))],
                line=[Collector("bob", 1, frozenset(build.ids(0, 1)))],
                ahead=0,
            ),
            build.inventory(2),
            Reason("needs 2 GPUs; 1 of 2 free, GPU 1: job 3", "It would start now with -g 1."),
            id="somebody behind in the line is not to blame",
        ),
        pytest.param(
            MINE,
            View([MINE], held=dict.fromkeys(build.ids(0, 1), BLOCKED)),
            build.inventory(2),
            Reason("needs 2 GPUs; 0 of 2 free, GPU 0-1: blocked by eve", "`sudo kill 7` ends it."),
            id="somebody blocks the GPUs without holding them",
        ),
    ],
)
def test_the_reason_names_the_first_obstacle(job, view, inventory, reason):
    assert explanation.explain(job, view, inventory, Policy(cpu_slots=2), build.NOW) == reason


# -- CPU and memory, reservations ---------------------------------------------------------------------------------

BUSY = [Active(JobId(3), build.ids(0), cpus=3, mem=6 * 2**30, limit_s=3600, started_at=build.NOW)]


@pytest.mark.parametrize(
    ("request_", "policy", "reason"),
    [
        pytest.param(
            Request(1, cpus=2),
            Policy(4),
            Reason(
                "needs 2 CPUs; running jobs leave 1 of 4",
                "Fewer --cpus may start sooner. The setting cpu_slots raises the limit.",
            ),
            id="CPUs",
        ),
        pytest.param(
            Request(1, mem=4 * 2**30),
            Policy(4, 8 * 2**30),
            Reason("needs 4G of memory; running jobs leave 2G of 8G", "A lower --mem may start sooner."),
            id="memory",
        ),
        pytest.param(
            Request(1),
            Policy(4, max_gpus=1),
            Reason(
                "your jobs use 1 of 1 GPUs (setting max_gpus)",
                "It starts when enough of them have finished. The setting max_gpus raises the limit.",
            ),
            id="max_gpus",
        ),
        pytest.param(
            Request(2),
            Policy(4, keep_free=2),
            Reason(
                "the setting keep_free leaves 2 GPUs free for others",
                "It starts when more GPUs are free. A lower keep_free lets it start sooner.",
            ),
            id="keep_free",
        ),
        pytest.param(
            Request(2, gpu_type="t4"),
            Policy(4),
            Reason(
                "needs 2 GPUs; only 1 of the right kind can be used now (GPU 3: reset required)",
                "Without --gpu-type it could use the others.",
            ),
            id="a type of which too few are well",
        ),
        pytest.param(
            Request(1, gpu_type="a100"),
            Policy(4),
            Reason("needs 1 GPU; 0 of 1 free, GPU 0: job 3", "Without --gpu-type it could use GPUs that are free."),
            id="a type that is in use",
        ),
    ],
)
def test_the_reason_names_what_is_missing_and_what_would_help(request_, policy, reason):
    names = {0: "NVIDIA A100", 1: "L4", 2: "Tesla T4", 3: "Tesla T4"}
    job = WaitingJob(JobId(10), request_)
    found = explanation.explain(job, View([job], BUSY), build.inventory(4, faulty=[3], names=names), policy, build.NOW)
    assert found == reason


def test_a_job_at_its_batch_limit_gets_the_hint_to_raise_it():
    job = WaitingJob(JobId(10), Request(1), batch=1, room=0)
    found = explanation.explain(job, View([job], BUSY), build.inventory(4), Policy(4), build.NOW)
    assert found == Reason("batch limit reached (-j)", "`dibs edit 10 -j N` raises the limit.")
