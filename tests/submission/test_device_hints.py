"""Commands that choose devices themselves, and logs of programs that cannot read a UUID."""

import pytest

from dibs.submission import device_hints

CUDA = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    "text",
    [
        "CUDA_VISIBLE_DEVICES=0 python train.py",
        "export CUDA_VISIBLE_DEVICES=0,1",
        "cd x; CUDA_VISIBLE_DEVICES=1 ./run",
        "env CUDA_VISIBLE_DEVICES=2 python x.py",
        "(CUDA_VISIBLE_DEVICES=3 ./run)",
        'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        "os.environ['CUDA_VISIBLE_DEVICES']='1,2'",
        'os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")',
        'os.putenv("CUDA_VISIBLE_DEVICES", "0")',
        'os.environb[b"CUDA_VISIBLE_DEVICES"] = b"0"',
    ],
)
def test_an_assignment_is_found(text):
    assert device_hints.assigned(text) == CUDA


@pytest.mark.parametrize(
    "text",
    [
        "",
        "python train.py",
        "echo $CUDA_VISIBLE_DEVICES",
        "# export CUDA_VISIBLE_DEVICES=0",
        "    # os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        'print(os.environ["CUDA_VISIBLE_DEVICES"])',
        'if os.environ["CUDA_VISIBLE_DEVICES"] == "0":',
        'os.environ.get("CUDA_VISIBLE_DEVICES")',
        "MY_CUDA_VISIBLE_DEVICES=0",
        "[ $CUDA_VISIBLE_DEVICES == 0 ]",
    ],
)
def test_a_mention_is_no_assignment(text):
    assert device_hints.assigned(text) is None


def test_other_vendors_count_too():
    assert device_hints.assigned("HIP_VISIBLE_DEVICES=0 ./x") == "HIP_VISIBLE_DEVICES"
    assert "--strict-gpus" in device_hints.warning("the command", CUDA)


@pytest.mark.parametrize(
    ("text", "is_blind"),
    [
        ("ValueError: invalid literal for int() with base 10: 'GPU-8f4a1c2e'", True),
        ("RuntimeError: Invalid device id GPU-8f4a1c2e-11", True),
        ("could not convert MIG-8f4a to a number", True),
        ("ValueError: invalid literal for int() with base 10: 'lr'", False),
        ("training on GPU-8f4a1c2e", False),
        ("CUDA error: invalid device ordinal", False),
    ],
)
def test_the_log_of_a_program_that_cannot_read_uuids_is_recognized(text, is_blind):
    assert device_hints.is_blind_to_uuids(text) is is_blind
