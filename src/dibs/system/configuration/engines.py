"""The tables `[engines.NAME]` and `[projects.NAME]` of the settings: clusters that others operate, and who uses them.

A cluster has a name of the user's choice; `kind` says which module of `engines` talks to it. What is checked here needs
no answer of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dibs.errors import UserError
from dibs.system.configuration import kinds
from dibs.system.configuration.tables import Table, key, keys_of

#: The engine that needs no table: this machine.
LOCAL = "local"
KINDS = ("slurm", "ray")
#: Which jobs go through a broker inside Ray: batches of short ones, all, or none.
BROKER_MODES = ("auto", "always", "never")
#: Names are part of job names, paths and addresses of the page.
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
MOST_NAME = 40


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One cluster, as `[engines.NAME]` describes it; `problem` says what is still missing."""

    name: str
    kind: str = key(kinds.one_of(KINDS), "Type of the cluster: slurm or ray.", "")
    shared: Path | None = key(
        kinds.PATH, "A folder of yours that all nodes see under the same path, for logs and results."
    )
    options: str = key(kinds.ANY_TEXT, 'Options for every job there, such as "-p gpu -A lab" for sbatch.', "")
    python: str = key(kinds.ANY_TEXT, "Python on the nodes, 3.9 or newer. Empty: the one that runs dibs here.", "")
    address: str = key(kinds.ANY_TEXT, "Ray: address of its dashboard, such as http://127.0.0.1:8265.", "")
    token_file: Path | None = key(kinds.PATH, "Ray: file with its token; required if it is not on this machine.")
    #: Empty: the first of the modes.
    broker: str = key(
        kinds.one_of(BROKER_MODES), "Ray: which jobs run through a broker: auto (short ones), always or never.", ""
    )
    conf: Path | None = key(kinds.PATH, "Slurm: slurm.conf of this cluster. Empty: that of this machine.")
    #: None: as `engines.slurm` says.
    reuse: float | None = key(
        kinds.DURATION,
        "Slurm: how long an array task may start further jobs of the same array. Default: 20s; 0s: never.",
    )
    max_sent: int = key(kinds.COUNT, "Maximum number of your jobs that wait or run there. Default: 1000.", 1000)

    @property
    def problem(self) -> str | None:
        """Return why no job can use it; None: nothing is known to be wrong."""
        if not self.kind:
            return f'engines.{self.name}.kind: expected "slurm" or "ray", got nothing'
        if self.shared is None:
            return f"engines.{self.name}.shared: expected a folder that all nodes see, got nothing"
        return _address_problem(self) if self.kind == "ray" else None


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """What holds for the jobs of one project, as `[projects.NAME]` says."""

    name: str
    #: Empty: that of the setting `engine`.
    engine: str = key(kinds.ANY_TEXT, "Engine of the project's jobs that name none.", "")


def _engine(name: str, values: dict[str, Any]) -> EngineSettings:
    # Keys are set one by one (`dibs config set`), so what is missing is no error here.
    if name == LOCAL or not name or len(name) > MOST_NAME or not NAME_CHARACTERS.issuperset(name):
        raise UserError(f'expected a name of small letters, digits, "-" and "_" other than local, got "{name}".')
    return EngineSettings(name, **{key: value for key, value in values.items() if value is not None})


def _address_problem(engine: EngineSettings) -> str | None:
    """Return what is wrong with the address of a Ray; whether it needs a token is for `engines.ray_rest` to say."""
    if _host(engine.address) is None:
        return f'engines.{engine.name}.address: expected http://HOST:PORT, got "{engine.address}"'
    return None


def _host(address: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(address)
        return parts.hostname if parts.scheme in ("http", "https") and parts.port else None
    except ValueError:
        return None


ENGINES = Table("engines", keys_of(EngineSettings), _engine)
PROJECTS = Table("projects", keys_of(ProjectSettings), lambda name, values: ProjectSettings(name, **values))
