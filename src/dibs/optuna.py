"""Optuna studies whose trials are jobs: `dibs.optuna.optimize(study, objective, n_trials=40, gpus=1)`.

Needs Optuna, the extra `dibs[search]`; nothing else in `import dibs` loads it.

Apart: It is a public name.
"""

from __future__ import annotations

from dibs.errors import MachineError

try:
    from dibs.python_api.study_driver import optimize as optimize
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "optuna":
        raise
    raise MachineError("dibs.optuna needs Optuna, which is not installed.", "pip install 'dibs[search]'") from None

__all__ = ["optimize"]
