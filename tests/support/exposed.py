"""A small parser of Prometheus' text format, which refuses everything else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: The name of a line, and its labels in order.
Line = tuple[str, tuple[tuple[str, str], ...]]

NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}


@dataclass
class Read:
    """A metric: everything under one name."""

    about: str
    kind: str = ""
    samples: dict[Line, float] = field(default_factory=dict)


def read(text: str) -> dict[str, Read]:
    """Parse a text; an AssertionError names what is wrong with it."""
    assert text.endswith("\n")
    found: dict[str, Read] = {}
    current = ""
    for line in text.removesuffix("\n").split("\n"):
        words = line.split(" ", 3)
        if words[:2] == ["#", "HELP"]:
            current = words[2]
            assert current not in found, f"{current} comes twice"
            found[current] = Read(words[3])
        elif words[:2] == ["#", "TYPE"]:
            assert words[2] == current, line
            found[current].kind = words[3]
        else:
            _read_sample(line, current, found[current])
    for name, each in found.items():
        assert each.samples, f"{name} has no numbers"
        assert re.fullmatch(NAME, name)
        assert each.kind != "counter" or name.endswith("_total"), name
    return found


def _read_sample(line: str, current: str, into: Read) -> None:
    match = SAMPLE.fullmatch(line)
    assert match, f"not a sample: {line!r}"
    assert match[1] in [current + suffix for suffix in SUFFIXES[into.kind]], line
    labels = tuple((name, _plain(value)) for name, value in re.findall(LABEL, match[2] or ""))
    assert len({name for name, _ in labels}) == len(labels), line
    key = (match[1], labels)
    assert key not in into.samples, f"twice: {line!r}"
    into.samples[key] = float(match[match.lastindex or 0])


def _plain(value: str) -> str:
    return re.sub(r'\\[\\"n]', lambda match: ESCAPES[match[0]], value)
