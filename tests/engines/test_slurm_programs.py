"""Slurm's programs that hang, print garbage or too much, or do not reach the controller: nothing is known then."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bench import wait_for
from dibs.engines import slurm
from dibs.engines.protocol import Needs, Refused, Start, Unavailable
from dibs.system.configuration.engines import EngineSettings
from lab import Lab

NODES = "n1 |idle |0/16/0/16 |16000 |gpu:4 |gpu:0 |\n"
UNREACHABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def program(folder: Path, name: str, script: str) -> None:
    """Put a program of that name on the path of the test."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    fresh = folder / f".{name}"
    fresh.write_text(f"#!/bin/sh\n{script}\n")
    fresh.chmod(0o755)
    fresh.rename(path)


@pytest.fixture
def engine(tmp_path: Path) -> slurm.Slurm:
    settings = EngineSettings("lab", "slurm", tmp_path / "shared")
    return slurm.Slurm(settings, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})


def start(folder: Path, number: int = 1, batch: int = 0) -> Start:
    own = str(folder / str(number))
    return Start(f"dibs-x-{number}.1.1", own, ("py", f"{own}/spec.1"), Needs(1), 0, "n", f"{own}/engine.1", batch)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"echo '{UNREACHABLE}' >&2; exit 1", "Unable to contact slurm controller"),
        ("exit 3", "squeue exited with code 3"),
        ("echo one two three", "cannot read an answer of Slurm"),
        ("printf '\\377\\376|x'", "cannot read an answer of Slurm"),
        ("kill -9 $$", "squeue exited with code -9"),
    ],
)
def test_an_answer_that_says_nothing_is_unavailable(engine: slurm.Slurm, tmp_path: Path, script: str, why: str) -> None:
    program(tmp_path / "bin", "squeue", script)
    with pytest.raises(Unavailable, match=why):
        engine.poll(["1", "2"])


def test_a_program_that_hangs_is_ended_with_its_children(
    engine: slurm.Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "DEADLINE_S", 0.5)
    program(tmp_path / "bin", "squeue", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(Unavailable, match=r"squeue gave no answer within 0.5 s"):
        engine.poll(["1"])
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_a_program_that_prints_without_end_is_ended(
    engine: slurm.Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "MOST_BYTES", 2**20)
    program(tmp_path / "bin", "squeue", "yes 'a b c d'")
    with pytest.raises(Unavailable, match="squeue printed more than 1 MiB"):
        engine.poll(["1"])


def test_ten_megabytes_of_an_answer_are_read(engine: slurm.Slurm, tmp_path: Path) -> None:
    line = "1 |RUNNING |None |0 |n1 |dibs-x-1.1.1 |" + " " * 100
    program(tmp_path / "bin", "squeue", f"yes '{line}' | head -c {len(line + 'x') * 70_000}")
    assert engine.poll(["1"])["1"].phase == "running"


def test_a_missing_program_or_configuration_is_unavailable_at_once(tmp_path: Path) -> None:
    settings = EngineSettings("lab", "slurm", tmp_path / "shared", conf=tmp_path / "none.conf")
    with pytest.raises(Unavailable, match=r"none\.conf does not exist"):
        slurm.Slurm(settings, os.environ).nodes()
    with pytest.raises(Unavailable, match="sinfo cannot be run: it is not on the PATH of the daemon; in a shell"):
        slurm.Slurm(EngineSettings("lab", "slurm", tmp_path / "shared"), {"PATH": str(tmp_path)}).nodes()


def test_a_job_that_slurm_has_forgotten_is_gone_not_an_error(engine: slurm.Slurm, tmp_path: Path) -> None:
    program(tmp_path / "bin", "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert engine.poll(["7"]) == {}


def test_programs_run_in_an_almost_empty_environment(engine: slurm.Slurm, tmp_path: Path) -> None:
    """What a job sees is what it was submitted with; sbatch passes on the rest."""
    program(tmp_path / "bin", "sbatch", f'env > {tmp_path}/env; echo "$@" > {tmp_path}/words; echo 12')
    os.environ["SBATCH_PARTITION"] = "wrong"
    try:
        assert engine.submit([start(tmp_path)]) == {"dibs-x-1.1.1": "12"}
    finally:
        del os.environ["SBATCH_PARTITION"]
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "SLURM_TIME_FORMAT", "SLURM_CONF", "PWD", "SHLVL", "_", "OLDPWD"}
    assert "--export=ALL" in (tmp_path / "words").read_text()


def test_an_array_finds_its_starts_again_after_a_crash(engine: slurm.Slurm, tmp_path: Path) -> None:
    """Several jobs of one name are legal in Slurm: all of them are found."""
    for number in (1, 2, 3):
        (tmp_path / str(number)).mkdir()
    program(
        tmp_path / "bin",
        "sbatch",
        f"for w; do case $w in --job-name=*) echo ${{w#*=}} > {tmp_path}/name;; esac; done; echo 40",
    )
    starts = [start(tmp_path, number, batch=9) for number in (1, 2)]
    assert engine.submit(starts) == {"dibs-x-1.1.1": "40_0", "dibs-x-2.1.1": "40_1"}
    name = (tmp_path / "name").read_text().strip()
    rows = [("40_0", name), ("40_1", name), ("41", "dibs-x-3.1.1"), ("42", "dibs-x-3.1.1"), ("43", "other")]
    text = "".join(f"{ref} |PENDING |None |0 | |{own} |\\n" for ref, own in rows)
    program(tmp_path / "bin", "squeue", f"printf '{text}'")
    found = engine.find([f"dibs-x-{number}.1.1" for number in (1, 2, 3)])
    assert found == {"dibs-x-1.1.1": ["40_0"], "dibs-x-2.1.1": ["40_1"], "dibs-x-3.1.1": ["41", "42"]}


def test_while_slurm_hangs_local_jobs_start_and_verbs_answer(tmp_path: Path) -> None:
    """The thread of the engine waits, nobody else."""
    path = tmp_path / "bin"
    program(path, "sinfo", f"printf '{NODES.strip()}\\n'")
    program(path, "sbatch", "echo 5")
    program(path, "squeue", "sleep 600")
    own = Lab(tmp_path, {"lab": {"kind": "slurm"}}, PATH=f"{path}:{os.environ['PATH']}")
    try:
        remote = own.send("true")
        wait_for(lambda: own.job(remote)["engine_ref"], lambda ref: ref == "5")
        took_ms = []
        for _ in range(20):
            began_at = time.monotonic()
            assert own.until(own.add("true", gpus=1))["state"] == "done"
            took_ms.append((time.monotonic() - began_at) * 1000)
        assert own.cli("status").returncode == 0
        print(f"20 local jobs while Slurm hangs: median {sorted(took_ms)[10]:.0f} ms, slowest {max(took_ms):.0f} ms")
        assert own.job(remote)["state"] == "starting"
    finally:
        program(path, "squeue", "exit 0")
        program(path, "scancel", "exit 0")
        own.close()


def test_signals_are_for_jobs_that_run(engine: slurm.Slurm, tmp_path: Path) -> None:
    """For one that waits in Slurm, scancel would wait until it runs."""
    program(tmp_path / "bin", "scancel", f'echo "$@" >> {tmp_path}/words')
    engine.poke("12")
    engine.stop(["12"], now=False)
    poked, ended, stopped = (tmp_path / "words").read_text().splitlines()
    assert "--state=RUNNING" in poked.split()
    assert "--state=RUNNING" in stopped.split()
    assert ended == "-Q --state=PENDING 12"


def test_a_task_that_takes_a_job_at_the_last_moment_has_the_time_for_it(tmp_path: Path) -> None:
    settings = EngineSettings("lab", "slurm", tmp_path / "shared", reuse=3600.0)
    own = slurm.Slurm(settings, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    program(tmp_path / "bin", "sbatch", f'echo "$@" > {tmp_path}/words; echo 40')
    own.submit([start(tmp_path, number, batch=9)._replace(needs=Needs(1, time_limit_s=600.0)) for number in (1, 2)])
    assert "--time=73" in (tmp_path / "words").read_text().split()


def test_an_option_without_its_value_takes_none_of_ours(engine: slurm.Slurm, tmp_path: Path) -> None:
    program(tmp_path / "bin", "sbatch", f'echo "$@" > {tmp_path}/words; echo 40')
    engine.submit([start(tmp_path)._replace(needs=Needs(1, options="-p"))])
    assert (tmp_path / "words").read_text().split()[-1] == "-p"


def test_a_submission_without_an_id_is_no_trouble_of_the_engine(engine: slurm.Slurm, tmp_path: Path) -> None:
    program(tmp_path / "bin", "sbatch", "echo hello")
    answer = Refused("sbatch printed no job id but 'hello\\n'", may_be_there=True)
    assert engine.submit([start(tmp_path)]) == {"dibs-x-1.1.1": answer}


def test_an_array_without_an_id_is_found_by_its_name_and_not_submitted_again(
    engine: slurm.Slurm, tmp_path: Path
) -> None:
    program(tmp_path / "bin", "sbatch", f'echo "$@" >> {tmp_path}/words; echo Submitted batch job')
    some = [start(tmp_path, number, batch=9) for number in (1, 2)]
    assert {answer.may_be_there for answer in engine.submit(some).values() if isinstance(answer, Refused)} == {True}
    words = (tmp_path / "words").read_text().split()
    (name,) = (word.partition("=")[2] for word in words if word.startswith("--job-name="))
    lines = (f"77_{number} |PENDING |None |0 | |{name} |\\n" for number in range(2))
    program(tmp_path / "bin", "squeue", f"printf '{''.join(lines)}'")
    assert engine.find([one.key for one in some]) == {some[0].key: ["77_0"], some[1].key: ["77_1"]}
