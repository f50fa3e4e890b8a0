"""The settings of `hydra/launcher=dibs`, as Hydra knows them. None means: as `dibs add` without that option."""

# No postponed annotations: while Hydra scans its plugins, `dataclass` cannot find this module to resolve them.
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore


@dataclass
class DibsLauncherConf:
    """What each run asks for, and how the runs of a launch belong together."""

    _target_: str = "hydra_plugins.hydra_dibs_launcher.launcher.DibsLauncher"
    #: GPUs of each run: a count, or "2:a100".
    gpus: Any = None
    gpu_type: str | None = None
    #: GPU memory that a run needs ("18G"); runs that say so can share a GPU.
    vram: str | None = None
    cpus: int | None = None
    mem: str | None = None
    #: Time limit of each run ("2h").
    time: str | None = None
    retries: int | None = None
    #: A number, or low, normal, high, urgent.
    priority: Any = None
    project: str | None = None
    #: The sweep that the runs belong to, for `dibs results`; by default made from program and folder.
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    #: Runs at the same time, at most.
    at_most: int | None = None
    #: Run only what is missing: a run with the same overrides that is done returns its value.
    again: bool = False


ConfigStore.instance().store(group="hydra/launcher", name="dibs", node=DibsLauncherConf, provider="dibs_launcher")
