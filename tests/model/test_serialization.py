"""Values to and from bytes and JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.model import environment_names, lifecycle, serialization
from dibs.model.devices import DeviceId
from dibs.model.jobs import After, Cause, JobId, Outcome, State, When

#: The keys of a job in JSON that clients may rely on.
PROMISED = [
    *("id", "name", "project", "user", "state", "reason", "cause", "command", "argv", "cwd", "gpus", "gpu_ids"),
    *("gpu_indices", "vram", "cpus", "mem", "priority", "time_limit_s", "after", "begin_at", "attempt", "retries"),
    *("pid", "exit_code", "signal", "submitted_at", "started_at", "finished_at", "log", "sweep", "index", "params"),
    *("tags", "engine", "engine_ref"),
]
#: Additional keys.
EXTRA = {
    "remark", "request", "stderr", "batch", "retry_on", "script", "warn", "wait_tree", "metric", "notifies", "dir",
    "strict_gpus",
    "vram_enforce", "comment", "group", "evictable", "evictions", "saved_s", "lost_s",
    "node", "engine_options", "overflow", "overflow_after_s",
}  # fmt: skip

NAMES = st.binary(min_size=1, max_size=8).map(lambda raw: raw.replace(b"\0", b"0").replace(b"=", b"_"))
VALUES = st.binary(max_size=12).map(lambda raw: raw.replace(b"\0", b"0"))
ENVIRONS = st.dictionaries(NAMES, VALUES, max_size=5)


def to_json(job, **more):
    wanted = {"user": "ada", "log": "/files/jobs/1/1/log", "stderr": None, "reason": None} | more
    return serialization.job_to_json(job, build.inventory(4), **wanted)


# -- environments -------------------------------------------------------------------------------------------------


@given(ENVIRONS)
def test_an_environment_survives_a_round_trip_whatever_bytes_it_has(environ):
    assert serialization.unpack_environ(environment_names.pack(environ)) == environ


@given(ENVIRONS, st.randoms(use_true_random=False))
def test_equal_environments_are_equal_bytes(environ, random):
    pairs = list(environ.items())
    random.shuffle(pairs)
    assert environment_names.pack(dict(pairs)) == environment_names.pack(environ)


@given(st.binary(max_size=30))
def test_any_bytes_can_be_parsed_as_an_environment_without_empty_names(blob):
    assert b"" not in serialization.unpack_environ(blob)


def test_an_entry_without_a_value_is_dropped():
    assert serialization.unpack_environ(b"A=1\0B\0C=") == {b"A": b"1", b"C": b""}


def test_a_value_may_contain_an_equals_sign():
    assert serialization.unpack_environ(b"A=b=c") == {b"A": b"b=c"}


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "MY_SECRET", "PASSWORD", "DB_PASSWD", "AWS_CREDENTIALS", "X_AUTH", "api_key"]
)
def test_values_of_variables_that_look_like_secrets_are_masked(name):
    assert serialization.mask_environ([(name, "hunter2")]) == {name: "***"}


@pytest.mark.parametrize("name", ["PATH", "LR", "SEED", "HOME"])
def test_other_values_are_shown(name):
    assert serialization.mask_environ([(name, "value")]) == {name: "value"}


# -- times --------------------------------------------------------------------------------------------------------


def test_a_time_is_written_in_utc_with_milliseconds():
    assert serialization.moment(build.NOW + 7) == "2026-11-15T12:00:00.007Z"


def test_a_missing_time_is_none():
    assert serialization.moment(None) is None


@given(st.integers(0, 4102444800000))
def test_a_time_survives_a_round_trip(at):
    assert serialization.parse_moment(serialization.moment(at)) == at


def test_a_time_with_another_time_zone_is_the_same_instant():
    assert serialization.parse_moment("2026-11-15T13:00:00+01:00") == build.NOW


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-10:00", "9999-01-01T00:00:00Z", "0001-01-01T00:00:00+10:00"])
def test_a_time_that_is_no_date_in_some_time_zone_is_refused(text):
    with pytest.raises(ValueError):
        serialization.parse_moment(text)


@pytest.mark.parametrize(
    ("at", "text"), [(10**15, "9999-01-01T00:00:00.000Z"), (-(10**15), "1970-01-01T00:00:00.000Z")]
)
def test_a_time_outside_the_calendar_is_clamped(at, text):
    assert serialization.moment(at) == text


# -- a job --------------------------------------------------------------------------------------------------------


def test_a_job_has_the_documented_keys_in_order_and_little_else():
    keys = list(to_json(build.job()))
    assert [key for key in keys if key not in EXTRA] == PROMISED


def test_a_new_job_has_no_values_of_a_run():
    shown = to_json(build.job(gpus=2), reason="needs 2 GPUs")
    assert {
        key: shown[key] for key in ("state", "reason", "gpus", "gpu_ids", "pid", "started_at", "attempt", "retries")
    } == {
        "state": "queued",
        "reason": "needs 2 GPUs",
        "gpus": 2,
        "gpu_ids": [],
        "pid": None,
        "started_at": None,
        "attempt": 1,
        "retries": 0,
    }


def test_a_running_job_has_its_devices_its_process_and_its_start():
    running = build.lived(
        build.job(gpus=2), lifecycle.Placed(1, build.ids(1, 3)), lifecycle.Started(build.NOW, pid=4242)
    )
    shown = to_json(running)
    assert (shown["state"], shown["gpu_ids"], shown["gpu_indices"], shown["pid"], shown["started_at"]) == (
        "running",
        ["FAKE-1", "FAKE-3"],
        [1, 3],
        4242,
        "2026-11-15T12:00:00.000Z",
    )


def test_a_finished_job_has_its_outcome_as_state_and_a_cause():
    lost = build.job(state=State.FINISHED, outcome=Outcome.LOST, cause=Cause.LOST, finished_at=build.NOW)
    assert (to_json(lost)["state"], to_json(lost)["cause"]) == ("lost", "lost")


def test_the_options_of_a_job_are_shown():
    asked = {"name": "vit", "project": "thesis", "priority": 3, "cwd": "/data"}
    after = (After(JobId(7), When.ANY),)
    more = {"limit_s": 60.0, "cpus": 2, "mem": 2**30, "after": after, "begin_at": build.NOW, "retries": 3}
    shown = to_json(build.job(command="a b", argv=("a", "b"), tags=("x", "y"), **asked, **more))
    asked |= {"time_limit_s": 60.0, "cpus": 2, "mem": 2**30, "after": [{"id": 7, "when": "any"}], "retries": 3}
    asked |= {"begin_at": "2026-11-15T12:00:00.000Z"}
    assert shown | asked == shown
    assert (shown["command"], shown["argv"], shown["tags"]) == ("a b", ["a", "b"], ["x", "y"])


def test_a_removed_device_is_still_named_but_has_no_index():
    running = build.lived(build.job(), lifecycle.Placed(1, (DeviceId("GPU-gone"),)))
    assert (to_json(running)["gpu_ids"], to_json(running)["gpu_indices"]) == (["GPU-gone"], [])


def test_the_json_of_a_job_contains_no_secret_of_the_environment():
    assert "hunter2" not in str(to_json(build.job(env=(("API_KEY", "hunter2"),))))
