"""One run of a multirun: how it is sent to its job, executed there, and identified by its overrides."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

#: The name of a returned number in `dibs results`.
RESULT = "result"


class Task(NamedTuple):
    """What all runs of a launch have in common."""

    context: HydraContext
    config: DictConfig
    function: TaskFunction
    #: Hydra's global state, which the job has to restore.
    state: Any

    @classmethod
    def of(cls, context: HydraContext, config: DictConfig, function: TaskFunction) -> Task:
        """Return the task with the present state of Hydra."""
        return cls(context, config, function, Singleton.get_state())

    def __repr__(self) -> str:
        return str(self.config.hydra.job.name)


def run(task: Task, overrides: list[str], number: int) -> JobReturn:
    """Run the task function inside a job; raise its exception, so that the job fails as well."""
    setup_globals()
    Singleton.set_state(task.state)
    config = task.context.config_loader.load_sweep_config(task.config, overrides)
    with open_dict(config):
        config.hydra.job.id = os.environ["DIBS_JOB_ID"]
        config.hydra.job.num = number
    HydraConfig.instance().set_config(config)
    done = run_job(
        hydra_context=task.context,
        task_function=task.function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    if done.status is JobStatus.FAILED:
        raise done._return_value
    _report(done.return_value)
    return done


def _report(value: object) -> None:
    """Report the returned number, or the numbers of a returned mapping or sequence."""
    import dibs

    if isinstance(value, Mapping):
        named = dict(value)
    elif isinstance(value, list | tuple):
        named = {f"{RESULT}_{place}": each for place, each in enumerate(value)}
    else:
        named = {RESULT: value}
    for name, each in named.items():
        try:
            dibs.report(**{name: each})
        except (dibs.errors.UserError, TypeError):
            # Not a number, or not a name.
            continue


def parameters(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the overrides of a run as parameters, without those of Hydra itself."""
    parsed = OverridesParser.create().parse_overrides(list(filter_overrides(overrides)))
    return {
        one.get_key_element() if one.is_delete() else one.get_key_element().lstrip("+"): one.value() for one in parsed
    }


def default_name(config: DictConfig, digits: int) -> str:
    """Return the name of the sweep of a program: that of the program, and a digest of its folder and configuration."""
    job = config.hydra.job
    where = f"{config.hydra.runtime.cwd}\0{job.config_name}"
    return f"{job.name}-{hashlib.sha256(where.encode()).hexdigest()[:digits]}"
