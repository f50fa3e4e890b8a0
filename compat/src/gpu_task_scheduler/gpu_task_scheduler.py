"""`GPUTaskScheduler`: every instance of a configuration as a task, in parallel on the GPUs that it names.

Importing this module hides the GPUs from the process that does so, until `start` returns, so that a library imported
there does not occupy any (where the script names the class, importing the package has done it). Tasks see theirs.
"""

from __future__ import annotations

import copy
import os
import signal
from typing import Any

from dibs import errors
from dibs.foreground import inherited
from dibs.leases import device_lease
from dibs.model.devices import Inventory
from dibs.system import settings
from dibs_compat import ids
from dibs_compat.gpu_tasks import gpu_visibility, runs, sources
from dibs_compat.gpu_tasks.journals import Journal
from dibs_compat.gpu_tasks.messages import Order, Place
from dibs_compat.gpu_tasks.result_folders import Marks
from dibs_compat.schedule import task
from gpu_task_scheduler.config_manager import Config, ConfigManager

#: Set to 1: a run with failures raises, also in scripts that nobody wants to change.
EXIT_STATUS = "GPU_TASK_EXIT_STATUS"

#: CUDA reads which GPUs it may see once, when it is first used.
CUDA_UP = (
    "this script uses GPUs itself: CUDA was in use before gpu_task_scheduler was imported. "
    'Import gpu_task_scheduler first, or give the class as "module:Class".'
)

gpu_visibility.hide(os.environ, gpu_visibility.is_cuda_up())


class TasksFailed(errors.DibsError):
    """Tasks did not succeed; `report` says which."""

    kind = "tasks_failed"
    exit_code = 1

    def __init__(self, report: runs.Report) -> None:
        super().__init__(report.summary())
        self.report = report


class GPUTaskScheduler:
    """Runs a class of tasks; it may be given as `"module:Class"`, which is imported only where tasks run."""

    def __init__(self, config: Config, gpu_task_class: Any) -> None:
        self._is_read_again = sources.is_read_again(gpu_task_class)
        self._source = sources.source_of_class(gpu_task_class)
        # Defaults are filled in, but not into what the caller has.
        own = {key: copy.deepcopy(value) if key == "scheduler_config" else value for key, value in config.items()}
        self._config_manager = ConfigManager(own)
        self._config = self._config_manager.get_all_scheduler_config()
        self._journal = Journal(self._config["scheduler_log_file_path"])
        #: What became of the instances, after `start`.
        self.report = runs.Report()

    def start(self, raise_on_failure: bool | None = None) -> None:
        """Run all tasks that are not done, and return when they are; failures are logged and in `report`.

        `raise_on_failure` raises `TasksFailed` at the end; without it the variable `GPU_TASK_EXIT_STATUS` decides.
        """
        if self._is_read_again:
            return
        try:
            self._run()
        finally:
            gpu_visibility.show(os.environ)
        is_raised = os.environ.get(EXIT_STATUS) == "1" if raise_on_failure is None else raise_on_failure
        if self.report.failed and is_raised:
            raise TasksFailed(self.report)

    def _run(self) -> None:
        if gpu_visibility.is_cuda_up():
            self._journal.warn(CUDA_UP)
        found, grace_s = ids.inventory(), settings.load(os.environ).grace
        folders = os.getcwd(), self._config["temp_folder"]
        order = Order(self._source, self._places(found), *folders, grace_s, ids.time_limit_s(found))
        marks = Marks(".".join(self._source.key), f"{os.getpid()}-{os.urandom(8).hex()}")
        run = runs.Run(self._config_manager.get_next_config, order, marks, self._config, self._journal)
        self.report = run.report
        run.run()
        if run.stop_signal is not None:
            self._journal.warn("stopped; what has not finished will run next time")
            gpu_visibility.show(os.environ)
            if run.stop_signal == signal.SIGINT:
                raise KeyboardInterrupt
            task.die_by(run.stop_signal)
        elif self.report.failed:
            self._journal.warn(self.report.summary())

    def _places(self, found: Inventory) -> tuple[Place, ...]:
        # Inside a job of dibs its own GPUs need no lease: we would wait for ourselves.
        ours = inherited.devices(device_lease.folder(), found)
        return tuple(
            Place(f"gpu{gpu}", gpu, tuple(key for key in ids.keys(gpu, found) if key not in ours))
            for gpu in self._config["gpu"]
        )
