"""dibs: call dibs on a GPU.

    job = dibs.submit("python train.py --lr 0.1", gpus=1)
    job.wait()
    print(job.state, job.log())

Importing this package is cheap and needs only the standard library; names load on first use. What programs use inside
a job (`INSIDE_JOBS`) works from Python 3.9 on, the rest from 3.11 on.
"""

import sys

#: True for type checkers. Not written as False: jedi, which completes in editors, would skip the names below.
TYPE_CHECKING = not __name__
if TYPE_CHECKING:
    from dibs import errors as errors
    from dibs import optuna as optuna
    from dibs.python_api.calls.joblib_backend import register_joblib as register_joblib
    from dibs.python_api.executor import Executor as Executor
    from dibs.python_api.inside_job import checkpoint_dir as checkpoint_dir
    from dibs.python_api.inside_job import params as params
    from dibs.python_api.inside_job import report as report
    from dibs.python_api.job_list import JobList as JobList
    from dibs.python_api.job_list import jobs as jobs
    from dibs.python_api.jobs import Job as Job
    from dibs.python_api.jobs import gpus as gpus
    from dibs.python_api.jobs import job as job
    from dibs.python_api.lease import lease as lease
    from dibs.python_api.on_stop import is_stopping as is_stopping
    from dibs.python_api.on_stop import on_stop as on_stop
    from dibs.python_api.results import Results as Results
    from dibs.python_api.results import results as results
    from dibs.python_api.submission import submit as submit
    from dibs.python_api.submission import submit_many as submit_many
    from dibs.python_api.sweep import Sweep as Sweep
    from dibs.version import __version__ as __version__

#: Public names and the modules that define them; an empty string: the name is itself a module.
_HOMES = {
    "__version__": "version",
    "Executor": "python_api.executor",
    "Job": "python_api.jobs",
    "JobList": "python_api.job_list",
    "Results": "python_api.results",
    "Sweep": "python_api.sweep",
    "checkpoint_dir": "python_api.inside_job",
    "errors": "",
    "gpus": "python_api.jobs",
    "is_stopping": "python_api.on_stop",
    "job": "python_api.jobs",
    "jobs": "python_api.job_list",
    "lease": "python_api.lease",
    "on_stop": "python_api.on_stop",
    "optuna": "",
    "params": "python_api.inside_job",
    "register_joblib": "python_api.calls.joblib_backend",
    "report": "python_api.inside_job",
    "results": "python_api.results",
    "submit": "python_api.submission",
    "submit_many": "python_api.submission",
}
__all__ = sorted(_HOMES)
#: What works before Python 3.11, and the modules that differ there.
INSIDE_JOBS = ("__version__", "checkpoint_dir", "errors", "is_stopping", "lease", "on_stop", "params", "report")
_OLD_HOMES = {"lease": "python_api.lease_command"}


# Not for type checkers: they would believe that any name exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'dibs' has no attribute '{name}'")
        if sys.version_info < (3, 11):
            if name not in INSIDE_JOBS:
                have = ".".join(map(str, sys.version_info[:2]))
                raise ImportError(
                    f"dibs.{name} needs Python 3.11 or newer, this is {have}; the command `dibs` does the same."
                )
            home = _OLD_HOMES.get(name, home)
        # Not importlib: runners load this package too and should not pay for it.
        __import__(f"dibs.{home or name}")
        module = sys.modules[f"dibs.{home or name}"]
        if not home:
            return module
        found: object = getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
