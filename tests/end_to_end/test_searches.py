"""Whole searches: on plain commands, through kills of the daemon and of the study, with runs that are stopped early."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.system import processes

#: Each run appends its index and point to a file, and prints its loss.
PROGRAM = """
import os, sys, time
x = float(sys.argv[1])
with open(sys.argv[2], "a") as book:
    book.write(f"{os.environ['DIBS_INDEX']} {x}\\n")
time.sleep(float(sys.argv[3]))
print("loss", (x - 1) ** 2)
"""
#: Falls to its level, and says when it was told to end.
LEARNER = """
import os, sys, time
level = float(sys.argv[1])
for step in range(1, 11):
    value = level + (2 - level) / step
    with open(os.environ["DIBS_REPORT"], "a") as report:
        report.write(f'{{"loss": {value}, "step": {step}}}\\n')
    # The last one waits to be stopped.
    time.sleep(1000 if level > 1 and step == 6 else 0.01)
"""


def search(bench: Bench, *more: str, trials: int = 8, sleep_s: float = 0.0) -> subprocess.CompletedProcess[str]:
    """Run a search of the lowest loss."""
    (bench.folder / "f.py").write_text(PROGRAM)
    command = f"{sys.executable} f.py {{x}} {bench.folder}/book {sleep_s}"
    words = ["--search", "tpe", "--trials", str(trials), "--minimize", "loss", "--metric", "loss=loss (.*)"]
    return bench.cli("sweep", command, "-p", "x=uniform(-5,5)", "-n", "s", *words, *more)


def results(bench: Bench) -> list[dict[str, Any]]:
    return list(json.loads(bench.cli("results", "s", "--json").stdout)["runs"])


def book(bench: Bench) -> list[str]:
    return (bench.folder / "book").read_text().splitlines()


def of_sweep(bench: Bench) -> dict[str, Any]:
    (found,) = bench.client.get("/v1/sweeps", [("name", "s")])["sweeps"]
    return dict(found)


def test_a_search_runs_all_its_trials_and_more_when_it_is_run_again(bench: Bench) -> None:
    done = search(bench)
    assert (done.returncode, done.stdout) == (0, "8 trials: 1 new, 0 retried, 0 done, 7 to follow\n"), done.stderr
    assert bench.cli("wait", "sweep:s").returncode == 0
    runs = results(bench)
    assert sorted(run["index"] for run in runs) == list(range(8))
    assert len(book(bench)) == 8
    assert of_sweep(bench)["search"] == {"sampler": "tpe", "trials": 8, "seed": 0, "ended": None}
    table = bench.cli("results", "s").stdout.splitlines()
    assert table[0].split() == ["TRIAL", "BEST", "JOB", "X", "STATE", "LOSS"]
    assert table[1].split()[1] == "*"
    assert search(bench, trials=11).stdout.startswith("11 trials: 1 new, 0 retried, 8 done")
    # Without a selector too: the trials to come are not jobs yet.
    assert bench.cli("wait").returncode == 0
    assert sorted(run["index"] for run in results(bench)) == list(range(11))
    assert search(bench, trials=11).stdout == "11 trials: 0 new, 0 retried, 11 done, 0 to follow\n"


#: Writes that it runs, and ends on request.
OBEDIENT = """
import os, sys, time
index = os.environ["DIBS_INDEX"]
open(f"{sys.argv[2]}/{index}-runs", "w").close()
while not os.path.exists(f"{sys.argv[2]}/{index}-ends"):
    time.sleep(0.01)
print("loss", (float(sys.argv[1]) - 1) ** 2)
"""


def test_a_search_on_four_gpus_chooses_what_optuna_with_four_workers_would(bench: Bench) -> None:
    """Every point knows all results of its moment: the daemon chooses it when a GPU is free, not before."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    alone = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=5, multivariate=True, constant_liar=True))
    order, trials = random.Random(1), 20
    (bench.folder / "f.py").write_text(OBEDIENT)
    words = ["--search", "tpe", "--trials", str(trials), "--seed", "5", "--minimize", "loss", "-n", "s", "-g", "1"]
    command = f"{sys.executable} f.py {{x}} {bench.folder}"
    done = bench.cli("sweep", command, "-p", "x=uniform(-5,5)", *words, "--metric", "loss=loss (.*)")
    assert done.returncode == 0, done.stderr

    running: dict[int, optuna.Trial] = {}
    expected: list[float] = []
    for number in range(trials):
        if len(running) == 4:
            ended = order.choice(sorted(running))
            (bench.folder / f"{ended}-ends").touch()
            alone.tell(running.pop(ended), (round(expected[ended], 5) - 1) ** 2)
        wait_for((bench.folder / f"{number}-runs").exists)
        running[number] = alone.ask()
        expected.append(running[number].suggest_float("x", -5, 5))
    for number in running:
        (bench.folder / f"{number}-ends").touch()
    assert bench.cli("wait", "sweep:s").returncode == 0
    found = [run["params"]["x"] for run in sorted(results(bench), key=lambda run: run["index"])]
    assert found == pytest.approx(expected, abs=1e-4)


def test_no_trial_is_lost_or_doubled_when_daemon_and_study_are_killed(bench: Bench) -> None:
    trials, chance = 14, random.Random(5)
    assert search(bench, trials=trials, sleep_s=0.05).returncode == 0
    kills = 0

    def is_over() -> bool:
        return bool(bench.client.get("/v1/jobs/wait", [("select", "sweep:s"), ("wait_s", "0")])["over"])

    while not is_over() and kills < 8:
        if kills % 2:
            bench.kill()
        else:
            for proc in processes.marked([f"DIBS_HOME={bench.home}".encode()]):
                if b"study_child" in Path(f"/proc/{proc.pid}/cmdline").read_bytes():
                    os.kill(proc.pid, signal.SIGKILL)
        kills += 1
        time.sleep(chance.uniform(0.0, 0.3))
    assert bench.cli("wait", "sweep:s").returncode == 0
    assert kills > 2
    runs = results(bench)
    assert sorted(run["index"] for run in runs) == list(range(trials))
    # A run that was lost with its runner would show here; each index began once, with the point of its record.
    begun = sorted(line.split() for line in book(bench))
    assert begun == sorted([str(run["index"]), str(float(run["params"]["x"]))] for run in runs)


def test_a_study_is_made_anew_if_its_storage_is_lost(bench: Bench) -> None:
    search(bench, trials=4)
    assert bench.cli("wait", "sweep:s").returncode == 0
    for path in (bench.home / "searches").iterdir():
        path.unlink()
    assert search(bench, trials=6).returncode == 0
    assert bench.cli("wait", "sweep:s").returncode == 0
    assert len({run["params"]["x"] for run in results(bench)}) == 6


def test_cancelling_a_search_ends_it(bench: Bench) -> None:
    search(bench, sleep_s=1000.0)
    wait_for(lambda: len(bench.jobs("running")) == 4)
    bench.cancel("sweep:s", grace_s=0)
    assert bench.cli("wait", "sweep:s").returncode == 1
    assert of_sweep(bench)["search"]["ended"] == "cancelled"
    assert {run["state"] for run in results(bench)} == {"cancelled"}
    assert "the search has ended: cancelled." in bench.cli("results", "s").stderr


def test_a_held_search_waits_and_a_limit_holds(bench: Bench) -> None:
    assert search(bench, "--hold", "-j", "1", trials=3).returncode == 0
    assert bench.cli("wait", "sweep:s").returncode == 6
    (job,) = bench.jobs()
    assert job["state"] == "held"
    assert bench.cli("unhold", "sweep:s").returncode == 0
    assert bench.cli("wait", "sweep:s").returncode == 0
    runs = sorted(results(bench), key=lambda run: run["started_at"])
    assert len(runs) == 3
    assert all(one["finished_at"] <= other["started_at"] for one, other in itertools.pairwise(runs))


def test_a_command_that_always_fails_does_not_burn_all_trials(bench: Bench) -> None:
    words = ["--search", "tpe", "--trials", "60", "--minimize", "loss", "-n", "s"]
    assert bench.cli("sweep", "false {x}", "-p", "x=uniform(0,1)", *words).returncode == 0
    assert bench.cli("wait", "sweep:s").returncode in (1, 6)
    assert len(bench.jobs()) < 12


def test_a_search_whose_runs_never_report_ends_and_says_why(bench: Bench) -> None:
    words = ["--search", "tpe", "--trials", "60", "--minimize", "loss", "-n", "s"]
    assert bench.cli("sweep", "true {x}", "-p", "x=uniform(0,1)", *words).returncode == 0
    assert bench.cli("wait", "sweep:s").returncode == 0
    assert "runs are done and none reported loss" in of_sweep(bench)["search"]["ended"]
    assert len(bench.jobs()) < 12


@pytest.mark.parametrize("how", ["report", "metric"])
def test_runs_that_do_badly_are_stopped_early(bench: Bench, how: str) -> None:
    """Also across a restart of the daemon, and without a search."""
    (bench.folder / "learn.py").write_text(LEARNER if how == "report" else _printing(LEARNER))
    more = [] if how == "report" else ["--metric", "loss=loss=(\\S+)", "--metric", "step=step=(\\S+)"]
    command = f"{sys.executable} -u learn.py {{level}}"
    levels = ["0.1", "0.2", "0.3", "0.4", "1.5"]
    words = ["--minimize", "loss", "--early-stop", "median", "-n", "s", "-g", "0", "-j", "2", *more]
    assert bench.cli("sweep", command, "-p", "level", *levels, *words).returncode == 0
    bench.kill()
    bench.start()
    done = bench.cli("wait", "sweep:s")
    assert done.returncode == 0, done.stderr
    (bad,) = [run for run in results(bench) if run["params"]["level"] == 1.5]
    assert (bad["state"], bad["cause"], bad["numbers"]["step"]) == ("cancelled", "early", 6)
    assert "stopped early: 1.583 at step 6 is not among the best" in bench.job(bad["job"])["remark"]
    assert "stopped early" in bench.cli("results", "s").stdout
    # It counts as finished: nothing is left to do.
    again = bench.cli("sweep", command, "-p", "level", *levels, *words)
    assert again.stdout == "5 points: 0 new, 0 retried, 5 done\n"
    assert bench.cli("retry", "sweep:s").returncode == 0
    assert not bench.jobs("unfinished")


def _printing(program: str) -> str:
    """Return a program that prints what this one reports."""
    start, end = program.index("    with open"), program.index("    # The last")
    return program[:start] + '    print(f"step={step} of 10: loss={value}")\n' + program[end:]


def test_what_a_search_cannot_do_is_refused_and_changes_nothing(bench: Bench) -> None:
    def refuse(*words: str) -> str:
        done = bench.cli("sweep", "true {x}", "-p", "x=uniform(0,1)", *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        return done.stderr

    assert "--search needs the number of runs" in refuse("--search", "tpe", "--minimize", "loss")
    assert "--search needs a metric" in refuse("--search", "tpe", "--trials", "5")
    assert "--trials needs --search" in refuse("--trials", "5")
    assert "cannot be combined with --sample" in refuse(
        "--search", "tpe", "--trials", "5", "--sample", "3", "--minimize", "l"
    )
    assert "one of --minimize" in refuse("--search", "tpe", "--trials", "5", "--minimize", "l", "--maximize", "l")
    assert "--early-stop needs a metric" in refuse("--sample", "3", "--early-stop", "median")
    assert "--again expected points" in refuse("--search", "tpe", "--trials", "5", "--minimize", "l", "--again")
    assert "--print expected points" in refuse("--search", "tpe", "--trials", "5", "--minimize", "l", "--print")
    assert "tpe, cmaes or random" in refuse("--search", "grid", "--trials", "5")
    assert bench.client.get("/v1/sweeps")["sweeps"] == []


def test_a_dry_run_shows_the_space_and_the_first_points(bench: Bench) -> None:
    shown = search(bench, "--dry-run").stdout.splitlines()
    assert shown[0] == "8 trials of s, a new search; nothing was submitted."
    assert "  x: uniform, -5 to 5" in shown
    first = [line.split()[2] for line in shown if "f.py" in line]
    assert len(first) == 5
    assert bench.jobs() == []
    search(bench)
    assert bench.cli("wait", "sweep:s").returncode == 0
    assert next(run["params"]["x"] for run in sorted(results(bench), key=lambda run: run["index"])) == float(first[0])


def test_without_optuna_one_line_says_what_to_install_and_nothing_changes(bench: Bench) -> None:
    """Random search needs no Optuna."""
    hide = "import sys; sys.modules['optuna'] = None; from dibs.daemon import main; main.main()"
    with subprocess.Popen([sys.executable, "-c", hide], env=bench.environ, stderr=subprocess.DEVNULL) as daemon:
        wait_for(lambda: bench.pid() == daemon.pid)
        try:
            _search_without_optuna(bench)
        finally:
            bench.stop()


def _search_without_optuna(bench: Bench) -> None:
    words = ("sweep", "echo loss={x}", "-p", "x=uniform(0,1)", "--trials", "3", "--minimize", "loss", "-n", "s")
    metric = ("--metric", "loss=loss=(.*)", "-g", "0")
    done = bench.cli(*words, "--search", "tpe", *metric)
    assert done.returncode == 69, done.stderr
    assert done.stderr == (
        "dibs: --search tpe needs Optuna, which is not installed. pip install 'dibs[search]', or --search random.\n"
    )
    assert bench.client.get("/v1/sweeps")["sweeps"] == []
    assert bench.cli(*words, "--search", "random", *metric).returncode == 0
    assert bench.cli("wait", "sweep:s").returncode == 0
    assert len(results(bench)) == 3
