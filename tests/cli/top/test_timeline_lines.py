"""The timeline as text: what ran, runs and is planned, in its place and never outside of the line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from dibs.cli.top import lines, palette, timeline_lines
from top_source import NOW


def bar(job: int, begin_s: float, end_s: float | None, **fields: Any) -> dict[str, Any]:
    """Return a bar of GPU 0; times are seconds from now."""
    return {
        "job": job, "name": "vit", "attempt": 1, "gpu_ids": ["GPU-0"], "state": "done", "is_plan": False,
        "from": (NOW + timedelta(seconds=begin_s)).isoformat(), "expected_end": None, "sweep": None,
        "to": None if end_s is None else (NOW + timedelta(seconds=end_s)).isoformat(),
    } | fields  # fmt: skip


def drawn(*bars: Any, width: int = 94, span: str = "1h", marks: lines.Marks = lines.UNICODE) -> list[str]:
    """Return the axis and the line of GPU 0."""
    timeline: Any = {"lanes": [{"gpu_id": "GPU-0", "index": 0, "name": "A100"}], "bars": list(bars), "now": ""}
    return [lines.plain(line) for line in timeline_lines.timeline_lines(timeline, span, width, NOW, marks)]


def test_the_axis_names_its_ends_and_now() -> None:
    axis, lane = drawn()
    assert axis.split() == ["-1h", "now", "+30m"]
    assert lane.index("│") == axis.index("now") + 1


def test_a_finished_job_ends_where_it_ended() -> None:
    _, lane = drawn(bar(7, -3600, -1800))
    assert lane[4:40] == "█7 vit█████████████████████████     "


def test_a_running_job_lasts_until_now_or_as_long_as_expected() -> None:
    axis, lane = drawn(bar(7, -600, None, state="running"))
    assert lane.rstrip().endswith("█")
    assert len(lane.rstrip()) == axis.index("now") + 2
    later = (NOW + timedelta(seconds=900)).isoformat()
    _, lane = drawn(bar(7, -600, None, state="running", expected_end=later))
    assert len(lane.rstrip()) > axis.index("now") + 10


def test_a_plan_looks_different_and_a_short_bar_has_no_name() -> None:
    _, lane = drawn(bar(12, 0, 600, is_plan=True), bar(7, -120, -10))
    # It begins where another ended: half of its first cell is a gap.
    assert "█▐12 vit▒" in lane
    assert "7" not in lane
    # Of a number nothing is covered, if what runs ends within the first cell of the plan.
    _, lane = drawn(bar(12, 0, 600, is_plan=True), bar(7, -600, 100, state="running"))
    assert "12" in lane
    _, ascii_lane = drawn(bar(12, 0, 600, is_plan=True), marks=lines.ASCII)
    assert ascii_lane.isascii()


def test_every_style_of_the_screen_has_a_colour_before_and_in_the_application() -> None:
    timeline: Any = {"lanes": [{"gpu_id": "GPU-0", "index": 0, "name": "A100"}], "now": ""}
    states = ("done", "failed", "timeout", "lost", "cancelled", "running")
    timeline["bars"] = [bar(n, -3600 + 500 * n, -3200 + 500 * n, state=state) for n, state in enumerate(states)]
    timeline["bars"].append(bar(9, 0, 1200, is_plan=True))
    found = timeline_lines.timeline_lines(timeline, "1h", 120, NOW, lines.UNICODE)
    styles = {style for line in found for _, style in line if style}
    assert {"on past", "on fail", "on other", "on run", "on plan"} <= styles <= palette.STYLES.keys()
    for line in found:
        plain = palette.painted(line, has_colour=False)
        assert plain == lines.plain(line) == lines.plain(palette.styled(line))
        assert ("\x1b" in palette.painted(line, has_colour=True)) == any(style for _, style in line)


times = some.floats(-1e6, 1e6)


@given(some.lists(some.tuples(times, times | some.none(), some.booleans())), some.integers(10, 300))
def test_a_line_is_never_longer_than_the_terminal(bars: list[tuple[float, float | None, bool]], width: int) -> None:
    made = [bar(n, begin, end, is_plan=plan) for n, (begin, end, plan) in enumerate(bars)]
    for line in drawn(*made, width=width, span="24h"):
        assert len(line) <= max(width, 14)
