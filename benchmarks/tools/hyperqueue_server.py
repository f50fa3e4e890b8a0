"""The process that `hyperqueue` talks to: `python -m benchmarks.tools.hyperqueue_server FOLDER SLOTS`.

Reads names of files with commands from stdin and submits each as one job of many tasks. Says `ready` and `submitted`.
"""

from __future__ import annotations

import shlex
import sys

from hyperqueue import Job, LocalCluster  # type: ignore[import-not-found,unused-ignore]
from hyperqueue.cluster import WorkerConfig  # type: ignore[import-not-found,unused-ignore]


def main(folder: str, slots: int) -> None:
    """Serve until stdin ends."""
    with LocalCluster(f"{folder}/server", WorkerConfig(cores=slots)) as cluster:
        client = cluster.client()
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin):
            job = Job(f"{folder}/job-{number}")
            with open(line.strip()) as commands:
                for command in commands:
                    job.program(shlex.split(command))
            client.submit(job)
            print("submitted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
