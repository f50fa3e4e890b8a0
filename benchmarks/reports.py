"""Results as text: tables that are read on a terminal and pasted into a page as they are."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.parts import Part
from benchmarks.series import Book, Series
from benchmarks.targets import Verdict


def part(one: Part, many: Sequence[Series], book: Book) -> str:
    """Return a part as a table: a row a subject, a column a measure, then what has to be said about it."""
    ours = [series for series in many if series.key.part == one.name]
    subjects = list(dict.fromkeys(series.key.subject for series in ours))
    measures = list(dict.fromkeys((series.key.measure, series.unit) for series in ours))
    cells = {(series.key.subject, series.key.measure): _cell(series) for series in ours}
    head = ["", *(f"{measure}, {unit}" if unit else measure for measure, unit in measures)]
    rows = [[subject, *(cells.get((subject, measure), "") for measure, _ in measures)] for subject in subjects]
    lines = table(head, rows) if rows else ["nothing could be measured"]
    notes = [f"* {text}" for text in book.notes.get(one.name, [])]
    return "\n".join([f"## {one.title}", "", *lines, *([""] if notes else []), *notes])


def verdicts(many: Sequence[Verdict]) -> str:
    """Return all targets as a table."""
    rows = [[one.target.what, _value(one), _spread(one.spread), one.target.bound, one.word] for one in many]
    return "\n".join(["## Targets", "", *table(["what", "measured", "spread", "target", ""], rows)])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; columns after the first stand to the right."""
    widths = [max(3, *(len(row[n]) for row in [head, *rows])) for n in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.rjust(widths[n]) if n else cell.ljust(widths[n]) for n, cell in enumerate(row)]
        return f"| {' | '.join(cells)} |"

    rule = "|".join("-" * (width + 1) + (":" if n else "-") for n, width in enumerate(widths))
    return [line(head), f"|{rule}|", *(line(row) for row in rows)]


def number(value: float) -> str:
    """Return a value with three digits that mean something."""
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def _value(one: Verdict) -> str:
    return "" if one.value is None else number(one.value)


def _cell(series: Series) -> str:
    text = number(series.median)
    return f"{text} ({_spread(series.spread)})" if len(series.values) > 1 else text


def _spread(spread: tuple[float, float] | None) -> str:
    return "" if spread is None or spread[0] == spread[1] else f"{number(spread[0])}–{number(spread[1])}"
