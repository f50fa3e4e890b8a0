"""`dibs why` on the command line, for every reason for which a job waits: the reason, and what would help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench import Bench
from typist import Typist

LONG = ("sleep", "1000")
#: Reported for a job behind one that may run for ever.
UNKNOWN = (
    "Its start time is unknown: job 1 has no time limit and no similar job has finished yet. "
    "A time limit (-t) would help."
)
NEVER = "Its start time is unknown: the GPUs it needs cannot be used now."
#: A time of today, or of tomorrow.
CLOCK = r"(\w{3} )?\d\d:\d\d"


@dataclass(frozen=True)
class Case:
    """The commands, of which the last submits the waiting job; and the reason of that job, as a pattern."""

    typed: list[tuple[str, ...]]
    says: str
    environ: dict[str, str] = field(default_factory=dict)
    #: Each earlier job runs before the next line is typed, or waits.
    running: tuple[int, ...] = (1,)


def add(*words: str) -> tuple[str, ...]:
    return ("add", *words, *LONG)


def exactly(text: str) -> str:
    return re.escape(text)


def memory() -> tuple[str, str]:
    """Return more than half of this machine's memory, and the rest, as they are typed."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{total // 2**20 * 2 // 3}M", f"{total // 2**20}M"


CASES = {
    "no free GPU": Case(
        [add("-g4"), add()],
        exactly(
            "needs 1 GPU; 0 of 4 free, GPU 0-3: job 1. It starts when job 1 finishes; `dibs cancel 1` stops that job. "
            + UNKNOWN
        ),
    ),
    "no free GPU, of several": Case(
        [add("-g2"), add("-g2"), add("-g3", "-t", "1h")],
        exactly(
            "needs 3 GPUs; 0 of 4 free, GPU 0-1: job 1, GPU 2-3: job 2. "
            "It starts when enough of them finish; `dibs cancel` stops one of yours. " + UNKNOWN
        ),
        running=(1, 2),
    ),
    "fewer would do": Case(
        [add("-g3"), add("-g2")],
        exactly("needs 2 GPUs; 1 of 4 free, GPU 0-2: job 1. It would start now with -g 1. " + UNKNOWN),
    ),
    "a named GPU": Case(
        [add(), add("--gpu-ids", "0")],
        exactly(
            "needs 1 GPU; 0 of 1 free, GPU 0: job 1. Without --gpu-ids it could use GPUs that are free. " + UNKNOWN
        ),
    ),
    "held": Case([add("--hold")], exactly("held by you. `dibs unhold 1` releases it."), running=()),
    "a dependency": Case(
        [add("-g0"), add("-a", "1")],
        exactly("waiting for job 1, which is running. `dibs why 1` explains its state. " + UNKNOWN),
    ),
    "a dependency that is held": Case(
        [add("--hold"), add("-a", "1")],
        exactly(
            "waiting for job 1, which is held. `dibs why 1` explains its state. "
            "Its start time is unknown: the end of job 1, which it waits for, cannot be predicted."
        ),
        running=(),
    ),
    "several dependencies": Case(
        [add("-g0"), add("-g0"), add("-a", "1,2")],
        exactly("waiting for jobs 1, 2. `dibs why 1` explains its state. " + UNKNOWN),
        running=(1, 2),
    ),
    "begin time": Case(
        [add("--begin", "now+2h")],
        r"waiting for its begin time \(--begin\)\. `dibs edit 1 --unset begin` lets it start sooner\. "
        rf"Expected to start at {CLOCK} \((in 1h59m|in 2h00m)\), on GPU 0\.",
        running=(),
    ),
    "a paused queue": Case(
        [("pause",), add()], exactly("the queue is paused. `dibs resume` resumes it."), running=()
    ),
    "a drained GPU": Case(
        [("gpus", "drain", "0", "1", "2", "3", "--reason", "fan is loud"), add()],
        r"needs 1 GPU; none of the right kind can be used now \(GPU 0-3: drained by \S+: fan is loud\)\. "
        + exactly("`dibs gpus` shows the state of the GPUs. " + NEVER),
        running=(),
    ),
    "some drained GPUs": Case(
        [add("-g2"), ("gpus", "drain", "2", "3", "--reason", "fan is loud"), add()],
        r"needs 1 GPU; 0 of 4 free, GPU 0-1: job 1, GPU 2-3: drained by \S+: fan is loud\. "
        + exactly("It starts when job 1 finishes; `dibs cancel 1` stops that job. " + UNKNOWN),
    ),
    "a bigger job's reservation": Case(
        [add("-g3", "-t", "1h"), add("-g4", "-t", "1h"), add("-t", "2h")],
        exactly(
            "needs 1 GPU; 1 of 4 free, GPU 0-2: job 1; "
            "free GPUs are reserved for job 2, which is ahead and needs 4 GPUs. "
            "A higher --priority, or a --time that ends before that job can start, would let it start earlier. "
        )
        + rf"Expected to start by {CLOCK} \(within (1h59m|2h00m)\), on GPU 0\.",
    ),
    "behind another": Case(
        [add("-g4"), add("-g2"), add()],
        exactly(
            "needs 1 GPU; 0 of 4 free, GPU 0-3: job 1; job 2 is ahead of it. "
            "A higher --priority would let it start first. " + UNKNOWN
        ),
    ),
    "-j": Case(
        [add("-g0", "-j1", "--array", "0-1")],
        exactly("batch limit reached (-j). `dibs edit 2 -j N` raises the limit. " + UNKNOWN),
    ),
    "memory": Case(
        [add("-g0", "--mem", memory()[0]), add("-g0", "--mem", memory()[0])],
        r"needs \S+ of memory; running jobs leave \S+ of \S+\. A lower --mem may start sooner\. " + exactly(UNKNOWN),
    ),
    "CPUs": Case(
        [add("-g0", "--cpus", "3"), add("-g0", "--cpus", "2")],
        exactly(
            "needs 2 CPUs; running jobs leave 1 of 4. Fewer --cpus may start sooner. "
            "The setting cpu_slots raises the limit. " + UNKNOWN
        ),
    ),
    "CPU slots": Case(
        [add("-g0", "--cpus", "4"), add("-g0")],
        exactly("all 4 CPU slots are in use. The setting cpu_slots raises the limit. " + UNKNOWN),
    ),
    "max_gpus": Case(
        [add("-g2"), add()],
        exactly(
            "your jobs use 2 of 2 GPUs (setting max_gpus). It starts when enough of them have finished. "
            "The setting max_gpus raises the limit. " + UNKNOWN
        ),
        {"DIBS_MAX_GPUS": "2"},
    ),
    "keep_free": Case(
        [add("-g2"), add()],
        exactly(
            "the setting keep_free leaves 2 GPUs free for others. It starts when more GPUs are free. "
            "A lower keep_free lets it start sooner. " + UNKNOWN
        ),
        {"DIBS_KEEP_FREE": "2"},
    ),
}  # fmt: skip


@pytest.fixture
def new_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**environ: str) -> Bench:
        made.append(Bench(tmp_path, **environ))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def why(bench: Bench, typist: Typist, job: str) -> str:
    told = typist.type(bench, "why", job)
    assert (told.code, told.err) == (0, "")
    return told.out


@pytest.mark.parametrize("name", CASES)
def test_a_waiting_job_has_its_reason(new_bench: Callable[..., Bench], typist: Typist, name: str) -> None:
    case = CASES[name]
    bench = new_bench(**case.environ)
    job = ""
    for words in case.typed:
        done = typist.type(bench, *words)
        assert done.code == 0, done
        for word in done.out.split() if words[0] == "add" else []:
            job = word
            if int(job) in case.running:
                bench.until(int(job), "started")
    assert re.fullmatch(rf"job {job}: {case.says}\n", told := why(bench, typist, job)), told


def test_an_unknown_gpu_type_is_refused_and_a_removed_one_is_the_reason(
    new_bench: Callable[..., Bench], typist: Typist
) -> None:
    bench = new_bench()
    refused = typist.type(bench, "add", "--gpu-type", "h100", "true")
    assert (refused.code, refused.out) == (69, "")
    assert refused.err == 'dibs: no GPU matches --gpu-type "h100". This machine has: Pretend GPU.\n'
    assert typist.type(bench, "add", "--hold", "--gpu-ids", "3", "true").out == "1\n"
    assert typist.type(bench, "add", "--hold", "-g", "4", "true").out == "2\n"
    # A card was removed.
    bench.stop()
    bench.environ["DIBS_DEVICES"] = "fake:2"
    typist.type(bench, "unhold", "1", "2")
    assert why(bench, typist, "1") == (
        "job 1: needs 1 GPU; this machine has none matching. Without --gpu-ids it could use the others. "
        f"{NEVER} `dibs gpus` shows the state of the GPUs.\n"
    )
    assert why(bench, typist, "2") == (
        f"job 2: needs 4 GPUs; this machine has 2 now. `dibs gpus` shows the state of the GPUs. {NEVER}\n"
    )


#: Becomes another user after all imports, for that user may not reach the interpreter.
STRANGER = """
import os, sys
from dibs.leases import holders; from dibs.leases import device_lease as leases
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = leases.take(leases.Folder(sys.argv[1]), ["FAKE-0", "FAKE-1"], leases.Note("lease", "nobody"))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def stranger(folder: str) -> Iterator[None]:
    """Let another user lease two GPUs."""
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_lease_of_another_user_is_reported_with_its_owner(new_bench: Callable[..., Bench], typist: Typist) -> None:
    # Where every user may go, unlike the folder of a test.
    with tempfile.TemporaryDirectory(prefix="dibs-test-", dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        bench = new_bench(DIBS_LEASE_DIR=folder)
        with stranger(folder):
            typist.type(bench, "add", "-g", "3", "true")
            assert why(bench, typist, "1") == (
                "job 1: needs 3 GPUs; 2 of 4 free, GPU 0-1: nobody's lease. It would start now with -g 2. "
                "Its start time is unknown: nobody holds the GPUs it needs for an unknown time.\n"
            )
            typist.type(bench, "cancel", "1")
            typist.type(bench, "add", "--gpu-ids", "0", "true")
            assert why(bench, typist, "2").startswith("job 2: needs 1 GPU; 0 of 1 free, GPU 0: nobody's lease. ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-g2", *LONG), "it is running on FAKE-0, FAKE-1."),
        (("-g0", "true"), "it is done."),
        (("-g0", "exit 3"), "it failed: exit code 3."),
        (("-g0", "kill -9 $$"), "it failed: killed by signal 9."),
        (("-g0", "-t", "0.01s", *LONG), "it reached its time limit: .+"),
    ],
)
def test_a_job_that_does_not_wait_has_its_state_explained(
    bench: Bench, typist: Typist, words: tuple[str, ...], says: str
) -> None:
    typist.type(bench, "add", *words)
    bench.until(1, "started" if words[-1] == "1000" and "-t" not in words else "finished")
    assert re.fullmatch(f"job 1: {says}\n", told := why(bench, typist, "1")), told
