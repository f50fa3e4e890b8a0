"""The engines of the settings: which module talks to which kind of cluster.

To add an engine: a module here with `make(settings, environ)`, which returns a `protocol.Engine`, and a row in
`MODULES`. A module is loaded only if the settings name an engine of its kind. One thread makes all calls of one engine;
`runner.guardian` is the process that it must start on a node (`protocol.Start.argv`).

Apart: It is where an engine is added.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from dibs.engines.protocol import Engine
from dibs.system.configuration.engines import EngineSettings

MODULES = {"slurm": "dibs.engines.slurm", "ray": "dibs.engines.ray"}


def make(settings: EngineSettings, environ: Mapping[str, str]) -> Engine:
    """Return the engine of complete settings, without asking the cluster anything."""
    module = importlib.import_module(MODULES[settings.kind])
    engine: Engine = module.make(settings, environ)
    return engine
