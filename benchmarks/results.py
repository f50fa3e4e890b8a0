"""All that one run of the benchmark found, and the files it leaves: numbers, tables and a picture."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import pictures, reports, targets
from benchmarks.machine import Machine
from benchmarks.parts import Part
from benchmarks.plans import Sizes
from benchmarks.series import Book
from benchmarks.tools.tool import Tool

FOLDER = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Findings:
    """One run of the benchmark."""

    machine: Machine
    sizes: Sizes
    parts: Sequence[Part]
    #: Version of every tool that took part, and why the others did not.
    versions: dict[Tool, str]
    left_out: dict[str, str]
    #: How busy the machine was when a part began.
    loads: dict[str, float]
    book: Book


def introduction(found: Findings) -> str:
    """Return what the numbers were taken on and with."""
    here = found.machine
    lines = [
        f"{here.processor}, {here.cores} cores, {here.memory_gib:g} GiB, Linux {here.kernel}, Python {here.python}, "
        f"SQLite {here.sqlite}, {here.file_system} {here.disk} with {here.flush_ms:g} ms a flush.",
        f"Medians of {found.sizes.rounds} rounds ({found.sizes.own_rounds} where dibs is measured alone), "
        "least and greatest in brackets.",
        "",
        *(f"* {tool.name} {version}; keeps {tool.keeps}" for tool, version in found.versions.items()),
        *(f"* {name}: left out, {why}" for name, why in found.left_out.items()),
    ]
    return "\n".join(lines)


def tables(found: Findings) -> str:
    """Return everything as text."""
    many = found.book.series()
    blocks = [introduction(found), *(reports.part(part, many, found.book) for part in found.parts)]
    return "\n\n".join([*blocks, reports.verdicts(targets.judge(many))])


def write(found: Findings, name: str) -> None:
    """Write the three files of a run."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.md").write_text(tables(found) + "\n")
    (FOLDER / f"{name}.svg").write_text(pictures.draw(found.book.series()))
    (FOLDER / f"{name}.json").write_text(json.dumps(_document(found), indent=1) + "\n")


def _document(found: Findings) -> dict[str, object]:
    many = found.book.series()
    return {
        "taken_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": asdict(found.machine),
        "load_at_start": found.loads,
        "sizes": asdict(found.sizes),
        "versions": {tool.name: version for tool, version in found.versions.items()},
        "left_out": found.left_out,
        "series": [
            asdict(one.key) | {"unit": one.unit, "median": one.median, "values": one.values} for one in many
        ],
        "notes": found.book.notes,
        "targets": [
            {"what": one.target.what, "value": one.value, "bound": one.target.bound, "verdict": one.word}
            for one in targets.judge(many)
        ],
    }  # fmt: skip
