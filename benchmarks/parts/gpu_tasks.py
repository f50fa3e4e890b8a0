"""A hundred tasks that do nothing through `GPUTaskScheduler`, on four slots, beside a model of the old tool.

The original is on no package index and does not run on Python 3.12, so it is not measured itself. The model does what
that did at least: one process a slot that takes instances in turn, and for each a pickle and a fresh interpreter, which
loads the task by its path. It leaves out the old tool's manager process and its libraries, so it is quicker than that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks import sandboxes
from benchmarks.errors import Failed
from benchmarks.plans import SLOTS, Plan, tell
from benchmarks.sandboxes import Sandbox
from benchmarks.series import Book, Key

NAME = "gpu-tasks"
TITLE = "A hundred GPUTask instances that do nothing"
OURS, MODEL = "dibs-compat", "model of the original"
OLD = "the original took 2.9 s for 100 tasks (observed once, on another machine of two cores)"

TASK = """
import os
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def main(self):
        open(os.path.join(self._work_dir, "done"), "w").close()
"""

CONFIG = "config = {'scheduler_config': {'gpu': %r}, 'test_config': [{'run': range(%d), 'lr': [0.1]}]}\n"

MAIN = """
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
from config import config
from my_gpu_task import MyGPUTask

GPUTaskScheduler(config=config, gpu_task_class=MyGPUTask).start(raise_on_failure=True)
"""

MODEL_MAIN = """
import multiprocessing, os, pickle, subprocess, sys
from config import config
from my_gpu_task import MyGPUTask
from gpu_task_scheduler.config_manager import ConfigManager

START = '''
import importlib.util, pickle, sys
spec = importlib.util.spec_from_file_location(sys.argv[2], sys.argv[3])
module = sys.modules[sys.argv[2]] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
pickle.load(open(sys.argv[1], "rb")).main()
'''

def work(gpu, lock, taken):
    manager = ConfigManager(config)
    seen = 0
    while True:
        with lock:
            number = taken.value
            taken.value += 1
        while seen <= number:
            instance, seen = manager.get_next_config(), seen + 1
        if instance["config"] is None:
            return
        os.makedirs(instance["work_dir"])
        with open(f"temp/{gpu}.pkl", "wb") as file:
            pickle.dump(MyGPUTask(instance["config"], instance["work_dir"]), file)
        words = [sys.executable, "-c", START, f"temp/{gpu}.pkl", "my_gpu_task", os.path.abspath("my_gpu_task.py")]
        with open(os.path.join(instance["work_dir"], "worker.log"), "w") as log:
            subprocess.run(words, env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu}, stdout=log, stderr=log, check=True)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    lock, taken = context.Lock(), context.Value("i", 0)
    slots = [context.Process(target=work, args=(gpu, lock, taken)) for gpu in config["scheduler_config"]["gpu"]]
    for slot in slots:
        slot.start()
    for slot in slots:
        slot.join()
    sys.exit(any(slot.exitcode for slot in slots))
"""


def measure(plan: Plan, book: Book) -> None:
    """Run both, in turn, round by round."""
    book.note(NAME, OLD)
    for number in range(plan.sizes.rounds):
        tell(f"round {number + 1} of {plan.sizes.rounds}")
        scripts = [(OURS, MAIN), (MODEL, MODEL_MAIN)]
        for subject, script in scripts[:: 1 if number % 2 else -1]:
            try:
                with sandboxes.opened(plan.work) as box:
                    _one(book, box, subject, script, plan.sizes.gpu_tasks)
            except Failed as failure:
                book.note(NAME, f"{subject}: {failure}")


def _one(book: Book, box: Sandbox, subject: str, script: str, count: int) -> None:
    leases = box.folder / "leases"
    leases.mkdir()
    # Not installed beside the peers: dibs-compat has the name of one of them.
    box.environ.update(DIBS_LEASE_DIR=str(leases), PYTHONPATH=str(sandboxes.ROOT / "compat" / "src"))
    gpus = [str(gpu) for gpu in range(SLOTS)]
    for name, text in {"my_gpu_task": TASK, "config": CONFIG % (gpus, count), "main": script}.items():
        box.write(f"{name}.py", [text])
    began = time.perf_counter()
    with open(box.folder / "stderr", "wb") as err:
        process = subprocess.Popen([sys.executable, "main.py"], env=box.environ, cwd=box.folder, stderr=err)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    done = len(list(box.folder.glob("results/*/done")))
    if process.returncode or done != count:
        raise Failed(f"exited {process.returncode} with {done} of {count} tasks done")
    book.add(Key(NAME, subject, "all"), "s", wall_s)
    book.add(Key(NAME, subject, "CPU per task"), "ms", (used.ru_utime + used.ru_stime) * 1000 / count)
