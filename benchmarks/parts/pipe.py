"""No-op lines through the tools that read commands from stdin: start, all lines, and the end of the last one."""

from __future__ import annotations

import dataclasses

from benchmarks import runs
from benchmarks.errors import Failed
from benchmarks.plans import SLOTS, Plan
from benchmarks.series import Book, Key
from benchmarks.tools import compat_scheduler, dibs_pipe, gnu_parallel, simple_gpu_scheduler
from benchmarks.tools.tool import Tool

NAME = "pipe"
TITLE = f"No-op lines from stdin on {SLOTS} slots, end to end"
TOOLS = (dibs_pipe.TOOL, compat_scheduler.TOOL, simple_gpu_scheduler.TOOL, gnu_parallel.TOOL)


def measure(plan: Plan, book: Book) -> None:
    """Run the same lines through every tool, round by round."""
    tools = tuple(tool for tool in plan.tools if tool in TOOLS)
    count = plan.sizes.pipe_lines
    failed: set[Tool] = set()
    for _, tool in dataclasses.replace(plan, tools=tools).turns(failed) if tools else ():
        try:
            run = runs.once(plan, tool, [0] * count)
        except Failed as failure:
            book.note(NAME, f"{tool.name}: {failure}")
            failed.add(tool)
            continue
        book.add(Key(NAME, tool.name, "lines/s"), "", count / run.took_s)
        book.add(Key(NAME, tool.name, "CPU per line"), "ms", None if run.cpu_s is None else run.cpu_s * 1000 / count)
