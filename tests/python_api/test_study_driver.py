"""`dibs.optuna.optimize`: trials are jobs, a killed driver is continued, and reports prune running trials."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState

import dibs
from bench import PATIENCE_S, Bench, wait_for
from dibs.errors import UserError

optuna.logging.set_verbosity(optuna.logging.WARNING)

PROGRAM = """
import os, sys, time
import optuna, dibs

optuna.logging.set_verbosity(optuna.logging.WARNING)

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    with open("began", "a") as file:
        file.write(f"{trial.number} {os.environ['DIBS_GPU_INDICES']}\\n")
    while trial.number >= 4 and not os.path.exists("go"):
        time.sleep(0.02)
    return x * x

if __name__ == "__main__":
    study = optuna.create_study(storage="sqlite:///study.db", study_name="square", load_if_exists=True)
    dibs.optuna.optimize(study, objective, n_trials=int(sys.argv[1]), gpus=1)
"""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    own = Bench(tmp_path)
    (tmp_path / "work").mkdir()
    for name, value in own.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "work")
    yield own
    own.close()


@pytest.fixture
def storage(queue: Bench) -> Iterator[RDBStorage]:
    """The storage of a study in the folder of the queue. Optuna leaves its connections open."""
    own = RDBStorage("sqlite:///study.db")
    yield own
    own.remove_session()
    own.engine.dispose()


def states(storage: RDBStorage) -> list[TrialState]:
    return [trial.state for trial in optuna.load_study(study_name="square", storage=storage).trials]


def test_a_killed_driver_is_continued_and_no_trial_runs_twice(queue: Bench, storage: RDBStorage) -> None:
    Path("search.py").write_text(PROGRAM)
    command = [sys.executable, "-W", "ignore", "search.py", "8"]
    driver = subprocess.Popen(command, env=queue.environ)
    began = Path("began")
    # Four have ended, three of the next four run, or are about to.
    wait_for(lambda: began.exists() and len(began.read_text().splitlines()) >= 7)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert states(storage).count(TrialState.RUNNING) >= 3

    Path("go").touch()
    subprocess.run(command, env=queue.environ, check=True, timeout=PATIENCE_S)

    assert states(storage) == [TrialState.COMPLETE] * 8
    numbers = [line.split()[0] for line in began.read_text().splitlines()]
    assert sorted(numbers, key=int) == [str(number) for number in range(8)]
    assert {line.split()[1] for line in began.read_text().splitlines()} == {"0", "1", "2", "3"}


def objective_with_reports(trial: optuna.Trial) -> float:
    """Report a value for ten steps; a bad one then waits until it is stopped."""
    bad = trial.suggest_categorical("bad", [False, True])
    for step in range(10):
        dibs.report(loss=10.0 if bad else 1.0, step=step)
    while bad:
        signal.pause()
    return 1.0


def test_the_pruner_stops_a_running_trial_by_what_it_reports(storage: RDBStorage) -> None:
    study = optuna.create_study(
        storage=storage, study_name="square", pruner=optuna.pruners.MedianPruner(n_startup_trials=2)
    )
    for bad in (False, False, False, True):
        study.enqueue_trial({"bad": bad})

    dibs.optuna.optimize(study, objective_with_reports, n_trials=4, gpus=0, at_most=1)

    trials = study.trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3 + [TrialState.PRUNED]
    assert dibs.job(trials[-1].user_attrs["dibs_job"]).state == "cancelled"
    assert trials[-1].value == 10.0


def fail_for_odd(trial: optuna.Trial) -> float:
    """Raise in every second trial."""
    x = trial.suggest_int("x", 0, 9)
    if trial.number % 2:
        raise ZeroDivisionError
    return x


def test_an_exception_fails_its_trial_and_ends_the_call_unless_it_is_expected(storage: RDBStorage) -> None:
    study = optuna.create_study(storage=storage, study_name="square")
    with pytest.raises(ZeroDivisionError):
        dibs.optuna.optimize(study, fail_for_odd, 2, gpus=0, at_most=1)
    dibs.optuna.optimize(study, fail_for_odd, 4, gpus=0, at_most=1, catch=ZeroDivisionError)
    expected = [TrialState.COMPLETE, TrialState.FAIL] * 2
    assert [trial.state for trial in study.trials] == expected


def test_a_study_in_memory_is_refused_because_jobs_cannot_open_it() -> None:
    with pytest.raises(UserError, match="in memory"):
        dibs.optuna.optimize(optuna.create_study(), fail_for_odd, 2)
