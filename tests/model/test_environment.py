"""The environment of a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.errors import UserError
from dibs.model import environment, environment_names, lifecycle, serialization

NAMES = st.from_regex(rb"[A-Z_]{1,12}", fullmatch=True)


def kept(environ, exclude=()):
    return serialization.unpack_environ(environment.capture(environ, exclude))


def seen(*gpus, visible="uuid", environ=None, **asked):
    """Return the environment of a job on those GPUs, as text."""
    job = build.lived(build.job(7, gpus=len(gpus), **asked), lifecycle.Placed(1, build.ids(*gpus)))
    env = environment.for_job(
        job,
        environment_names.pack(environ or {}),
        build.inventory(4),
        visible=visible,
        port=4567,
        folder="/files/jobs/7",
        own=[("DIBS_HOME", "/state")],
    )
    return {name.decode(): value.decode() for name, value in env.items()}


# -- capture ------------------------------------------------------------------------------------------------------


def test_the_submitters_environment_is_captured_unchanged():
    environ = {b"PATH": b"/bin", b"LANG": b"C", b"RAW": b"\xff\xfe", b"EMPTY": b""}
    assert kept(environ) == environ


@pytest.mark.parametrize(
    "name",
    [
        *(b"DIBS_JOB_ID", b"DIBS_", b"DIBS_HOME", b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES"),
        *(b"HIP_VISIBLE_DEVICES", b"GPU_DEVICE_ORDINAL", b"ZE_AFFINITY_MASK"),
    ],
)
def test_variables_set_by_dibs_are_not_captured(name):
    assert kept({name: b"0", b"LANG": b"C"}) == {b"LANG": b"C"}


def test_names_excluded_in_the_settings_are_not_captured():
    environ = {b"AWS_KEY": b"1", b"AWS": b"2", b"SSH_AUTH_SOCK": b"3", b"aws_key": b"4"}
    assert kept(environ, ["AWS_*", "SSH_AUTH_SOCK"]) == {b"AWS": b"2", b"aws_key": b"4"}


def test_a_name_that_is_not_utf8_can_be_excluded_too():
    assert kept({b"X\xff": b"1"}, ["X*"]) == {}


@given(st.dictionaries(NAMES, st.just(b"1"), max_size=8))
def test_no_other_variable_is_lost(environ):
    own = [name for name in environ if name.startswith(b"DIBS_") or name.decode() in environment.DEVICE_NAMES]
    assert set(environ) - set(kept(environ)) == set(own)


@pytest.mark.parametrize("name", [*environment.DEVICE_NAMES, "DIBS_PORT", "", "A=B", "A\0B"])
def test_a_reserved_variable_is_refused(name):
    with pytest.raises(UserError, match="-e "):
        environment.check_given(name)


@pytest.mark.parametrize("name", ["LR", "PATH", "CUDA_HOME", "MY_DIBS_", "lower"])
def test_any_other_variable_is_accepted(name):
    environment.check_given(name)


# -- inside a job -------------------------------------------------------------------------------------------------


def test_a_job_gets_all_documented_variables():
    shown = seen(2, name="vit", project="thesis")
    assert shown == {
        "CUDA_VISIBLE_DEVICES": "FAKE-2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
        "DIBS_JOB_ID": "7",
        "DIBS_JOB_NAME": "vit",
        "DIBS_PROJECT": "thesis",
        "DIBS_ATTEMPT": "1",
        "DIBS_JOB_DIR": "/files/jobs/7",
        "DIBS_GPU_INDICES": "2",
        "DIBS_CHECKPOINT_DIR": "/files/jobs/7/checkpoint",
        "DIBS_REPORT": "/files/jobs/7/1/report.jsonl",
        "DIBS_PORT": "4567",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4567",
        "PET_MASTER_PORT": "4567",
        "DIBS_STOP": "TERM@30",
        "DIBS_HOME": "/state",
    }


def test_devices_are_named_by_uuid_with_their_indices_in_another_variable():
    shown = seen(3, 1)
    assert (shown["CUDA_VISIBLE_DEVICES"], shown["DIBS_GPU_INDICES"]) == ("FAKE-3,FAKE-1", "3,1")


def test_devices_are_named_by_index_if_configured():
    assert seen(3, 1, visible="index")["CUDA_VISIBLE_DEVICES"] == "3,1"


@pytest.mark.parametrize("visible", ["uuid", "index"])
def test_a_job_without_devices_sees_none(visible):
    shown = seen(visible=visible)
    assert (shown["CUDA_VISIBLE_DEVICES"], shown["DIBS_GPU_INDICES"]) == ("", "")


@pytest.mark.parametrize("devices", [(0,), (0, 1)])
def test_a_job_on_devices_gets_a_rendezvous_address(devices):
    """One device is enough: two jobs with one process each would meet at the same default port otherwise."""
    shown = seen(*devices)
    assert [shown[name] for name in ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT")] == ["127.0.0.1", "4567", "4567"]


def test_a_job_without_devices_gets_no_rendezvous_address():
    assert not {"MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT"} & set(seen())


@pytest.mark.parametrize("name", ["PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT"])
def test_a_captured_variable_is_not_overwritten(name):
    assert seen(0, 1, environ={name.encode(): b"mine"})[name] == "mine"


@pytest.mark.parametrize("name", ["PYTHONUNBUFFERED", "MASTER_PORT"])
def test_a_variable_given_with_the_job_is_not_overwritten(name):
    assert seen(0, 1, env=((name, "mine"),))[name] == "mine"


@pytest.mark.parametrize("name", ["CUDA_DEVICE_ORDER", "DIBS_JOB_ID", "CUDA_VISIBLE_DEVICES"])
def test_reserved_variables_of_the_submitter_are_overwritten(name):
    assert seen(0, environ={name.encode(): b"mine"})[name] != "mine"


def test_a_variable_given_with_the_job_overrides_the_captured_one():
    assert seen(env=(("LR", "0.1"),), environ={b"LR": b"9"})["LR"] == "0.1"


def test_each_attempt_has_its_own_report_and_shares_the_checkpoints():
    job = build.job(7, attempt=2, allocation=build.ids(0))
    env = environment.for_job(job, b"", build.inventory(1), visible="uuid", port=1, folder="/f")
    assert (env[b"DIBS_ATTEMPT"], env[b"DIBS_REPORT"], env[b"DIBS_CHECKPOINT_DIR"]) == (
        b"2",
        b"/f/2/report.jsonl",
        b"/f/checkpoint",
    )


def test_bytes_that_are_not_utf8_reach_the_job_unchanged():
    env = environment.for_job(build.job(), b"RAW=\xff\xfe", build.inventory(1), visible="uuid", port=1, folder="/f")
    assert env[b"RAW"] == b"\xff\xfe"
