"""How the height of the terminal is divided, and the first screen as lines. Pure.

The first screen appears before Textual is loaded: loading it takes longer than everything else together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dibs.cli.top import gpu_lines, job_rows, lines, timeline_lines
from dibs.cli.top.lines import Line, Marks
from dibs.cli.top.snapshot import Snapshot

#: Lines of a terminal from which the timeline is shown beside the jobs.
TALL = 36
#: Lines of the sentence about the chosen job.
DETAIL_LINES = 2
#: Lines that jobs keep, whatever else is shown.
LEAST_JOBS = 6
#: GPUs that are shown before jobs get more than their least lines.
MOST_GPUS = 16
#: Lines that an open log has, if jobs keep theirs.
LEAST_LOG = 12


class Heights(NamedTuple):
    """Lines of each part; 0: it is not shown."""

    gpus: int
    timeline: int
    log: int


def heights(height: int, gpus: int, *, is_log_open: bool) -> Heights:
    """Divide the height between GPUs, timeline and log; the jobs get the rest."""
    room = height - 2 - DETAIL_LINES - LEAST_JOBS
    # A log that somebody opened is what this person reads.
    shown = min(gpus, max(room // 3 if is_log_open else max(room // 2, min(room, MOST_GPUS)), 1))
    log = max((room - shown) * 2 // 3, min(room - shown, LEAST_LOG), 3) if is_log_open else 0
    left = room - shown - log
    timeline = gpus + 1 if height >= TALL and left >= gpus + 1 else 0
    return Heights(shown, timeline, log)


def cut(gpus: list[Line], height: int, marks: Marks) -> list[Line]:
    """Return the lines of GPUs that have room; the last one says how many have none."""
    if len(gpus) <= height:
        return gpus
    left = len(gpus) - max(height - 1, 0)
    return [*gpus[: height - 1], ((f" {marks.cut}  {left} more GPUs" if height > 1 else f" {left} GPUs", ""),)]


def has_unicode(environ: Mapping[str, str]) -> bool:
    """Tell whether the locale of a terminal is one of UTF-8."""
    chosen = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return "utf" in chosen.lower()


def first(snapshot: Snapshot, width: int, height: int, now: datetime, marks: Marks) -> list[Line]:
    """Return the first screen, as the application draws it."""
    gpus = gpu_lines.gpu_lines(snapshot, width, now, marks)
    parts = heights(height, len(gpus), is_log_open=False)
    sizes = job_rows.widths(width)
    found = [job_rows.head(snapshot, "", width, now, marks), *cut(gpus, parts.gpus, marks)]
    if parts.timeline:
        found += padded(timeline_lines.timeline_lines(None, "", width, now, marks), parts.timeline)
    found.append(_row(job_rows.COLUMNS, sizes, tuple("bold" for _ in sizes)))
    for row in job_rows.rows(snapshot, "", now)[: max(height - len(found) - 1 - DETAIL_LINES, 0)]:
        found.append(_row(row.cells, sizes, ("", "", row.style, "", "", "")))
    return [lines.fitted(line, width, marks) for line in found[:height]]


def padded(found: list[Line], height: int) -> list[Line]:
    """Return lines that are `height` at least: what is below stays where it is when the others come."""
    return found + [(("", ""),)] * (height - len(found))


def _row(cells: Sequence[str], sizes: Sequence[int], styles: Sequence[str]) -> Line:
    triples = zip(cells, sizes, styles, strict=True)
    texts = [(f" {cell[:size]:<{size}} ", style) for cell, size, style in triples]
    # Nothing is written over an empty cell at the end.
    return (*texts[:-1], (texts[-1][0].rstrip(), texts[-1][1]))
