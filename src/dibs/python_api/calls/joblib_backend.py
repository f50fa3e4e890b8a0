"""A backend of joblib whose tasks are jobs: `dibs.register_joblib()`, then `joblib.parallel_config("dibs", gpus=1)`.

joblib is imported only here; programs that use this have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joblib.parallel import Parallel, register_parallel_backend
from joblib.parallel import ParallelBackendBase as Base

from dibs.python_api import jobs
from dibs.python_api.calls import labels
from dibs.python_api.executor import Executor
from dibs.python_api.futures import Future, cancel_all

NAME = "dibs"


class DibsBackend(Base):  # type: ignore[misc]
    """Runs each task of a `Parallel` as a job; the options are those of `dibs.submit`."""

    #: joblib then waits for nothing: the callback of a future is called when its job has ended.
    supports_retrieve_callback = True

    def __init__(self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **options: Any):
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._options = options
        self._pool: Executor | None = None
        self._futures: list[Future[Any]] = []

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many tasks run at once; -1: as many as this machine has GPUs for."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        return 1 if n_jobs is None else jobs.slots(self._options.get("gpus"))

    def configure(self, n_jobs: int = 1, parallel: Parallel | None = None, **_: Any) -> int:
        """Prepare for the tasks of one `Parallel`; return how many run at once."""
        self.parallel = parallel
        at_once = self.effective_n_jobs(n_jobs)
        self._pool = Executor(max_jobs=at_once, **self._options)
        self._futures = []
        return at_once

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        """Submit a batch of tasks as one job."""
        assert self._pool is not None
        future = self._pool._submit(func, (), {}, _label(func))
        self._futures = [each for each in self._futures if not each.done()]
        self._futures.append(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return what the tasks of a job returned, or raise what one of them raised."""
        return out.result()

    def terminate(self) -> None:
        """Accept no more tasks."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the tasks that wait, and stop those that run."""
        left = [future for future in self._futures if not future.done()]
        cancel_all(left)
        for future in left:
            if not future.done():
                future.job.cancel()
        self.terminate()
        if ensure_ready and self.parallel is not None:
            self.configure(self.parallel.n_jobs, self.parallel)


def _label(batch: Any) -> str:
    """Return the first task of a batch as text, for the table of jobs."""
    items = getattr(batch, "items", None)
    if not items:
        return labels.label(batch, (), {})
    function, args, kwargs = items[0]
    first = labels.label(function, args, kwargs)
    return f"{first} +{len(items) - 1}" if len(items) > 1 else first


def register_joblib() -> None:
    """Let joblib run tasks as jobs: `with joblib.parallel_config("dibs", n_jobs=4, gpus=1): ...`; scikit-learn too.

    The options are those of `dibs.submit`. `n_jobs` is how many tasks run at once, -1 as many as there are GPUs for.
    joblib puts short tasks together into one job.

    >>> import joblib
    >>> dibs.register_joblib()
    >>> with joblib.parallel_config("dibs", n_jobs=2, gpus=0):
    ...     joblib.Parallel()(joblib.delayed(abs)(x) for x in (-1, -2))
    [1, 2]
    """
    register_parallel_backend(NAME, DibsBackend)
