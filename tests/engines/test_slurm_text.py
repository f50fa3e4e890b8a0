"""What Slurm's programs print, as recorded from 22.05, and as later releases print it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.engines import slurm_text
from dibs.engines.protocol import Needs, Node, Seen

SQUEUE = """\
1_2 |PENDING |None |0 | |dibs-abc-1.1.1-x |
2 |PENDING |PartitionConfig |0 | |wrap |
1_0 |RUNNING |None |0 |n1 |dibs-abc-1.1.1-x |
7 |COMPLETED |None |0 |n1 |dibs-abc-7.1.1 |
8 |FAILED |NonZeroExitCode |1792 |n2 |dibs-abc-8.1.1 |
9 |CANCELLED |None |15 |n2 |dibs-abc-9.1.1 |
10 |NODE_FAIL |None |0 |n2 |a | b |
"""
SINFO = """\
n1 |mixed |1/15/0/16 |16000 |gpu:4 |gpu:1 |
n2 |down* |0/0/16/16 |16000 |gpu:4 |gpu:0 |
"""
#: As releases from 21.08 with types, sockets and indices print it; a node in two partitions comes twice.
TYPED = """\
g1  |idle          |0/128/0/128 |1031000  |gpu:a100:8(S:0-1),shard:32 |gpu:a100:3(IDX:0-2)       |
g1  |idle          |0/128/0/128 |1031000  |gpu:a100:8(S:0-1),shard:32 |gpu:a100:3(IDX:0-2)       |
g2  |drained       |0/64/64/128 |515000   |gpu:h100:4,gpu:a100:2      |gpu:h100:0(IDX:N/A)       |
cpu |allocated     |96/0/0/96   |257000   |(null)                     |                          |
"""


def test_jobs_are_read_with_their_states() -> None:
    found = {line.ref: line.seen for line in slurm_text.job_lines(SQUEUE)}
    assert found["1_2"] == Seen("waiting", "waits for the next scheduling round")
    assert found["1_0"] == Seen("running", node="n1")
    assert found["7"] == Seen("ended", "completed", 0, None, "n1")
    assert (found["8"].code, found["8"].signal, found["8"].why) == (7, None, "failed: NonZeroExitCode")
    assert (found["9"].code, found["9"].signal) == (None, 15)
    assert found["10"] == Seen("gone", "its node failed", node="n2")


def test_a_name_may_contain_the_mark_between_columns() -> None:
    assert [line.name for line in slurm_text.job_lines(SQUEUE)][-1] == "a | b"


def test_a_job_that_can_never_start_is_recognised() -> None:
    (hopeless,) = [line.seen.why for line in slurm_text.job_lines(SQUEUE) if line.ref == "2"]
    assert hopeless == "it can never start: no node of the partition can satisfy it (PartitionConfig)"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "waits for free resources (Resources)"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "waits for a node that is not available (ReqNodeNotAvail)"),
        ("SomethingNew", "waits (SomethingNew)"),
    ],
)
def test_reasons_are_words(reason: str, words: str) -> None:
    assert slurm_text.why_waiting(reason) == words


def test_every_state_of_slurm_has_a_phase() -> None:
    phases = {state: slurm_text.seen(state, "None", "0", "").phase for state in STATES}
    assert {phase: sorted(state for state in STATES if phases[state] == phase) for phase in set(phases.values())} == {
        "waiting": ["PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"],
        "running": [
            *("COMPLETING", "CONFIGURING", "RESIZING", "RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED")
        ],
        "ended": ["CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"],
        "gone": ["BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"],
    }


#: Of the manual of squeue.
STATES = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "CONFIGURING", "COMPLETING", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PENDING", "PREEMPTED", "RUNNING", "RESV_DEL_HOLD", "REQUEUE_FED", "REQUEUE_HOLD", "REQUEUED"),
    *("RESIZING", "REVOKED", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT"),
)


def test_nodes_are_read_with_their_gpus() -> None:
    up, down = slurm_text.node_lines(SINFO)
    assert up == Node("n1", True, 4, 3, "", 16, 16000 * 2**20)
    assert (down.is_up, down.gpus, down.free_gpus) == (False, 4, 0)


def test_types_of_gpus_and_nodes_in_several_partitions() -> None:
    found = {node.name: node for node in slurm_text.node_lines(TYPED)}
    assert (found["g1"].gpus, found["g1"].free_gpus, found["g1"].gpu_type) == (8, 5, "a100")
    assert (found["g2"].gpus, found["g2"].gpu_type, found["g2"].is_up) == (6, "h100, a100", False)
    assert (found["cpu"].gpus, found["cpu"].cpus) == (0, 96)


@pytest.mark.parametrize("text", ["garbage", "a|b|c", "1|RUNNING|None|0|n1", "\0\ufffd|"])
def test_a_text_of_another_form_says_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        list(slurm_text.job_lines(text))
    with pytest.raises(ValueError, match="expected"):
        slurm_text.node_lines(text)


@given(st.text(max_size=200))
def test_no_text_does_anything_but_raise_a_value_error(text: str) -> None:
    for parse in (lambda text: list(slurm_text.job_lines(text)), slurm_text.node_lines):
        try:
            parse(text)
        except ValueError:
            continue


def test_requests_name_one_node_and_what_was_asked() -> None:
    needs = Needs(2, "a100", 8, 3 * 2**30 + 1, 90.0, "-p gpu --gres=gpu:3")
    assert slurm_text.request_words(needs, 100) == [
        *("--nodes=1", "--ntasks=1", "--gres=gpu:a100:2", "--cpus-per-task=8", "--mem=3073M", "--time=5"),
        *("--nice=100", "-p", "gpu", "--gres=gpu:3"),
    ]
    assert slurm_text.request_words(Needs(), 0) == ["--nodes=1", "--ntasks=1"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("-p gpu -A lab --qos=high", None),
        ("", None),
        ("--constraint 'a100&nvlink'", None),
        ("-p 'gpu", "cannot be read: no closing quotation"),
        ("--array=1-3", "--array is set by dibs; use --array of dibs"),
        ("-J x", "-J is set by dibs; use --name of dibs"),
        ("--export=NONE", "--export is set by dibs"),
        ("gpu", 'expected options such as -p gpu, got "gpu"'),
        ("-p gpu script.sh", 'got "script.sh"'),
        ("-s -p gpu -wn1 --mem-per-cpu 2G", None),
        # sbatch takes beginnings of names, and flags in one word.
        ("--arra=1-3", "--arra is set by dibs; use --array of dibs"),
        ("--job-n x", "--job-n is set by dibs; use --name of dibs"),
        ("-sH", "-H is set by dibs; use --hold of dibs"),
        ("-vJfoo", "-J is set by dibs"),
        ("-wJfoo", None),
        ("-v gpu", 'got "gpu"'),
        ("-", 'got "-"'),
        ("--", "-- is set by dibs"),
        ("-Q", "-Q is set by dibs"),
        ("-M other", "-M is set by dibs; use another engine of dibs"),
        ("--clusters=other", "--clusters is set by dibs; use another engine of dibs"),
    ],
)
def test_options_that_dibs_sets_are_refused(options: str, problem: str | None) -> None:
    found = slurm_text.options_problem(options)
    assert found is None if problem is None else found is not None and problem in found


@pytest.mark.parametrize(
    ("stderr", "told", "is_final"),
    [
        (
            "sbatch: error: invalid partition specified: nix\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: nix; Invalid partition name specified",
            True,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
            "Requested node configuration is not available",
            True,
        ),
        ("sbatch: unrecognized option '--x'\nTry \"sbatch --help\" for more\n", "unrecognized option '--x'", True),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n",
            "Job violates accounting/QOS policy",
            False,
        ),
        ("sbatch: option requires an argument -- 'p'\n", "option requires an argument -- 'p'", True),
        ("", "sbatch gave no reason", False),
    ],
)
def test_what_sbatch_says_is_told_in_one_line(stderr: str, told: str, is_final: bool) -> None:
    assert slurm_text.refusal_words(stderr) == told
    assert slurm_text.is_final(stderr) is is_final


def test_the_script_becomes_the_runner_and_quotes_its_words() -> None:
    assert slurm_text.script(["py", "-c", "a b", "/x/spec.1"]) == "#!/bin/sh\nexec py -c 'a b' /x/spec.1\n"
    array = slurm_text.script(["py", "spec.1"], "/x y/arrays/k")
    assert array == "#!/bin/sh\nexec py '/x y/arrays/k'/\"$SLURM_ARRAY_TASK_ID\"/spec.1\n"


@pytest.mark.parametrize(
    ("stdout", "job_id"),
    [
        ("4107\n", "4107"),
        ("4107;uni\n", "4107"),
        ("Welcome!\n--> 3 checks: ok\n4107\n", "4107"),
        ("", None),
        ("id 4107", None),
    ],
)
def test_the_id_is_found_in_what_a_site_prints(stdout: str, job_id: str | None) -> None:
    assert slurm_text.job_id(stdout) == job_id
