"""Results as a picture: one panel of bars a comparison, written as SVG by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.reports import number
from benchmarks.series import Series


@dataclass(frozen=True, slots=True)
class Panel:
    """One measure of one part, a bar a subject."""

    title: str
    part: str
    measure: str


PANELS = (
    Panel("No-op jobs a second on 4 slots (longer is better)", "throughput", "jobs/s"),
    Panel("CPU per no-op job, ms (shorter is better)", "throughput", "CPU per job"),
    Panel("Gap of a slot between two jobs, median, ms (shorter is better)", "gap", "p50"),
    Panel("One submit, ms (shorter is better)", "submit", "wall"),
    Panel("Submit of so many jobs at once, s", "depth", "submit"),
    Panel("Next start behind so many waiting jobs, ms", "depth", "next start"),
)

#: Pixels.
WIDTH, LEFT, RIGHT, BAR, STEP, HEAD, GAP = 760, 200, 90, 14, 22, 34, 18
#: A bar this many times as long as the one in the middle is cut, or the others could not be seen.
LONGEST = 6.0
OURS, THEIRS, INK, FAINT = "#1b7f5c", "#9aa7b1", "#1f2933", "#5b6770"


def draw(many: Sequence[Series]) -> str:
    """Return the picture of all panels that have values."""
    parts: list[str] = []
    top = GAP
    for panel in PANELS:
        ours = [one for one in many if (one.key.part, one.key.measure) == (panel.part, panel.measure)]
        if ours:
            parts += _panel(panel, ours, top)
            top += HEAD + STEP * len(ours) + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
        'font-family="system-ui, sans-serif" font-size="13">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>', *parts, "</svg>", ""])


def _panel(panel: Panel, many: Sequence[Series], top: int) -> list[str]:
    parts = [f'<text x="12" y="{top + 16}" fill="{INK}" font-weight="600">{escape(panel.title)}</text>']
    scale = (WIDTH - LEFT - RIGHT) / _longest(many)
    for n, series in enumerate(many):
        parts += _bar(series, top + HEAD + n * STEP, scale)
    return parts


def _longest(many: Sequence[Series]) -> float:
    values = sorted(series.median for series in many)
    middle = values[len(values) // 2]
    return max(min(values[-1], middle * LONGEST), 1e-9)


def _bar(series: Series, y: int, scale: float) -> list[str]:
    full = WIDTH - LEFT - RIGHT
    length = min(series.median * scale, full)
    low, high = (min(value * scale, full) for value in series.spread)
    colour = OURS if _is_ours(series) else THEIRS
    middle = y + BAR / 2
    cut = " …" if series.median * scale > full else ""
    parts = [
        f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end" fill="{INK}">{escape(series.key.subject)}</text>',
        f'<rect x="{LEFT}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
    ]
    if high > low:
        line = f'x1="{LEFT + low:.1f}" x2="{LEFT + high:.1f}" y1="{middle}" y2="{middle}"'
        parts.append(f'<line {line} stroke="{INK}" stroke-width="1.5"/>')
    x = LEFT + max(length, high) + 6
    parts.append(f'<text x="{x:.1f}" y="{y + 12}" fill="{FAINT}">{number(series.median)}{cut}</text>')
    return parts


def _is_ours(series: Series) -> bool:
    return series.key.subject.startswith("dibs") or series.key.part == "depth"
