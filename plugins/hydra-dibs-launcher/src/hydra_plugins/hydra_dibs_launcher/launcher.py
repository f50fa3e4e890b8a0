"""`hydra/launcher=dibs`: each run of a multirun is a job of dibs, on GPUs of its own.

The runs of a program are one sweep, identified by their overrides. They are jobs before `launch` waits for the first of
them, so they continue if the launching program ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.hydra_dibs_launcher import config as config
from hydra_plugins.hydra_dibs_launcher import run

if TYPE_CHECKING:
    from concurrent.futures import Future

    import dibs

log = logging.getLogger(__name__)

#: Characters of a sweep's default name that stand for the folder of its program.
DIGEST = 6
#: Longest name of a job.
LONGEST_NAME = 100


class DibsLauncher(Launcher):
    """Queues runs and waits for them."""

    def __init__(self, name: str | None, at_most: int | None, again: bool, **options: Any) -> None:
        self.name = name
        self.at_most = at_most
        self.again = again
        #: Options of `dibs.Executor`.
        self.options = options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what `launch` needs."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Queue one job for each list of overrides; return their results in the same order."""
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        pool, name = self._pool()
        task = run.Task.of(self.hydra_context, self.config, self.task_function)
        log.info("Queueing %d runs in dibs: dibs results %s", len(job_overrides), name)
        futures = []
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            shown = " ".join(filter_overrides(overrides))
            log.info("\t#%d : %s", number, shown)
            label = f"{self.config.hydra.job.name} {shown}".strip()[:LONGEST_NAME]
            params = run.parameters(overrides)
            futures.append(pool.submit_call(run.run, (task, list(overrides), number), name=label, params=params))
        # From here on they are jobs.
        pool.shutdown(wait=False)
        try:
            return [self._result(future, overrides) for future, overrides in zip(futures, job_overrides, strict=True)]
        except KeyboardInterrupt:
            project = self.options.get("project") or "default"
            log.info("Interrupted. The runs continue; to stop them: dibs cancel sweep:%s/%s", project, name)
            raise

    def _pool(self) -> tuple[dibs.Executor, str]:
        """Return an executor for the runs, and the name of their sweep."""
        # Hydra loads this module in every program, with this launcher or without.
        import dibs

        name = self.name or run.default_name(self.config, DIGEST)
        options = {word: _plain(value) for word, value in self.options.items() if value is not None}
        return dibs.Executor(max_jobs=self.at_most, sweep=name, again=not self.again, **options), name

    def _result(self, future: Future[JobReturn], overrides: Sequence[str]) -> JobReturn:
        """Return the result of a run; a failed one has its exception, which Hydra raises when it is looked at."""
        try:
            return future.result()
        except Exception as error:  # noqa: BLE001 (whatever the task function raised)
            failed = JobReturn(overrides=list(overrides), status=JobStatus.FAILED)
            failed.return_value = error
            return failed


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
