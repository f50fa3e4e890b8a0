"""The timeline: which job had, has and would get which GPU, one line per GPU. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from dibs.cli.top import lines
from dibs.cli.top.lines import Line, Marks
from dibs.client.answers import Bar, Timeline

#: What the picture can span before now, as `/v1/timeline` is asked, with its seconds.
SPANS = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 86400.0, "7d": 7 * 86400.0}
USUAL = "6h"
#: The part of the width that is the past; the rest is the forecast.
PAST = 2 / 3
#: By state; a plan has its own.
STYLES = {"done": "past", "failed": "fail", "timeout": "fail", "lost": "fail", "cancelled": "other"}
RUNS, PLANNED = "run", "plan"
#: Width of the number of the GPU.
MARGIN = 4


def timeline_lines(timeline: Timeline | None, span: str, width: int, now: datetime, marks: Marks) -> list[Line]:
    """Return an axis and one line per GPU."""
    room = max(width - MARGIN, 10)
    if timeline is None:
        return [(("reading the timeline", ""),)]
    window = _Window(now, SPANS[span], room)
    found = [_axis(window, span, marks)]
    for lane in timeline["lanes"]:
        bars = [bar for bar in timeline["bars"] if lane["gpu_id"] in bar["gpu_ids"]]
        index = "-" if lane["index"] is None else str(lane["index"])
        found.append(((f"{index:>2}  ", "bold"), *_lane(bars, window, marks)))
    return found


class _Window:
    """The span of time that the picture shows, and the column of each moment."""

    def __init__(self, now: datetime, past_s: float, width: int) -> None:
        self.now, self.width = now, width
        self.begin = now - timedelta(seconds=past_s)
        self.per_column_s = past_s / (width * PAST)

    def column(self, moment: datetime) -> int:
        return int((moment - self.begin).total_seconds() / self.per_column_s)

    @property
    def now_column(self) -> int:
        return min(self.column(self.now), self.width - 1)


def _axis(window: _Window, span: str, marks: Marks) -> Line:
    cells = [" "] * window.width
    future = timedelta(seconds=window.per_column_s * (window.width - window.now_column))
    hours = future.total_seconds() / 3600
    last = f"+{hours * 60:.0f}m" if hours < 1 else f"+{hours:.0f}h" if hours < 48 else f"+{hours / 24:.0f}d"
    for at, text in ((0, f"-{span}"), (window.now_column - 1, "now"), (window.width - len(last), last)):
        cells[max(at, 0) : max(at, 0) + len(text)] = text
    return ((" " * MARGIN, ""), ("".join(cells)[: window.width], "dim"))


def _lane(bars: list[Bar], window: _Window, marks: Marks) -> Line:
    cells = [(" ", "")] * window.width
    cells[window.now_column] = (marks.now, "dim")
    owners: list[tuple[int, int] | None] = [None] * window.width
    # What runs is drawn over what was planned.
    shown = sorted(bars, key=lambda bar: (not bar["is_plan"], bar["from"]))
    for bar in shown:
        first, last = _columns(bar, window)
        mark = marks.planned if bar["is_plan"] else marks.full
        for at in range(max(first, 0), min(last, window.width - 1) + 1):
            cells[at], owners[at] = (mark, _style(bar)), (bar["job"], bar["attempt"])
    for at in range(1, window.width):
        if owners[at] and owners[at - 1] and owners[at] != owners[at - 1]:
            cells[at] = (marks.edge, cells[at][1])
    # A label needs cells that nothing else covers.
    for bar in shown:
        own = [at for at, owner in enumerate(owners) if owner == (bar["job"], bar["attempt"])]
        if own:
            _write(cells, f"{bar['job']} {lines.words([bar['name']])}", own[0] + 1, own[-1], _style(bar))
    return lines.joined(cells)


def _style(bar: Bar) -> str:
    return PLANNED if bar["is_plan"] else STYLES.get(bar["state"], RUNS)


def _columns(bar: Bar, window: _Window) -> tuple[int, int]:
    """Return the first and last column of a bar; one without an end lasts until now, or as long as is expected."""
    ends = bar["to"] or bar["expected_end"]
    end = datetime.fromisoformat(ends) if ends else window.now
    return window.column(datetime.fromisoformat(bar["from"])), window.column(max(end, window.now) if not ends else end)


def _write(cells: list[tuple[str, str]], label: str, first: int, last: int, style: str) -> None:
    """Write as much of a label into a bar as fits; at least the number of the job."""
    number = label.split(" ", 1)[0]
    text = label if len(label) <= last - first else number
    if len(text) <= last - first:
        for at, char in enumerate(text, first):
            cells[at] = (char, f"on {style}")
