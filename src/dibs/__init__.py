"""dibs: call dibs on a GPU.

    job = dibs.submit("python train.py --lr 0.1", gpus=1)
    job.wait()
    print(job.state, job.log())

Importing this package costs nothing and needs only the standard library; names load when they are first used.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs import errors as errors
    from dibs.python_api.executor import Executor as Executor
    from dibs.python_api.handles import Job as Job
    from dibs.python_api.handles import gpus as gpus
    from dibs.python_api.handles import job as job
    from dibs.python_api.handles import jobs as jobs
    from dibs.python_api.handles import submit as submit
    from dibs.python_api.handles import submit_many as submit_many
    from dibs.python_api.inside import checkpoint_dir as checkpoint_dir
    from dibs.python_api.inside import params as params
    from dibs.python_api.inside import report as report
    from dibs.python_api.leased import lease as lease
    from dibs.python_api.stopping import is_stopping as is_stopping
    from dibs.python_api.stopping import on_stop as on_stop
    from dibs.python_api.sweep_handles import Sweep as Sweep
    from dibs.version import __version__ as __version__

#: What users find here, and the module that each comes from; an empty one is a module itself.
_HOMES = {
    "__version__": "version",
    "Executor": "python_api.executor",
    "Job": "python_api.handles",
    "Sweep": "python_api.sweep_handles",
    "checkpoint_dir": "python_api.inside",
    "errors": "",
    "gpus": "python_api.handles",
    "is_stopping": "python_api.stopping",
    "job": "python_api.handles",
    "jobs": "python_api.handles",
    "lease": "python_api.leased",
    "on_stop": "python_api.stopping",
    "params": "python_api.inside",
    "report": "python_api.inside",
    "submit": "python_api.handles",
    "submit_many": "python_api.handles",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dibs' has no attribute '{name}'")
    # The builtin and not importlib: runners load this package too, and pay for nothing.
    __import__(f"dibs.{home or name}")
    module = sys.modules[f"dibs.{home or name}"]
    if not home:
        return module
    found: object = getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
