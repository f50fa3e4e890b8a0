"""How jobs, GPUs and tables show in a REPL and in a notebook.

The texts come from programs and from other users: unprintable characters are escaped, and so is HTML. Showing
something never raises, never starts a daemon, and waits at most `PATIENCE_S` for an answer.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dibs.client import connection, safe_text
from dibs.client.answers import Gpu, Job
from dibs.errors import DibsError
from dibs.model import units

#: Seconds to wait for an answer.
PATIENCE_S = 2.0
#: Rows of a table or a list; the rest is counted.
MOST_ROWS = 50
#: Characters of a cell.
WIDEST = 80
JOB_TITLES = ("job", "name", "state", "GPU", "submitted", "command")
GPU_TITLES = ("GPU", "name", "state", "memory", "held by")


def ask(path: str, query: Sequence[tuple[str, str]] = ()) -> Any:
    """Return the answer of a running daemon; None if there is none soon."""
    try:
        client = connection.connect(os.environ)
        client.may_start = False
        return client.get(path, query, patience_s=PATIENCE_S, is_poll=True)
    except (DibsError, OSError):
        return None


def job_line(job: Job) -> str:
    """Return a job in one line: `<Job 12 vit running on GPU 0>`."""
    parts = [f"Job {job['id']}", cell(job["name"]), job["state"]]
    if job["gpu_indices"] and job["finished_at"] is None:
        parts.append(f"on {units.name_gpus(job['gpu_indices'])}")
    if job["exit_code"]:
        parts.append(f"(exit code {job['exit_code']})")
    return f"<{' '.join(filter(None, parts))}>"


def job_row(job: Job) -> list[object]:
    """Return a job as a row under `JOB_TITLES`."""
    devices = ", ".join(map(str, job["gpu_indices"]))
    return [job["id"], job["name"], job["state"], devices, job["submitted_at"], job["command"]]


def gpu_line(gpu: Gpu) -> str:
    """Return a GPU in one line: `<GPU 0 NVIDIA A100 free>`."""
    who = _holders(gpu)
    return f"<GPU {gpu['index']} {cell(gpu['name'])} {gpu['state']}{f' by {who}' if who else ''}>"


def gpu_row(gpu: Gpu) -> list[object]:
    """Return a GPU as a row under `GPU_TITLES`."""
    sizes = [units.format_size(size) for size in (gpu["memory_used"], gpu["memory_total"]) if size is not None]
    return [gpu["index"], gpu["name"], gpu["state"], " of ".join(sizes), _holders(gpu)]


def _holders(gpu: Gpu) -> str:
    who = ((holder["user"] or "?", holder["job"] and f"job {holder['job']}") for holder in gpu["holders"])
    return ", ".join(cell(" ".join(filter(None, words))) for words in who)


def lines(items: Sequence[str], left: int = 0) -> str:
    """Return a list with one item per line; `left` more are counted."""
    more = [f"... {left} more"] if left else []
    return "[" + ",\n ".join([*items, *more]) + "]"


def states(counts: Mapping[str, int]) -> str:
    """Return the number of runs per state: `3 done, 1 running`."""
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def cell(value: object) -> str:
    """Return a value as the text of a cell: one line, not too long, numbers short."""
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else safe_text.clean(str(value))
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def text_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with aligned columns."""
    cells = [[cell(each) for each in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def html_table(titles: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table as HTML, without styles or scripts."""
    head = "".join(f"<th>{html.escape(cell(title))}</th>" for title in titles)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell(each))}</td>' for each in row)}</tr>" for row in rows
    )  # fmt: skip
    named = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
