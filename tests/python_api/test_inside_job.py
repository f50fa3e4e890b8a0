"""Functions for the program of a job: metrics, parameters, the checkpoint folder. No daemon is needed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import dibs
from dibs import errors


class Tensor:
    """A scalar of an array library."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def item(self) -> float:
        """Return the number, or raise as torch does."""
        if len(self.values) != 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self.values[0]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of a job."""
    found = tmp_path / "1" / "report.jsonl"
    monkeypatch.setenv("DIBS_REPORT", str(found))
    return found


def lines(path: Path) -> list[dict[str, object]]:
    """Return what was reported, without the times."""
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(each.pop("at").endswith("Z") for each in told)
    return told


def test_a_report_is_a_line_of_numbers(path: Path) -> None:
    assert dibs.report(loss=0.5, step=10)
    assert dibs.report(loss=Tensor(0.25), step=Tensor(11), **{"val/acc": math.nan})
    assert lines(path) == [{"loss": 0.5, "step": 10}, {"loss": 0.25, "step": 11, "val/acc": None}]
    assert (path.stat().st_mode & 0o777, path.read_text().count(" 10}")) == (0o600, 1)


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({}, "expected numbers such as loss=0.3 step=10, got nothing."),
        ({"loss": "0.3"}, "report: loss expected one number, got '0.3'."),
        ({"loss": True}, "report: loss expected one number, got True."),
        ({"loss": None}, "report: loss expected one number, got None."),
        ({"loss": [1.0]}, "report: loss expected one number, got [1.0]."),
        ({"loss": Tensor(1, 2)}, "report: loss expected one number, got <"),
        ({"at": 1}, "expected numbers such as loss=0.3 step=10; at is the time of the report itself."),
        ({"a b": 1}, 'expected numbers such as loss=0.3 step=10, got the name "a b".'),
    ],
)
def test_values_that_are_no_numbers_are_refused_and_not_written(
    path: Path, numbers: dict[str, float], says: str
) -> None:
    with pytest.raises(errors.UserError) as caught:
        dibs.report(**numbers)
    assert str(caught.value).startswith(says)
    assert not path.exists()


def test_a_report_that_cannot_be_written_is_an_error(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(errors.MachineError, match=r"report: cannot write to .*: Is a directory"):
        dibs.report(loss=1)


def test_outside_a_job_the_same_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DIBS_REPORT", "DIBS_PARAMS", "DIBS_CHECKPOINT_DIR", "DIBS_STOP", "DIBS_WARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert dibs.report(loss=1) is False
    assert dibs.params() == {}
    assert dibs.checkpoint_dir() == Path("checkpoint")
    assert (tmp_path / "checkpoint").is_dir()
    assert dibs.checkpoint_dir("runs/a") == Path("runs/a")
    assert dibs.is_stopping() is False
    assert dibs.on_stop(print) is print


def test_parameters_and_the_checkpoint_folder_are_those_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIBS_PARAMS", '{"lr": 0.1, "net": "vit"}')
    monkeypatch.setenv("DIBS_CHECKPOINT_DIR", str(tmp_path / "kept"))
    assert dibs.params() == {"lr": 0.1, "net": "vit"}
    assert dibs.checkpoint_dir() == tmp_path / "kept"
    assert (tmp_path / "kept").is_dir()
    monkeypatch.setenv("DIBS_PARAMS", "[1]")
    with pytest.raises(errors.UserError, match=r"DIBS_PARAMS: expected a JSON object, got \[1\]"):
        dibs.params()


def test_concurrent_reports_into_one_file_are_not_interleaved(path: Path) -> None:
    """Each of four processes writes fifty long lines, after all of them have started."""
    program = (
        "import sys, dibs\nprint(flush=True); sys.stdin.readline()\n"
        "more = {'x' * 150 + str(n): n for n in range(9)}\n"
        "for step in range(50): dibs.report(worker=int(sys.argv[1]), step=step, **more)"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", program, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        worker.communicate(b"go\n")
        assert worker.returncode == 0
    found = [(each["worker"], each["step"], len(each)) for each in lines(path)]
    assert sorted(found) == [(worker, step, 11) for worker in range(4) for step in range(50)]
