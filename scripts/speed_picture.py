"""The picture of the measured speed in README: bars from `docs/pictures/speed.json`, as SVG for light and dark screens.

The JSON file holds medians of one run of `scripts/bench`. With the `latest.json` of a newer run as argument, its
medians replace those first, so that picture and figures are always from one run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "pictures" / "speed.json"
PICTURE = ROOT / "docs" / "pictures" / "speed.svg"


class Panel(NamedTuple):
    """One comparison: its title, which bars are better, and the series (part, measure) that it shows."""

    title: str
    better: str
    series: tuple[tuple[str, str], ...]


PANELS = (
    Panel(
        "Jobs per second", "no-op jobs, 4 at a time; longer is better", (("pipe", "lines/s"), ("throughput", "jobs/s"))
    ),
    Panel("Idle time of a GPU between two jobs, ms", "median; shorter is better", (("gap", "p50"),)),
)
#: What is on the disk when a tool is killed; the reader has to know it to compare.
KEEPS = {
    "dibs": "queue, results and logs",
    "dibs pipe": "nothing",
    "simple_gpu_scheduler": "nothing",
    "task-spooler": "nothing",
    "xargs": "nothing",
    "GNU parallel": "nothing",
    "nq": "logs",
    "hyperqueue": "logs",
    "gflow": "queue and logs",
}
LABELS = {"hyperqueue": "HyperQueue"}
#: A bar that is this many times as long as the shortest one is cut.
FAR = 50
#: Pixels.
WIDTH, LEFT, RIGHT, BAR, STEP, HEAD, MARGIN = 780, 180, 220, 14, 23, 46, 20
STYLE = """
.card{fill:#ffffff;stroke:#d5dbe1}.cut{fill:#ffffff}.ink{fill:#1f2933}.faint{fill:#55616c}.ours{fill:#1b7f5c}.theirs{fill:#a3afb9}
@media (prefers-color-scheme:dark){
.card{fill:#161b22;stroke:#39424c}.cut{fill:#161b22}.ink{fill:#e6edf3}.faint{fill:#a5b1bd}.ours{fill:#3fb98a}.theirs{fill:#5d6975}}
"""


def figures(results: dict[str, Any]) -> dict[str, Any]:
    """Return what the picture needs of the document that `scripts/bench` writes."""
    wanted = {pair for panel in PANELS for pair in panel.series}
    return {
        "dibs": results["versions"]["dibs"],
        "taken_at": results["taken_at"],
        "cores": results["machine"]["cores"],
        "rounds": results["sizes"]["rounds"],
        "series": [
            {key: one[key] for key in ("part", "subject", "measure", "median")}
            for one in results["series"]
            if (one["part"], one["measure"]) in wanted and one["subject"] in KEEPS
        ],
    }


def draw(found: dict[str, Any]) -> str:
    """Return the picture."""
    parts: list[str] = []
    top = MARGIN
    for panel in PANELS:
        rows = _rows(panel, found["series"])
        parts += _panel(panel, rows, top)
        top += HEAD + STEP * len(rows) + MARGIN
    parts.append(f'<text x="{MARGIN}" y="{top}" class="faint">{escape(_source(found))}</text>')
    height = top + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" font-family="system-ui,sans-serif" font-size="13">',
            f"<title>{escape(_title(found))}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _rows(panel: Panel, series: Iterable[dict[str, Any]]) -> list[tuple[str, float]]:
    """Return the tools of a panel with their medians, best first; of two series of a tool the first counts."""
    found: dict[str, float] = {}
    for pair in panel.series:
        for one in series:
            if (one["part"], one["measure"]) == pair and (pair != ("pipe", "lines/s") or one["subject"] == "dibs pipe"):
                found.setdefault(one["subject"], one["median"])
    return sorted(found.items(), key=lambda row: row[1], reverse="longer" in panel.better)


def _panel(panel: Panel, rows: Sequence[tuple[str, float]], top: int) -> list[str]:
    parts = [
        f'<text x="{MARGIN}" y="{top + 14}" class="ink" font-weight="600" font-size="15">{escape(panel.title)}</text>',
        f'<text x="{MARGIN}" y="{top + 32}" class="faint">{escape(panel.better)}</text>',
        f'<text x="{WIDTH - MARGIN}" y="{top + 32}" class="faint" text-anchor="end">on disk if it is killed</text>',
    ]
    longest = WIDTH - LEFT - RIGHT - 50
    least = min((value for _, value in rows), default=1)
    # One that is a thousand times as slow would leave no length to the others.
    scale = longest / max((value for _, value in rows if "longer" in panel.better or value <= FAR * least), default=1)
    for number, (tool, value) in enumerate(rows):
        y = top + HEAD + number * STEP
        kind, weight = ("ours", ' font-weight="600"') if tool.startswith("dibs") else ("theirs", "")
        label, length = LABELS.get(tool, tool), min(max(value * scale, 1), longest)
        is_cut = value * scale > longest + 1
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end" class="ink"{weight}>{escape(label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" class="{kind}"/>',
            *([f'<rect x="{LEFT + length - 40:.1f}" y="{y}" width="6" height="{BAR}" class="cut"/>'] if is_cut else []),
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 12}" class="ink"{weight}>{_number(value)}</text>',
            f'<text x="{WIDTH - MARGIN}" y="{y + 12}" class="faint" text-anchor="end">{escape(KEEPS[tool])}</text>',
        ]
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _source(found: dict[str, Any]) -> str:
    day = f", {found['taken_at'][:10]}" if found["taken_at"] else ""
    return f"dibs {found['dibs']}, {found['cores']} cores, medians of {found['rounds']} rounds of scripts/bench{day}"


def _title(found: dict[str, Any]) -> str:
    """Return the figures in words, for readers who do not see the picture."""
    sentences = []
    for panel in PANELS:
        listed = ", ".join(f"{LABELS.get(tool, tool)} {value:g}" for tool, value in _rows(panel, found["series"]))
        sentences.append(f"{panel.title}: {listed}.")
    return " ".join(sentences)


def main(arguments: Sequence[str]) -> None:
    """Take the figures of a run if one is given; write the picture."""
    if arguments:
        taken = figures(json.loads(Path(arguments[0]).read_text()))
        FIGURES.write_text(json.dumps(taken, indent=1) + "\n")
    PICTURE.write_text(draw(json.loads(FIGURES.read_text())))
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
