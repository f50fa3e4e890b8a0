"""Draw a comparison of policies as an SVG picture: bars, one group for each measure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from dibs.scheduling.simulation.measures import Measures

#: What is drawn: the key, the title, and seconds in one unit of the axis.
GROUPS = (
    ("mean_completion_s", "mean time from submission to end (h)", 3600.0),
    ("p99_wait_big_s", "99th percentile of the wait of jobs with 4 or more GPUs (h)", 3600.0),
    ("slowdown", "mean slowdown", 1.0),
)
WIDTH, LEFT, RIGHT, BAR, GAP, HEAD = 760, 150, 90, 18, 6, 34


def draw(results: Mapping[str, Measures], title: str) -> str:
    """Return the picture."""
    height = HEAD + len(GROUPS) * (HEAD + len(results) * (BAR + GAP)) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        f' font-size="13" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="12" y="22">{escape(title)}</text>',
    ]
    top = HEAD
    for key, heading, unit in GROUPS:
        parts.append(f'<text class="heading" x="12" y="{top + 20}">{escape(heading)}</text>')
        top += HEAD
        values = {name: float(found[key]) / unit for name, found in results.items()}  # type: ignore[literal-required]
        parts += _bars(values, top)
        top += len(values) * (BAR + GAP)
    return "\n".join([*parts, "</svg>", ""])


_STYLE = (
    ".ground{fill:#fff}.title{font-weight:bold}text{fill:#222}.bar{fill:#9aa5b1}.dibs{fill:#2563eb}"
    "@media(prefers-color-scheme:dark){.ground{fill:#16181d}text{fill:#e5e7eb}.bar{fill:#5b6572}.dibs{fill:#60a5fa}}"
)


def _bars(values: Mapping[str, float], top: int) -> list[str]:
    largest = max(values.values(), default=0.0) or 1.0
    parts = []
    for place, (name, value) in enumerate(values.items()):
        y = top + place * (BAR + GAP)
        width = (WIDTH - LEFT - RIGHT) * value / largest
        kind = "bar dibs" if name.startswith("dibs") else "bar"
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(width, 1):.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LEFT + max(width, 1) + 6:.1f}" y="{y + 14}">{_number(value)}</text>',
        ]
    return parts


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
