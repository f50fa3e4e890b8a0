"""What `#SBATCH` lines mean here: Slurm's names, units and placeholders."""

import shlex

import pytest

from dibs import errors
from dibs.submission import sbatch

PLACE = sbatch.Place("ada", "box")
#: Digits that Python does not read as a number: too many, and a superscript.
NO_NUMBERS = ("9" * 5000, "²")
NUMBERED = ("--nodes=", "--time=", "--time=1-", "--mem=", "--nice=", "--gres=gpu:a:", "--signal=USR1@")


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("--time=60", "--time=3600s"),
        ("-t 90:30", "--time=5430s"),
        ("-t1:00:00", "--time=3600s"),
        ("--time=1-12", "--time=129600s"),
        ("--time 1-12:00:00", "--time=129600s"),
        ("--time=2-0:30", "--time=174600s"),
        ("--time=0", ""),
        ("--time=UNLIMITED", ""),
        ("--mem=4000", "--mem=4000M"),
        ("--mem=16G", "--mem=16G"),
        ("--mem=16gb", "--mem=16g"),
        ("--gres=gpu:2", "--gpus=2"),
        ("--gres=gpu", "--gpus=1"),
        ("--gres=gpu:a100:2", "--gpus=2:a100"),
        ("--gres=gpu:a100", "--gpus=1:a100"),
        ("--gres=gpu:a100:2(S:0-1)", "--gpus=2:a100"),
        ("--gpus=4", "--gpus=4"),
        ("-G a100:2", "--gpus=2:a100"),
        ("--gpus-per-node=v100:1", "--gpus=1:v100"),
        ("-J vit", "--name=vit"),
        ("--job-name='my job'", "'--name=my job'"),
        ("-o out-%j.log", "--output='out-{id}.log'"),
        (
            "-o %x/%A_%a.out -e %x/%A_%a.err",
            "'--output={name}/{array}_{index}.out' '--stderr={name}/{array}_{index}.err'",
        ),
        ("--output=%u-%N-%4j-%%-%t{x}", "'--output=ada-box-{id:04}-%-0{{x}}'"),
        ("--array=0-9%2", "--array=0-9%2"),
        ("-a 1,3", "--array=1,3"),
        ("--dependency=afterok:3:4", "--dependency=afterok:3:4"),
        ("--begin=16:00", "--begin=16:00"),
        ("--begin=now+60", "--begin=now+60s"),
        ("--begin=now+1hour", "--begin=now+1hour"),
        ("-b midnight", "--begin=00:00"),
        ("-D /data", "--chdir=/data"),
        ("-c 8", "--cpus=8"),
        ("--cpus-per-task=8", "--cpus=8"),
        ("--export=ALL,A=1,B=2", "--env=A=1 --env=B=2"),
        ("--export=ALL", ""),
        ("--requeue", "--retries=3 --retry-on=lost"),
        ("--signal=B:USR1@120", "--signal=USR1@120s"),
        ("--signal=USR1", "--signal=USR1@60s"),
        ("--nodes=1 -n 1 --ntasks-per-node=1", ""),
        ("-N1-4", ""),
        ("-H", "--hold"),
        ("--nice=50", "--priority=-50"),
        ("--nice", "--priority=-100"),
        ("--open-mode=append --no-requeue", ""),
    ],
)
def test_a_line_is_translated_to_our_options(line, ours):
    assert sbatch.translate(shlex.split(line), PLACE) == sbatch.Translated(tuple(shlex.split(ours)), ())


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("-p gpu --mail-type=END", ["-p gpu", "--mail-type=END"]),
        ("--account lab --qos=high", ["--account lab", "--qos=high"]),
        ("--exclusive --mem=0", ["--exclusive", "--mem=0"]),
        ("--ntasks=4", ["--ntasks=4"]),
        ("--gres=gpu:1,nvme:2", ["--gres=nvme:2"]),
        ("--gpus=a100:1,v100:1", ["--gpus=a100:1,v100:1"]),
        ("--export=NONE", ["--export=NONE"]),
        ("--time=soon", ["--time=soon"]),
        ("--made-up", ["--made-up"]),
        ("--open-mode=truncate", ["--open-mode=truncate"]),
        *((option + number, [option + number]) for option in NUMBERED for number in NO_NUMBERS),
    ],
)
def test_unsupported_options_are_returned_as_typed(line, left):
    assert list(sbatch.translate(shlex.split(line), PLACE).left) == left


@pytest.mark.parametrize("line", ["--nodes=2", "-N 2", "-N2", "--nodes=2-4"])
def test_more_than_one_node_is_refused(line):
    with pytest.raises(errors.UserError, match="2 nodes, but dibs runs a job on one machine"):
        sbatch.translate(line.split(), PLACE)


@pytest.mark.parametrize("line", ["train.py", "-Z 3", "-"])
def test_an_unknown_option_is_refused(line):
    with pytest.raises(errors.UserError, match="expected an option of sbatch"):
        sbatch.translate(line.split(), PLACE)
