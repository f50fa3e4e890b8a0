"""How real projects use GPUTaskScheduler, from the first run to the collection of results.

After PacGAN, InfoGAN-CR, DoppelGANger and BSN: their configurations and the way their scripts, tasks and folders are
arranged; the work itself is a few lines of ours.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import PATIENCE_S
from gpu_tasks import Project, console

MAIN = """
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
from {config} import config
from {module} import {task}

if __name__ == "__main__":
    GPUTaskScheduler(config=config, gpu_task_class={task}).start()
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project; nothing of it may be left running."""
    own = Project(tmp_path)
    yield own
    assert own.living() == []


def verbs(lines: list[str]) -> list[str]:
    """Return the log messages without their subjects."""
    return sorted(line.split()[3] for line in lines)


# -- PacGAN

PACGAN_TASK = """
import os
import numpy_like
from gpu_task_scheduler.gpu_task import GPUTask
from utils import Struct
# Reads its configuration when it is imported, from the file that a variable names.
import blocks

class PacGANTask(GPUTask):
    def required_env(self):
        path = os.path.join(self._work_dir, ".blocksrc")
        with open(path, "w") as file:
            file.write(f"seed: {self._config['run']}\\n")
        self._asked = True
        return {"BLOCKS_CONFIG": path}

    def main(self):
        options = Struct(**self._config)
        self._train(options)

    def _train(self, options):
        assert self._asked
        model = options.model_class(options.packing_num)
        with open(os.path.join(self._work_dir, "seed.txt"), "w") as file:
            file.write(f"{blocks.seed} {model.width} {options.samples.total()}")
"""

PACGAN_CONFIG = """
from model import Model
from numpy_like import Array
config = {
    "scheduler_config": {"gpu": ["0", "1"]},
    "global_config": {"model_class": Model, "samples": Array([1, 2, 3]), "batch": 64},
    "test_config": [{"run": range(2), "packing_num": [1, 4]}],
}
"""


def test_a_project_like_pacgan_runs(project: Project) -> None:
    """Variables from a file in the folder; classes and arrays as values; modules beside the script."""
    project.write("model.py", "class Model:\n    def __init__(self, packing):\n        self.width = packing * 28\n")
    project.write("numpy_like.py", "class Array(list):\n    def total(self):\n        return sum(self)\n")
    project.write(
        "utils.py", "class Struct:\n    def __init__(self, **entries):\n        self.__dict__.update(entries)\n"
    )
    project.write(
        "blocks.py",
        "import os\npath = os.environ.get('BLOCKS_CONFIG')\nseed = open(path).read().strip() if path else None\n",
    )
    project.write("pacgan_task.py", PACGAN_TASK)
    project.configure(PACGAN_CONFIG)
    project.write("main.py", MAIN.format(config="config", module="pacgan_task", task="PacGANTask"))
    done = project.run()
    assert verbs(console(done)) == ["finished"] * 2 + ["finishes"] * 4 + ["receives"] * 4, done.stderr
    for run in range(2):
        for packing in (1, 4):
            folder = project.folder / "results" / f"packing_num-{packing},run-{run},"
            assert (folder / "seed.txt").read_text() == f"seed: {run} {packing * 28} 6"
            assert {path.name for path in folder.iterdir()} == {".blocksrc", "seed.txt", "worker.log"}


# -- InfoGAN-CR

GAN_TASK = """
import os, time
from gpu_task_scheduler.gpu_task import GPUTask

class GANTask(GPUTask):
    def main(self):
        os.makedirs(os.path.join(self._work_dir, "checkpoint"))
        with open(os.path.join(self._work_dir, "checkpoint", "model"), "w") as file:
            file.write(str(self._config["run"] * self._config["cr"]))
"""

METRICS_TASK = """
import os, pickle
from gpu_task_scheduler.gpu_task import GPUTask

class MetricsTask(GPUTask):
    def main(self):
        with open(os.path.join(self._work_dir, "checkpoint", "model")) as file:
            score = float(file.read())
        with open(os.path.join(self._work_dir, "final_metrics.pkl"), "wb") as file:
            pickle.dump({"score": score}, file, protocol=2)
"""

CROSS_TASK = """
import os, pickle
from config import config as trained
from gpu_task_scheduler.config_manager import ConfigManager
from gpu_task_scheduler.gpu_task import GPUTask

class CrossTask(GPUTask):
    def main(self):
        manager = ConfigManager(trained)
        scores = []
        while manager.get_num_left_config() > 0:
            other = manager.get_next_config()
            if other["config"] == self._config["own"]["config"]:
                continue
            with open(os.path.join(other["work_dir"], "final_metrics.pkl"), "rb") as file:
                scores.append((other["work_dir"], pickle.load(file)["score"]))
        with open(os.path.join(self._work_dir, "cross_evaluation.pkl"), "wb") as file:
            pickle.dump(scores, file, protocol=2)
"""

CROSS_CONFIG = """
from config import config as trained
from gpu_task_scheduler.config_manager import ConfigManager

manager = ConfigManager(trained)
own = [manager.get_next_config() for _ in range(manager.get_num_left_config())]
config = {
    "scheduler_config": {"gpu": ["0"], "force_rerun": True, "log_file": "worker_mc.log", "temp_folder": "temp",
                         "scheduler_log_file_path": "scheduler_mc.log", "ignored_keys_for_folder_name": ["own"]},
    "test_config": [{**{key: [value] for key, value in one["config"].items()}, "own": [one]} for one in own],
}
"""

COLLECT = """
import os, pickle
from config import config
from gpu_task_scheduler.config_manager import ConfigManager

manager = ConfigManager(config)
while manager.get_num_left_config() > 0:
    one = manager.get_next_config()
    with open(os.path.join(one["work_dir"], "final_metrics.pkl"), "rb") as file:
        print(one["config"]["run"], one["config"]["cr"], pickle.load(file)["score"])
"""


def test_a_project_like_infogan_cr_runs(project: Project) -> None:
    """Three phases in the same folders, tasks that read the folders of others, and a script that collects."""
    keys = {
        "gpu": ["0", "1"],
        "temp_folder": "temp",
        "scheduler_log_file_path": "scheduler.log",
        "log_file": "worker.log",
    }
    grid = [{"run": [1, 2], "cr": [2.0, 3.0]}]
    project.configure({"scheduler_config": keys, "test_config": grid})
    again = {
        **keys,
        "force_rerun": True,
        "log_file": "worker_metrics.log",
        "scheduler_log_file_path": "scheduler_metrics.log",
    }
    project.configure({"scheduler_config": again, "test_config": grid}, "config_final_metrics.py")
    project.write("config_mc.py", CROSS_CONFIG)
    for name, text in {"gan_task": GAN_TASK, "metrics_task": METRICS_TASK, "cross_task": CROSS_TASK}.items():
        project.write(f"{name}.py", text)
    project.write("collect.py", COLLECT)
    project.write("main.py", MAIN.format(config="config", module="gan_task", task="GANTask"))
    project.write(
        "main_metrics.py", MAIN.format(config="config_final_metrics", module="metrics_task", task="MetricsTask")
    )
    project.write("main_mc.py", MAIN.format(config="config_mc", module="cross_task", task="CrossTask"))
    for script, places in (("main.py", 2), ("main_metrics.py", 2), ("main_mc.py", 1)):
        done = project.run(script)
        assert verbs(console(done)) == ["finished"] * places + ["finishes"] * 4 + ["receives"] * 4, done.stderr
    assert project.run("collect.py").stdout == "1 2.0 2.0\n1 3.0 3.0\n2 2.0 4.0\n2 3.0 6.0\n"
    results = project.folder / "results"
    assert sorted(path.name for path in results.iterdir()) == [
        f"cr-{cr},run-{run}," for cr in (2.0, 3.0) for run in (1, 2)
    ]
    scores = pickle.loads((results / "cr-2.0,run-1," / "cross_evaluation.pkl").read_bytes())
    assert sorted(score for _, score in scores) == [3.0, 4.0, 6.0]
    # Training again finds everything done, whatever the other phases have left there.
    assert verbs(console(project.run())) == ["finished"] * 2 + ["receives"] * 4 + ["skips"] * 4


def test_a_second_phase_that_fails_does_not_train_again(project: Project) -> None:
    project.write("gan_task.py", GAN_TASK)
    project.write("metrics_task.py", METRICS_TASK.replace("score = float", "raise KeyError; score = float"))
    project.configure({"scheduler_config": {"gpu": ["0"]}, "test_config": [{"run": [1], "cr": [2.0]}]})
    again = {"gpu": ["0"], "force_rerun": True, "log_file": "worker_metrics.log"}
    project.configure({"scheduler_config": again, "test_config": [{"run": [1], "cr": [2.0]}]}, "config_metrics.py")
    project.write("main.py", MAIN.format(config="config", module="gan_task", task="GANTask"))
    project.write("main_metrics.py", MAIN.format(config="config_metrics", module="metrics_task", task="MetricsTask"))
    project.run()
    assert verbs(console(project.run("main_metrics.py"))) == ["fails", "finished", "receives"]
    assert verbs(console(project.run())) == ["finished", "receives", "skips"]


# -- DoppelGANger

DOPPEL_TASK = """
import os
from gpu_task_scheduler.gpu_task import GPUTask

class GANTask(GPUTask):
    def main(self):
        import sys
        sys.path.append("..")
        from gan.network import weights
        with open(os.path.join("..", "data", self._config["dataset"])) as file:
            print(file.read())
        with open(os.path.join(self._work_dir, "checkpoint"), "w") as file:
            file.write(weights)
"""

DOPPEL_GENERATE = """
import os
from gpu_task_scheduler.gpu_task import GPUTask

class GANGenerateTask(GPUTask):
    def main(self):
        with open(os.path.join(self._work_dir, "checkpoint")) as file:
            weights = file.read()
        os.makedirs(os.path.join(self._work_dir, "generated_samples"))
        with open(os.path.join(self._work_dir, "generated_samples", "0"), "w") as file:
            file.write(f"from {weights}")
"""


def test_a_project_like_doppelganger_runs(project: Project) -> None:
    """A script in a separate folder, everything else beside that folder, and a phase that finds checkpoints."""
    keys = {"gpu": ["0"], "config_string_value_maxlen": 1000, "result_root_folder": "../results"}
    grid = [{"dataset": ["web"], "epoch": [400], "run": [0, 1], "aux_disc": [True], "epoch_checkpoint_freq": [1]}]
    for name, text in {
        "data/web": "the data",
        "gan/__init__.py": "",
        "gan/network.py": "weights = 'w'\n",
        "example_training/gan_task.py": DOPPEL_TASK,
        "example_training/main.py": MAIN.format(config="config", module="gan_task", task="GANTask"),
        "example_generating/gan_generate_task.py": DOPPEL_GENERATE,
    }.items():
        project.write(name, text)
    project.configure({"scheduler_config": keys, "test_config": grid}, "example_training/config.py")
    generating = {
        **keys,
        "force_rerun": True,
        "log_file": "generate.log",
        "scheduler_log_file_path": "generate_all.log",
    }
    project.configure({"scheduler_config": generating, "test_config": grid}, "example_generating/config_generate.py")
    project.write(
        "example_generating/main_generate.py",
        MAIN.format(config="config_generate", module="gan_generate_task", task="GANGenerateTask"),
    )
    for folder, script in (("example_training", "main.py"), ("example_generating", "main_generate.py")):
        done = project.run(script, cwd=folder)
        assert verbs(console(done)) == ["finished", "finishes", "finishes", "receives", "receives"], done.stderr
    folder = project.folder / "results" / "aux_disc-True,dataset-web,epoch-400,epoch_checkpoint_freq-1,run-1,"
    assert (folder / "generated_samples" / "0").read_text() == "from w"
    assert (folder / "worker.log").read_text() == "the data\n"
    assert (folder / "generate.log").read_text() == ""


# -- BSN


def test_480_instances_in_450_folders(project: Project) -> None:
    """Blocks that overlap: an instance with an existing folder is skipped, even while it still runs."""
    project.write(
        "bsn_task.py",
        "import os\nfrom gpu_task_scheduler.gpu_task import GPUTask\n"
        "class BSNTask(GPUTask):\n    def main(self):\n"
        "        with open(os.path.join(self._work_dir, 'count'), 'a') as file:\n            file.write('x')\n",
    )
    grid = [{"width": list(range(15)), "run": list(range(10))}, {"width": list(range(12, 45)), "run": list(range(10))}]
    project.configure({"scheduler_config": {"gpu": [str(gpu) for gpu in range(4)]}, "test_config": grid})
    project.write("main.py", MAIN.format(config="config", module="bsn_task", task="BSNTask"))
    said = console(project.run(patience_s=10 * PATIENCE_S))
    assert sum(" finishes " in line for line in said) == 450
    assert sum(" skips " in line for line in said) == 30
    folders = list((project.folder / "results").iterdir())
    assert len(folders) == 450
    assert {(folder / "count").read_text() for folder in folders} == {"x"}


# -- services


SERVICE = """
import json, sys, threading
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
from tasks.train import Task

def handle(request, answers):
    scheduler = GPUTaskScheduler(json.loads(request), Task)
    scheduler.start()
    answers.append(scheduler.report.finished)

answers = []
requests = [json.dumps({"scheduler_config": {"gpu": ["0"], "result_root_folder": f"results{n}"},
                        "test_config": [{"lr": [0.1, 0.2]}]}) for n in range(3)]
threads = [threading.Thread(target=handle, args=(request, answers)) for request in requests]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(answers)
"""


def test_a_service_that_makes_a_scheduler_per_request_runs(project: Project) -> None:
    """Several in the threads of one process, on one GPU, with the class in a package and from JSON."""
    project.write("tasks/__init__.py", "")
    project.write("tasks/helpers.py", "def note(path, value):\n    open(path, 'w').write(str(value))\n")
    project.write(
        "tasks/train.py",
        "import os\nfrom gpu_task_scheduler.gpu_task import GPUTask\nfrom .helpers import note\n"
        "class Task(GPUTask):\n    def main(self):\n"
        "        note(os.path.join(self._work_dir, 'lr'), self._config['lr'])\n",
    )
    project.write("service.py", SERVICE)
    done = project.run("service.py")
    assert done.stdout == "[2, 2, 2]\n", done.stderr
    assert json.loads((project.folder / "results2" / "lr-0.2," / "lr").read_text()) == 0.2


@pytest.mark.parametrize("how", ["script", "module"])
def test_a_project_in_one_file_with_variables_runs(project: Project, how: str) -> None:
    """The class and the values are defined in the script, and the task starts in a fresh interpreter."""
    project.write("app/__init__.py", "")
    project.write("app/names.py", "EXTRA = 'x'\n")
    relative = "from .names import EXTRA\n" if how == "module" else "from app.names import EXTRA\n"
    project.write(
        "app/run.py" if how == "module" else "run.py",
        "import os\nfrom gpu_task_scheduler.gpu_task import GPUTask\n"
        f"from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n{relative}"
        "class Thing:\n    def __init__(self, value): self.value = value\n"
        "class Task(GPUTask):\n"
        "    def required_env(self):\n        return {'EXTRA': EXTRA}\n"
        "    def main(self):\n        print(os.environ['EXTRA'], self._config['thing'].value)\n"
        "print('before')\n"
        "config = {'scheduler_config': {'gpu': ['0']}, 'global_config': {'thing': Thing(7)}}\n"
        "GPUTaskScheduler(config, Task).start()\nprint('after')\n",
    )
    if how == "module":
        project.write("go.py", "import runpy\nrunpy.run_module('app.run', run_name='__main__', alter_sys=True)\n")
    done = project.run("go.py" if how == "module" else "run.py")
    assert verbs(console(done)) == ["finished", "finishes", "receives"], done.stderr
    # The code before the scheduler is run to find the class; the code after it is not.
    assert "before" in done.stdout
    assert done.stdout.count("after") == 1
    assert (project.folder / "results" / "worker.log").read_text().endswith("x 7\n")


def test_values_defined_in_the_script_work_with_a_class_of_a_module(project: Project) -> None:
    project.write(
        "run.py",
        "from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n"
        "from my_gpu_task import MyGPUTask\n"
        "class Thing: pass\n"
        "config = {'scheduler_config': {'gpu': ['0']}, 'test_config': [{'a': [1], 'env': [{'EXTRA': 'x'}]}],\n"
        "          'global_config': {'thing': Thing()}}\n"
        "if __name__ == '__main__':\n    GPUTaskScheduler(config, MyGPUTask).start(raise_on_failure=True)\n",
    )
    done = project.run("run.py")
    assert done.returncode == 0, project.log("a-1,env-{'EXTRA':'x'},")
