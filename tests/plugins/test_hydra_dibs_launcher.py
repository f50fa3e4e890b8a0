"""Hydra's launcher: Hydra's own suites for launchers, one GPU for each run, and runs that outlive the program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.extra.pytest_plugin import hydra_restore_singletons as hydra_restore_singletons
from hydra.extra.pytest_plugin import hydra_sweep_runner as hydra_sweep_runner
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import IntegrationTestSuite, LauncherTestSuite

from bench import PATIENCE_S, Bench, wait_for
from hydra_plugins.hydra_dibs_launcher import run
from hydra_plugins.hydra_dibs_launcher.launcher import DibsLauncher

pytestmark = [pytest.mark.usefixtures("queue"), pytest.mark.filterwarnings("default")]

#: A program of a user. Each run marks its device as taken, which fails if it is, and waits for the gate.
PROGRAM = """
import os, time
import hydra

@hydra.main(version_base=None, config_path=None)
def train(cfg):
    taken = f"{cfg.folder}/device-{os.environ['DIBS_GPU_INDICES']}"
    os.close(os.open(taken, os.O_CREAT | os.O_EXCL))
    try:
        open(f"{cfg.folder}/run-{cfg.lr}", "a").write("x")
        while not os.path.exists(f"{cfg.folder}/{cfg.get('gate', 'gate')}"):
            time.sleep(0.01)
        if cfg.lr == 13:
            raise ValueError("bad luck")
        return cfg.lr * 2
    finally:
        os.unlink(taken)

if __name__ == "__main__":
    train()
"""


@pytest.mark.parametrize(("launcher_name", "overrides"), [("dibs", [])])
class TestLauncherSuite(LauncherTestSuite):
    """The suite that Hydra has for every launcher."""


@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=dibs"])])
class TestIntegrationSuite(IntegrationTestSuite):
    """The suite that Hydra has for programs which use a launcher."""


def test_hydra_finds_the_launcher() -> None:
    assert DibsLauncher.__name__ in [each.__name__ for each in Plugins.instance().discover(Launcher)]


class Program:
    """A Hydra program in a folder, with runs that wait for a gate."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        (folder / "train.py").write_text(PROGRAM)

    def launch(self, *overrides: str) -> subprocess.Popen[str]:
        """Start a multirun."""
        words = [sys.executable, "train.py", "-m", "hydra/launcher=dibs", f"hydra.launcher.name={self.name}"]
        return subprocess.Popen(
            [*words, "hydra.launcher.gpus=1", f"+folder={self.folder}", *overrides],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *overrides: str) -> tuple[int, str]:
        """Run a multirun to its end; return its exit code and output."""
        program = self.launch(*overrides)
        output, _ = program.communicate(timeout=PATIENCE_S)
        return program.returncode, output

    def open_gate(self) -> None:
        """Let all runs end."""
        (self.folder / "gate").touch()

    def marks(self, kind: str) -> dict[str, int]:
        """Return how often each run has started, or which devices are taken."""
        return {path.name.partition("-")[2]: len(path.read_text()) for path in self.folder.glob(f"{kind}-*")}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A program whose runs are a sweep of their own."""
    return Program(tmp_path, tmp_path.name)


def results(queue: Bench, name: str) -> list[dict[str, Any]]:
    """Return the rows of `dibs results`."""
    return list(json.loads(queue.cli("results", name, "--json").stdout)["runs"])


def test_four_runs_at_once_each_on_its_own_gpu(program: Program) -> None:
    """A second run on a taken device would fail."""
    launched = program.launch("+lr=1,2,3,4,5,6,7,8")
    wait_for(lambda: program.marks("device"), lambda taken: len(taken) == 4)
    program.open_gate()
    output, _ = launched.communicate(timeout=PATIENCE_S)
    assert launched.returncode == 0, output
    assert program.marks("run") == {str(lr): 1 for lr in range(1, 9)}


def test_runs_outlive_the_program_and_again_runs_only_what_is_missing(program: Program, queue: Bench) -> None:
    launched = program.launch("+lr=1,2,3,4,5,6")
    wait_for(lambda: [job for job in queue.jobs() if job["sweep"] == program.name], lambda jobs: len(jobs) == 6)
    launched.kill()
    launched.communicate()
    program.open_gate()
    code, output = program.run("+lr=1,2,3,4,5,6,7,8", "hydra.launcher.again=true")
    assert code == 0, output
    assert program.marks("run") == {str(lr): 1 for lr in range(1, 9)}
    found = {run["params"]["lr"]: (run["state"], run["numbers"]["result"]) for run in results(queue, program.name)}
    assert found == {lr: ("done", 2 * lr) for lr in range(1, 9)}


def test_without_again_everything_runs_once_more(program: Program) -> None:
    program.open_gate()
    for times in (1, 2):
        code, output = program.run("+lr=1,2")
        assert code == 0, output
        assert program.marks("run") == {"1": times, "2": times}


def test_an_exception_fails_its_job_and_comes_back(program: Program, queue: Bench) -> None:
    program.open_gate()
    code, output = program.run("+lr=1,13")
    assert code == 1
    assert "ValueError: bad luck" in output
    assert {run["params"]["lr"]: run["state"] for run in results(queue, program.name)} == {1: "done", 13: "failed"}


def test_a_killed_run_names_its_job(program: Program, queue: Bench) -> None:
    launched = program.launch("+lr=1")
    wait_for(lambda: program.marks("device"))
    (job,) = queue.jobs(f"sweep:{program.name}")
    queue.client.post("/v1/jobs/actions", {"verb": "kill", "select": [str(job["id"])], "signal": "KILL"})
    output, _ = launched.communicate(timeout=PATIENCE_S)
    assert f"job {job['id']}" in output
    assert launched.returncode == 1


def test_options_reach_the_jobs(program: Program, queue: Bench) -> None:
    program.open_gate()
    options = {"gpus": "2", "time": "1h", "retries": "2", "priority": "high", "project": "vision", "tags": "[a,b]"}
    code, output = program.run("+lr=1", *(f"hydra.launcher.{name}={value}" for name, value in options.items()))
    assert code == 0, output
    (job,) = queue.jobs(f"sweep:vision/{program.name}")
    wanted = {"gpus": 2, "time_limit_s": 3600, "retries": 2, "priority": 10, "project": "vision", "tags": ["a", "b"]}
    assert {name: job[name] for name in wanted} == wanted
    assert job["name"] == f"train +folder={program.folder} +lr=1"[:100]


def test_at_most_limits_runs_at_the_same_time(program: Program, queue: Bench) -> None:
    launched = program.launch("+lr=1,2,3", "hydra.launcher.at_most=1")
    wait_for(lambda: program.marks("device"))
    waiting = wait_for(lambda: queue.jobs(f"sweep:{program.name}+queued"), lambda jobs: len(jobs) == 2)
    assert "-j" in queue.reason(waiting[0]["id"])
    program.open_gate()
    output, _ = launched.communicate(timeout=PATIENCE_S)
    assert launched.returncode == 0, output


def test_a_wrong_option_is_one_line_and_queues_nothing(program: Program, queue: Bench) -> None:
    code, output = program.run("+lr=1", "hydra.launcher.time=10")
    assert code == 1
    assert "time expected" in output
    assert not (program.folder / "run-1").exists()


def test_overrides_are_parameters() -> None:
    overrides = ["lr=0.1", "+a=1", "++b=true", "db=mysql", "~c", "model.sizes=[1,2]", "hydra.verbose=true"]
    wanted = {"lr": 0.1, "a": 1, "b": True, "db": "mysql", "~c": None, "model.sizes": [1, 2]}
    assert run.parameters(overrides) == wanted


def test_hydra_programs_load_nothing_of_dibs() -> None:
    """Hydra imports all plugins in every Hydra program."""
    program = (
        "import sys, hydra, hydra.core.plugins, hydra.core.utils, hydra.core.override_parser.overrides_parser\n"
        "before = set(sys.modules)\n"
        "import hydra_plugins.hydra_dibs_launcher.launcher\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    package = "hydra_plugins.hydra_dibs_launcher"
    assert loaded.stdout.split() == [
        "hydra_plugins",
        package,
        *(f"{package}.{m}" for m in ("config", "launcher", "run")),
    ]
