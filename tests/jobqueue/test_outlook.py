"""What users see of one job: why it waits, what would help, and when it may start."""

import contextlib
import random

import pytest

import build
from desk import DONE, FAILED, RUNNING
from dibs.devices.usage import Use
from dibs.jobqueue import thread
from dibs.jobqueue.outlook import QueueOutlook
from dibs.model import lifecycle, selectors
from dibs.model.devices import DeviceId
from dibs.model.jobs import After, JobId, When
from dibs.scheduling import forecasts
from dibs.scheduling.explanation import Reason
from dibs.scheduling.forecasts import Forecast
from dibs.scheduling.views import Policy, View
from dibs.scheduling.vram_advice import MOST_ROWS, Earlier
from dibs.store.writer import Store

LATER = 4_000_000_000_000


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(Store.open(tmp_path / "dibs.db")) as opened:
        yield opened


def submit(store, *many):
    with store.batch():
        return store.submit([build.spec(**each) for each in many], build.NOW)


def outlook(store, is_paused=False, grace_s=30.0):
    view = View(store.head(6), store.active_devices(), is_paused=is_paused)
    return QueueOutlook(view, Policy(4), build.inventory(2), store, grace_s)


def after(*ids):
    return tuple(After(JobId(job_id), When.DONE) for job_id in ids)


@pytest.mark.parametrize("seed", range(4))
def test_a_reason_is_the_same_in_a_list_as_alone(store, seed):
    """In a list, jobs that wait for the same thing are explained once."""
    chance = random.Random(seed)
    kinds = [{"gpus": 1}, {"gpus": 2}, {"gpus": 0, "cpus": 3}, {"gpus": 1, "gpu_ids": (DeviceId("GPU-1"),)}]
    many = [{**chance.choice(kinds), "priority": chance.choice([0, 0, 5])} for _ in range(40)]
    ids = submit(store, *many)
    listed = outlook(store)
    jobs = [store.job(job_id) for job_id in ids]
    assert [listed.reason(job) for job in jobs] == [outlook(store).reason(job) for job in jobs]
    assert len({listed.reason(job) for job in jobs}) > 3


def test_memory_use_is_known_from_runs_of_the_same_command_in_the_same_folder(desk):
    """Only a fixed number of the newest rows is read, however many there are."""
    ended = [desk.job(*events, command="train") for events in (DONE, FAILED, RUNNING)]
    others = [desk.job(*DONE, command="test"), desk.job(*DONE, command="train", cwd="/elsewhere")]
    with desk.store.batch():
        used = {(job_id, 1, DeviceId("GPU-a")): Use(peak=job_id, looks=4) for job_id in ended + others}
        desk.store.keep_uses(used | {(ended[0], 1, DeviceId("GPU-b")): Use(peak=None, looks=4)}, {}, 0)
    own = desk.job(command="train")
    assert sorted(desk.store.earlier_uses(own), key=lambda run: run.peak) == [Earlier(1, 4, True), Earlier(2, 4, False)]
    with desk.store.batch():
        desk.store.keep_uses({(others[0], n, DeviceId("GPU-a")): Use(1, 1) for n in range(2, MOST_ROWS)}, {}, 0)
    assert desk.store.earlier_uses(own) == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"after": after(1)}, Reason("waiting for job 1, which is queued", "`dibs why 1` explains its state.")),
        (
            {"after": after(*range(1, 11))},
            Reason(
                "waiting for jobs 1, 2, 3, 4, 5, 6, 7, 8 and 2 more",
                "`dibs why 1` explains its state.",
            ),
        ),
        (
            {"begin_at": LATER},
            Reason("waiting for its begin time (--begin)", "`dibs edit 11 --unset begin` lets it start sooner."),
        ),
    ],
)
def test_a_job_that_is_not_ready_says_what_it_waits_for(store, asked, reason):
    submit(store, *({},) * 10)
    (job_id,) = submit(store, asked)
    assert outlook(store).reason(store.job(job_id)) == reason


def test_a_job_held_by_a_program_names_it(store):
    submit(store, {"tags": ("x", "held-by:gpupeasy-server --port 8888")})
    with store.batch():
        store.hold(selectors.parse(["1"]), build.NOW)
    assert outlook(store).reason(store.job(1)) == Reason(
        "held until `gpupeasy-server --port 8888` releases it",
        "If that program is not running, start it again; `dibs unhold 1` releases it without it.",
    )


def test_a_held_job_names_the_command_that_releases_it_and_has_no_forecast(store):
    (job_id,) = submit(store, {})
    with store.batch():
        store.record(store.job(job_id), lifecycle.HoldAsked(build.NOW))
    job = store.job(job_id)
    assert outlook(store).reason(job) == Reason("held by you", "`dibs unhold 1` releases it.")
    assert outlook(store).expected(job) == Forecast(unknown="held by you")


def test_only_what_the_plan_starts_now_is_expected_now(store):
    """Job 1 is being stopped and should be gone by now. While it is there, job 2 waits, and starts later."""
    submit(store, {"gpus": 2}, {"gpus": 2})
    with store.batch():
        for event in (lifecycle.Placed(1, build.ids(0, 1)), lifecycle.Started(2, 77), lifecycle.CancelAsked(3)):
            store.record(store.job(JobId(1)), event)
    before, seen = thread.now_ms(), outlook(store, grace_s=0.0)
    assert "0 of 2 free" in seen.reason(store.job(JobId(2))).text
    assert seen.expected(store.job(JobId(2))).if_long >= before + forecasts.SOON_MS
    assert seen.next_starts(1)[2].if_long >= before + forecasts.SOON_MS


def test_the_forecast_of_a_new_job_counts_the_jobs_before_it(store):
    submit(store, {"gpus": 2, "limit_s": 3600.0})
    before = thread.now_ms()
    beside = outlook(store).if_submitted(build.spec(gpus=0))
    behind = outlook(store).if_submitted(build.spec(gpus=2))
    assert before <= beside.if_short == beside.if_long <= thread.now_ms()
    assert behind.if_long - behind.if_short == 3600_000


def test_while_the_queue_is_paused_there_is_no_forecast(store):
    (job_id,) = submit(store, {})
    assert outlook(store, is_paused=True).expected(store.job(job_id)).unknown == "the queue is paused"
    assert outlook(store, is_paused=True).next_starts(5) == {}


def test_the_list_of_next_starts_is_limited(store):
    submit(store, *({"limit_s": 60.0},) * 9)
    assert list(outlook(store).next_starts(3)) == [1, 2, 3]
