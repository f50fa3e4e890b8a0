"""A program that makes many calls through one executor, and prints how many seconds that took: `calls` runs it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

#: Seconds between two looks at the jobs of submitit.
LOOK_EVERY_S = 0.01
#: Calls that share a job, where they do.
CHUNK = 25


def through_dibs(count: int, slots: int, chunksize: int = 1) -> Iterable[int]:
    """Let every call be a job on a GPU of its own."""
    from functions import nothing

    import dibs

    with dibs.Executor(gpus=1, max_jobs=slots) as pool:
        return list(pool.map(nothing, range(count), chunksize=chunksize))


def through_chunks(count: int, slots: int) -> Iterable[int]:
    """Let several calls share a job."""
    return through_dibs(count, slots, CHUNK)


def through_processes(count: int, slots: int) -> Iterable[int]:
    """Let warm processes do all calls."""
    from functions import nothing

    with ProcessPoolExecutor(slots) as pool:
        return list(pool.map(nothing, range(count)))


def through_submitit(count: int, slots: int) -> Iterator[int]:
    """Start a job when another has ended; submitit itself would start all at once."""
    import submitit
    from functions import nothing

    executor = submitit.LocalExecutor(folder=Path("submitit-logs"))
    left, under_way = list(range(count)), []
    while left or under_way:
        while left and len(under_way) < slots:
            under_way.append(executor.submit(nothing, left.pop()))
        for job in [job for job in under_way if job.done(force_check=True)]:
            under_way.remove(job)
            yield job.result()
        time.sleep(LOOK_EVERY_S)


THROUGH = {
    "dibs": through_dibs,
    "dibs-chunks": through_chunks,
    "processes": through_processes,
    "submitit": through_submitit,
}


def main(word: str, count: int, slots: int) -> None:
    """Make the calls, and see that each of them gave what it should."""
    began = time.monotonic()
    found = sorted(THROUGH[word](count, slots))
    took_s = time.monotonic() - began
    if found != list(range(count)):
        sys.exit(f"expected the results of {count} calls, got {len(found)}, or wrong ones")
    print(took_s)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
