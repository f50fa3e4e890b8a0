"""The tools that are compared, one module each."""

from __future__ import annotations

from benchmarks.tools import (
    compat_scheduler,
    dibs,
    dibs_pipe,
    gflow,
    gnu_parallel,
    hyperqueue,
    nq,
    simple_gpu_scheduler,
    task_spooler,
    xargs,
)
from benchmarks.tools.tool import Tool

#: In the order of the tables.
ALL: tuple[Tool, ...] = (
    dibs.TOOL,
    dibs_pipe.TOOL,
    compat_scheduler.TOOL,
    simple_gpu_scheduler.TOOL,
    hyperqueue.TOOL,
    gnu_parallel.TOOL,
    xargs.TOOL,
    task_spooler.TOOL,
    nq.TOOL,
    gflow.TOOL,
)
