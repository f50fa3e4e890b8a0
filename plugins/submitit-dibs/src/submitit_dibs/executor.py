"""`DibsExecutor`: submit functions as jobs of dibs. All functions of an array are one submission."""

from __future__ import annotations

import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils
from submitit.core.job_environment import JobEnvironment

from submitit_dibs import worker
from submitit_dibs.environment import REQUEUE_CODE, DibsJobEnvironment
from submitit_dibs.job import DibsJob

#: Parameters of `AutoExecutor.update_parameters` that are dibs' own, with the prefix `dibs_`: options of `dibs.submit`.
OPTIONS = {"gpu_ids", "gpu_type", "prefer", "vram", "cpus", "mem", "priority", "project", "tags", "comment"} | {
    "after", "begin", "env", "notify", "retries",
}  # fmt: skip
#: Those with a meaning of their own: the most jobs of an array at once, and seconds between warning and time-out.
OWN = {"at_most", "signal_delay_s"}
#: Seconds before the time-out at which submitit calls `checkpoint()`, as in its other executors.
SIGNAL_DELAY_S = 90
#: How often a job is queued again at most. submitit itself counts time-outs, and ends with an error after the last one.
MOST_REQUEUES = 100
#: What `retries` is for, apart from time-outs.
FAILURES = ("fail", "lost", "oom")
#: Minutes that submitit believes a job may run when it has no limit.
FOREVER_MIN = 60 * 24 * 365 * 10


class DibsExecutor(core.Executor):
    """Runs functions on this machine, each on GPUs of its own."""

    job_class = DibsJob

    def __init__(self, folder: Path | str, max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        self.max_pickle_size_gb = max_pickle_size_gb
        utils.JobPaths.get_first_id_independent_folder(self.folder).mkdir(parents=True, exist_ok=True)

    @classmethod
    def affinity(cls) -> int:
        """Be used only when asked for: `cluster="dibs"`."""
        return 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return OPTIONS | OWN

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        if kwargs.get("nodes", 1) != 1:
            raise ValueError(f"nodes expected 1, got {kwargs['nodes']}: dibs runs jobs on this machine.")
        if kwargs.get("tasks_per_node", 1) < 1:
            raise ValueError(f"tasks_per_node expected a whole number from 1 up, got {kwargs['tasks_per_node']}.")
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        # submitit loads its plugins in every program that uses it, with this one or not.
        import dibs

        pickles = self._dump(delayed_submissions)
        tasks = int(self.parameters.get("tasks_per_node", 1))
        words = [sys.executable, "-u", "-m", "submitit_dibs.worker", str(self.folder)]
        lines = [shlex.join([*words, str(pickle), str(tasks)]) for pickle in pickles]
        before = time.time()
        try:
            queued = dibs.submit_many(lines, **self._options())
        except dibs.errors.DibsError as error:
            raise utils.FailedSubmissionError(str(error)) from error
        return [self._job(str(job.id), pickle, tasks, before) for job, pickle in zip(queued, pickles, strict=True)]

    def _job(self, job_id: str, pickle: Path, tasks: int, before: float) -> core.Job[Any]:
        job: DibsJob[Any] = DibsJob(self.folder, job_id, tasks=range(tasks))
        worker.claim(str(self.folder), str(pickle), job_id)
        for rank in range(tasks):
            # A result in this folder from before this job: its id was used by an earlier queue.
            old = utils.JobPaths(self.folder, job_id, rank).result_pickle
            if old.exists() and old.stat().st_mtime < before:
                old.unlink()
        return job

    def _dump(self, submissions: Sequence[utils.DelayedSubmission]) -> list[Path]:
        """Store the functions; refuse them if they are larger than the user wants."""
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        pickles = []
        for number, submission in enumerate(submissions):
            submission.set_timeout(self.parameters.get("timeout_min", FOREVER_MIN), self.max_num_timeout)
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            submission.dump(pickles[-1])
            size_gb = len(submissions) * pickles[-1].stat().st_size / 1024**3
            if number == 0 and size_gb > self.max_pickle_size_gb:
                pickles[-1].unlink()
                raise RuntimeError(
                    f"expected at most {self.max_pickle_size_gb} GB of functions and arguments, got about "
                    f"{size_gb:.2f} GB. Send paths instead, or raise max_pickle_size_gb."
                )
        return pickles

    def _options(self) -> dict[str, Any]:
        """Return the parameters as options of `dibs.submit_many`."""
        given = self.parameters
        options = {name: given[name] for name in OPTIONS if given.get(name) is not None}
        is_joined = bool(given.get("stderr_to_stdout"))
        environ = {"SUBMITIT_EXECUTOR": DibsJobEnvironment.name(), **dict(options.get("env") or {})}
        options |= {
            "gpus": given.get("gpus_per_node", 0),
            "name": given.get("name", "submitit"),
            "jobs": given.get("at_most"),
            "env": environ | ({"SUBMITIT_DIBS_JOINED": "1"} if is_joined else {}),
            "output": self._log("out"),
            "stderr": None if is_joined else self._log("err"),
        }
        if given.get("timeout_min") is not None:
            delay_s = given.get("signal_delay_s", SIGNAL_DELAY_S)
            options["time"] = f"{given['timeout_min'] * 60:f}s"
            options["signal"] = f"{JobEnvironment.USR_SIG}@{delay_s}s"
        return options | self._retry_options(options.get("retries"))

    def _retry_options(self, retries: int | None) -> dict[str, Any]:
        """Queue a job again when submitit asks for it by its exit code; with `retries` also when it fails."""
        if retries is None:
            return {"retries": MOST_REQUEUES, "retry_on": [str(REQUEUE_CODE)]}
        return {"retries": retries + self.max_num_timeout, "retry_on": [str(REQUEUE_CODE), *FAILURES]}

    def _log(self, kind: str) -> str:
        """Return the path of a log as a template of dibs."""
        path = str(self.folder / f"%j_0_log.{kind}").replace("{", "{{").replace("}", "}}")
        return path.replace("%j", "{id}").replace("%A", "{id}").replace("%t", "0")
