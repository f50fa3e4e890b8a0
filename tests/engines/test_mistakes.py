"""What people get wrong with engines: each mistake is one clear line, with what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import wait_for
from dibs.engines import slurm_text
from lab import Lab

NODES = "n1 |idle |0/16/0/16 |16000 |gpu:4 |gpu:0 |"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The folder of Slurm's programs: the cluster takes everything, and one job runs for ever."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write(folder, "sinfo", f"echo '{NODES}'")
    write(folder, "sbatch", "cat >/dev/null; echo 4107")
    write(folder, "squeue", "echo '4107 |RUNNING |None |0 |n1 |x |'")
    write(folder, "scancel", "true")
    return folder


def write(folder: Path, name: str, script: str) -> None:
    (folder / f".{name}").write_text(f"#!/bin/sh\n{script}\n")
    (folder / f".{name}").chmod(0o755)
    (folder / f".{name}").rename(folder / name)


@pytest.fixture
def lab(tmp_path: Path, programs: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, {"lab": {"kind": "slurm"}}, PATH=f"{programs}:{os.environ['PATH']}")
    yield own
    own.close()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("lba", "Did you mean lab?"), ("uni", "To add it: dibs config set engines.uni.kind slurm"), ("Lab", "mean lab?")],
)
def test_an_engine_that_does_not_exist(lab: Lab, name: str, hint: str) -> None:
    done = lab.cli("add", "--engine", name, "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f'dibs: --engine expected one of local, lab, got "{name}". ')
    assert done.stderr.endswith(f"{hint}\n")


@pytest.mark.parametrize(
    "stderr",
    [
        "sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
        "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: error: _establish_config_source: failed\n"
        "sinfo: fatal: Could not establish a configuration source\n",
        "sinfo: fatal: Unable to open slurm.conf\n",
    ],
)
def test_a_machine_without_a_configuration_of_slurm(stderr: str) -> None:
    told = slurm_text.trouble_words(stderr, "lab")
    assert told.startswith("Slurm's programs find no slurm.conf; name it with `dibs config set engines.lab.conf PATH`")


def test_other_words_of_slurm_are_one_line_without_its_marks() -> None:
    stderr = "squeue: error: slurm_receive_msg: timed out\nsqueue: error: slurm_receive_msg: timed out\n\nsomething\n"
    assert slurm_text.trouble_words(stderr, "lab") == "slurm_receive_msg: timed out; something"


def test_an_engine_that_was_removed_while_jobs_are_there(lab: Lab) -> None:
    job_id = lab.send("true")
    wait_for(lambda: lab.job(job_id)["engine_ref"], lambda ref: ref == "4107")
    lab.stop()
    lab.configure({})
    lab.start()
    told = lab.cli("why", str(job_id)).stdout
    assert "its engine lab is not in the settings of the daemon" in told
    assert "add it again, then type: dibs daemon restart" in told
    assert lab.job(job_id)["state"] == "starting"
    lab.cancel(job_id)
    job = lab.job(job_id)
    assert job["state"] == "lost"
    assert job["remark"].endswith("it may still run on lab, which calls it 4107")


def test_a_folder_that_the_nodes_do_not_see(lab: Lab, programs: Path) -> None:
    """Slurm cannot even write the output of the runner there, and says no more than that the job failed."""
    write(programs, "squeue", "echo '4107 |FAILED |NonZeroExitCode |256 |n1 |x |'")
    job = lab.until(lab.send("true"))
    assert (job["state"], job["cause"]) == ("failed", "start")
    shared = lab.folder / "shared-lab"
    assert f"it printed nothing: does node n1 see {shared}, and can you write there?" in job["remark"]


def test_the_nodes_of_a_cluster_that_is_away_are_shown_with_the_reason(lab: Lab, programs: Path) -> None:
    wait_for(lambda: lab.cli("engines", "lab").stdout, lambda text: text.startswith("NODE") and "n1" in text)
    write(programs, "sinfo", "echo 'Unable to contact slurm controller' >&2; exit 1")
    told = wait_for(lambda: lab.cli("engines", "lab").stdout, lambda text: "Unable to contact" in text)
    assert told.startswith("NODE")
    assert told.splitlines()[-1].startswith("lab is unreachable, for ")
