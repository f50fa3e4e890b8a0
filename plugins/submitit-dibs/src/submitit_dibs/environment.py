"""What a submitit function learns about its job inside dibs, and how it asks to be queued again."""

from __future__ import annotations

import sys

from submitit.core.job_environment import JobEnvironment

#: A job that ends with this code is queued again. submitit's local executor uses the same one.
REQUEUE_CODE = 144


class DibsJobEnvironment(JobEnvironment):
    """The environment of one task of a job."""

    _env = {
        "job_id": "DIBS_JOB_ID",
        "num_tasks": "SUBMITIT_DIBS_TASKS",
        "num_nodes": "SUBMITIT_DIBS_NODES",
        "node": "SUBMITIT_DIBS_NODE",
        "global_rank": "SUBMITIT_DIBS_RANK",
        "local_rank": "SUBMITIT_DIBS_RANK",
    }

    def _requeue(self, countdown: int) -> None:
        """End the job with the code that queues it again; its function was stored by submitit."""
        print(f"Requeued job {self.job_id} ({countdown} remaining timeouts)", flush=True)
        sys.exit(REQUEUE_CODE)
