"""How the height of the terminal is divided, and the first screen as plain text. Pure.

The first screen appears before Textual is loaded: loading it takes longer than everything else together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from dibs.cli.top import gpu_lines, job_rows, lines
from dibs.cli.top.lines import Marks
from dibs.cli.top.snapshot import Snapshot

#: Lines of a terminal from which the timeline is shown beside the jobs.
TALL = 36
#: Lines of the sentence about the chosen job.
DETAIL_LINES = 2
#: Lines that jobs keep, whatever else is shown.
LEAST_JOBS = 6


class Heights(NamedTuple):
    """Lines of each part; 0: it is not shown."""

    gpus: int
    timeline: int
    log: int


def heights(height: int, gpus: int, *, is_log_open: bool) -> Heights:
    """Divide the height between GPUs, timeline and log; the jobs get the rest."""
    room = height - 2 - DETAIL_LINES - LEAST_JOBS
    shown = min(gpus, max(room // 2, 1))
    log = max((room - shown) * 2 // 3, 3) if is_log_open else 0
    left = room - shown - log
    timeline = gpus + 1 if height >= TALL and left >= gpus + 1 else 0
    return Heights(shown, timeline, log)


def has_unicode(environ: Mapping[str, str]) -> bool:
    """Tell whether the locale of a terminal is one of UTF-8."""
    chosen = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return "utf" in chosen.lower()


def first(snapshot: Snapshot, width: int, height: int, now: datetime, marks: Marks) -> list[str]:
    """Return the first screen, as it looks a moment later in the application."""
    gpus = gpu_lines.gpu_lines(snapshot, width, now, marks)
    parts = heights(height, len(gpus), is_log_open=False)
    sizes = job_rows.widths(width)
    found = [job_rows.head(snapshot, "", width, now, marks), *gpus[: parts.gpus]]
    texts = [lines.plain(line) for line in found] + [""] * parts.timeline
    rows = [row.cells for row in job_rows.rows(snapshot, "", now)]
    for cells in (job_rows.COLUMNS, *rows[: max(height - len(texts) - 2 - DETAIL_LINES, 0)]):
        texts.append("".join(f" {cell[:size]:<{size}} " for cell, size in zip(cells, sizes, strict=True)))
    return [text[:width].rstrip() for text in texts[:height]]
