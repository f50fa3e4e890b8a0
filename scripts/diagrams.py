"""The drawings of the documentation, as SVG for light and dark screens: boxes, arrows and their words.

The states of a job and the arrows between them are those of the table in `lifecycle`: a missing arrow, or one too many,
is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from dibs.model import lifecycle

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
#: Pixels from one line of text in a box to the next.
STEP = 18
STYLE = """
.ground{fill:#ffffff;stroke:#d5dbe1}.box{fill:#eef3fc;stroke:#1f5fd6}.soft{fill:#f4f6f8;stroke:#8a96a3}
.job{fill:#e3f4ec;stroke:#1b7f5c}.ink{fill:#1f2933}.faint{fill:#55616c}.line{stroke:#55616c;fill:none}.tip{fill:#55616c}
@media (prefers-color-scheme:dark){
.ground{fill:#161b22;stroke:#39424c}.box{fill:#16294a;stroke:#5f9dff}.soft{fill:#1f262e;stroke:#7d8995}
.job{fill:#12332a;stroke:#3fb98a}.ink{fill:#e6edf3}.faint{fill:#a5b1bd}.line{stroke:#a5b1bd}.tip{fill:#a5b1bd}}
"""


class Box(NamedTuple):
    """A rectangle with a title, and lines of small text below it."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    kind: str = "box"


class Arrow(NamedTuple):
    """A line through points, with a tip at its end, and a word beside it."""

    points: tuple[tuple[int, int], ...]
    word: str = ""
    at: tuple[int, int] = (0, 0)
    anchor: str = "middle"


#: Where the states are: the left upper corner.
PLACES = {"held": (40, 60), "queued": (40, 190), "starting": (260, 190), "running": (480, 190)}
PLACES |= {"paused": (480, 60), "stopping": (480, 320), "finished": (720, 190)}
WIDTH, HEIGHT = 120, 44
#: The arrows of the life of a job; a test compares them with the table.
LIFE = {
    ("queued", "starting"): Arrow(((160, 203), (260, 203)), "GPUs assigned", (210, 196)),
    ("starting", "queued"): Arrow(((260, 222), (160, 222)), "start refused", (210, 240)),
    ("starting", "running"): Arrow(((380, 212), (480, 212)), "started", (430, 205)),
    ("running", "finished"): Arrow(((600, 212), (720, 212)), "ended", (680, 205)),
    ("queued", "held"): Arrow(((80, 190), (80, 104)), "hold", (72, 150), "end"),
    ("held", "queued"): Arrow(((120, 104), (120, 190)), "unhold", (128, 150), "start"),
    ("running", "paused"): Arrow(((520, 190), (520, 104)), "pause", (512, 130), "end"),
    ("paused", "running"): Arrow(((560, 104), (560, 190)), "resume", (568, 130), "start"),
    ("running", "stopping"): Arrow(((540, 234), (540, 320)), "cancel, eviction", (532, 282), "end"),
    ("paused", "stopping"): Arrow(
        ((600, 90), (640, 90), (640, 342), (600, 342)), "cancel, eviction", (648, 260), "start"
    ),
    ("starting", "stopping"): Arrow(((340, 234), (340, 334), (480, 334)), "cancel", (410, 327)),
    ("stopping", "queued"): Arrow(((480, 352), (100, 352), (100, 234)), "evicted", (290, 345)),
    ("stopping", "finished"): Arrow(((540, 364), (540, 376), (760, 376), (760, 234)), "ended", (690, 369)),
    ("starting", "finished"): Arrow(((320, 190), (320, 160), (740, 160), (740, 190)), "could not start", (400, 153)),
    ("paused", "finished"): Arrow(((600, 74), (780, 74), (780, 190)), "command ended", (700, 67)),
    ("held", "finished"): Arrow(
        ((100, 60), (100, 34), (810, 34), (810, 190)), "cancelled, or a dependency failed", (430, 27)
    ),
    ("queued", "finished"): Arrow(
        ((80, 234), (80, 400), (785, 400), (785, 234)), "cancelled, or a dependency failed", (430, 393)
    ),
    ("finished", "queued"): Arrow(((810, 234), (810, 426), (60, 426), (60, 234)), "retry", (430, 419)),
}


def life_of_a_job() -> str:
    """Draw the states of a job, and what leads from one to another."""
    table = {(before.value, after.value) for (before, _), after in lifecycle.TRANSITIONS.items() if before is not after}
    assert table == set(LIFE), f"draw these arrows: {table ^ set(LIFE)}"
    outcomes = {"finished": ("done, failed, …",)}
    kinds = {"running": "job", "finished": "soft"}
    boxes = [
        Box(x, y, WIDTH, HEIGHT, state, outcomes.get(state, ()), kinds.get(state, "box"))
        for state, (x, y) in PLACES.items()
    ]
    return _drawn("The states of a job", 880, 450, boxes, list(LIFE.values()))


def parts() -> str:
    """Draw the processes between a command that is typed and a command that runs."""
    boxes = [
        Box(30, 40, 170, 56, "dibs add, dibs why", ("the command line",)),
        Box(30, 122, 170, 56, "dibs web", ("a browser",)),
        Box(30, 204, 170, 56, "import dibs", ("Python programs",)),
        Box(
            290,
            84,
            200,
            132,
            "daemon",
            ("one per user, no root", "decides what starts and when", "may be killed or upgraded"),
        ),
        Box(290, 266, 200, 56, "queue on disk", ("jobs, events, results",), "soft"),
        Box(580, 84, 130, 56, "runner", ("one per job",), "job"),
        Box(580, 176, 130, 56, "runner", ("one per job",), "job"),
        Box(770, 84, 150, 56, "your command", ("on GPU 0",), "job"),
        Box(770, 176, 150, 56, "your command", ("on GPU 1 and 2",), "job"),
        Box(
            580,
            266,
            340,
            56,
            "leases: file locks held by the kernel",
            ("end with the last process of the job",),
            "soft",
        ),
    ]
    arrows = [
        Arrow(((200, 68), (245, 68), (245, 120), (290, 120))),
        Arrow(((200, 150), (290, 150)), "socket", (245, 143)),
        Arrow(((200, 232), (245, 232), (245, 180), (290, 180))),
        Arrow(((390, 216), (390, 266)), "before the id is printed", (398, 246), "start"),
        Arrow(((490, 112), (580, 112)), "starts", (535, 105)),
        Arrow(((490, 204), (580, 204)), "starts", (535, 197)),
        Arrow(((710, 112), (770, 112))),
        Arrow(((710, 204), (770, 204))),
        Arrow(((645, 232), (645, 266)), "takes", (653, 254), "start"),
    ]
    return _drawn("The parts of dibs", 950, 350, boxes, arrows)


def sharing() -> str:
    """Draw how users share the GPUs of a machine without a common server."""
    boxes = [
        Box(30, 40, 170, 56, "ada's daemon", ("12 jobs queued",)),
        Box(30, 122, 170, 56, "ben's daemon", ("2 jobs queued",)),
        Box(30, 204, 170, 56, "dibs lease", ("eve's debugger, waits",)),
        Box(
            300,
            84,
            220,
            132,
            "machine-wide line",
            ("one ticket per waiting user", "least recent GPU time first", "then the oldest ticket"),
            "soft",
        ),
        Box(640, 40, 280, 40, "GPU 0   leased by ada, job 41", (), "job"),
        Box(640, 94, 280, 40, "GPU 1   leased by ada, job 42", (), "job"),
        Box(640, 148, 280, 40, "GPU 2   leased by cid, notebook", (), "job"),
        Box(640, 202, 280, 40, "GPU 3   free: ben is next", (), "box"),
    ]
    arrows = [
        Arrow(((200, 68), (250, 68), (250, 120), (300, 120))),
        Arrow(((200, 150), (300, 150)), "tickets", (250, 143)),
        Arrow(((200, 232), (250, 232), (250, 180), (300, 180))),
        Arrow(((520, 150), (580, 150), (580, 222), (640, 222)), "leases", (550, 143)),
    ]
    return _drawn("How users share the GPUs of a machine", 950, 285, boxes, arrows)


def _drawn(title: str, width: int, height: int, boxes: list[Box], arrows: list[Arrow]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="system-ui,\'DejaVu Sans\',sans-serif" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *(line for arrow in arrows for line in _arrow(arrow)),
        *(line for box in boxes for line in _box(box)),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _arrow(arrow: Arrow) -> Iterator[str]:
    points = " ".join(f"{x},{y}" for x, y in arrow.points)
    yield f'<polyline class="line" stroke-width="1.4" marker-end="url(#tip)" points="{points}"/>'
    if arrow.word:
        yield _text("faint", *arrow.at, 11.5, arrow.word, arrow.anchor)


def _box(box: Box) -> Iterator[str]:
    x, y, width, height, title, lines, kind = box
    yield f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6" stroke-width="1.4"/>'
    top = y + (height - STEP * len(lines)) // 2 + 5
    yield _text('ink" font-weight="600', x + width // 2, top, 14, title)
    for i, line in enumerate(lines, 1):
        yield _text("faint", x + width // 2, top + STEP * i, 12, line)


def _text(kind: str, x: int, y: int, size: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'
