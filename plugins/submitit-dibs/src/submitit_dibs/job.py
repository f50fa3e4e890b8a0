"""`DibsJob`, the handle that submitit gives to users, and `JobWatcher`, which asks dibs for the states of all jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from submitit.core import core, logger
from submitit.core.job_environment import JobEnvironment

if TYPE_CHECKING:
    import dibs

R = TypeVar("R", covariant=True)

#: The state of a job in Slurm's words, which programs written for submitit compare with.
STATES = {
    "held": "PENDING", "queued": "PENDING",
    "starting": "RUNNING", "running": "RUNNING", "paused": "RUNNING", "stopping": "RUNNING",
    "done": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED", "timeout": "TIMEOUT", "lost": "NODE_FAIL",
}  # fmt: skip
UNFINISHED = {"PENDING", "RUNNING", "UNKNOWN"}
#: Seconds for which an answer about all jobs is good.
FRESH_S = 1.0
#: Seconds between TERM, which submitit ignores, and KILL when a job is cancelled.
CANCEL_GRACE_S = 2.0


class JobWatcher(core.InfoWatcher):
    """Knows the states of all jobs of this program, from one request."""

    def update_if_long_enough(self, mode: str) -> None:
        """Ask unless the last answer is fresh; `force` always asks, `cache` never."""
        if mode == "force" or (mode == "standard" and time.time() - self._last_status_check > FRESH_S):
            self.update()

    def update(self) -> None:
        """Ask for the states of the jobs that have not finished; without an answer those known so far stay."""
        from dibs.errors import MachineError

        self._num_calls += 1
        try:
            for job_id, state in _states(self._registered - self._finished).items():
                self._info_dict[job_id] = {"JobID": job_id, "State": STATES[state]}
                if STATES[state] not in UNFINISHED:
                    self._finished.add(job_id)
        except MachineError as error:
            logger.get_logger().warning("The states of jobs may be out of date: %s", error)
        self._last_status_check = time.time()

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return the state of a job in Slurm's words."""
        return self.get_info(job_id, mode).get("State", "UNKNOWN")

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Return whether a job has ended."""
        return self.get_state(job_id, mode) not in UNFINISHED


def _states(ids: set[str]) -> dict[str, str]:
    """Return the states of jobs, with two requests, and one for each that has ended since it was asked for."""
    import dibs

    if not ids:
        return {}
    word = ",".join(sorted(ids, key=int))
    states = {str(job.id): "running" for job in dibs.jobs(f"{word}+active")}
    states |= {str(job.id): "queued" for job in dibs.jobs(f"{word}+queued", f"{word}+held")}
    for job_id in ids - states.keys():
        try:
            states[job_id] = dibs.job(int(job_id)).state
        except dibs.errors.NotFound:
            # Deleted, so it had ended.
            states[job_id] = "done"
    return states


class DibsJob(core.Job[R]):
    """A submitted function; its id is that of the job in dibs."""

    watcher = JobWatcher()
    # A job that has ended has written its result before: nothing to wait for.
    _results_timeout_s = 1

    @property
    def job(self) -> dibs.Job:
        """Return the job in dibs."""
        import dibs

        return dibs.Job(int(self.job_id))

    def wait(self) -> None:
        """Wait until the job has ended, without polling."""
        from dibs.errors import NotFound

        try:
            self.job.wait()
        except NotFound:
            # Deleted; its result is still in the folder.
            pass
        self.watcher.update()

    def cancel(self, check: bool = True) -> None:
        """Cancel the job; submitit ignores TERM, so it is killed after two seconds. A finished one is not changed."""
        from dibs.errors import DibsError

        try:
            self.job.cancel(grace=CANCEL_GRACE_S)
        except DibsError:
            if check:
                raise

    def _interrupt(self, timeout: bool = False) -> None:
        """Send the signal of a preemption, for tests."""
        self.job.kill(JobEnvironment._usr_sig())

    def get_info(self, mode: str = "force") -> dict[str, Any]:
        """Return the state of the job."""
        return self.watcher.get_info(self.job_id, mode=mode)
