"""The Prometheus text format, version 0.0.4, independent of which metrics there are.

Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dibs.jobqueue.counters import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a value with labels."""

    value: float
    labels: Labels = field(default_factory=dict)
    #: Appended to the name; distinguishes the lines of a histogram.
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric."""

    name: str
    #: gauge, counter or histogram.
    kind: str
    about: str
    samples: tuple[Sample, ...]


def gauge(name: str, about: str, *samples: Sample) -> Family:
    """Return a metric that goes up and down."""
    return Family(name, "gauge", about, samples)


def counter(name: str, about: str, *samples: Sample) -> Family:
    """Return a metric that only grows while the daemon runs."""
    return Family(name, "counter", about, samples)


def histogram(name: str, about: str, counted: Histogram) -> Family:
    """Return a histogram: cumulative buckets, count and sum."""
    counts = list(counted.counts)
    below = list(itertools.accumulate(counts))
    ends = [*map(number, counted.ends), "+Inf"]
    buckets = [Sample(count, {"le": end}, "_bucket") for count, end in zip(below, ends, strict=True)]
    return Family(
        name, "histogram", about, (*buckets, Sample(counted.total, {}, "_sum"), Sample(below[-1], {}, "_count"))
    )


def text(families: Iterable[Family]) -> str:
    """Return the text of all metrics; those without samples are omitted."""
    return "".join(_family(family) for family in families if family.samples)


def _family(family: Family) -> str:
    about = family.about.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {family.name} {about}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{one.suffix}{_labels(one.labels)} {number(one.value)}" for one in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def escaped(value: str) -> str:
    """Return a label value, escaped."""
    # Text that is not valid UTF-8 would make the whole answer unreadable.
    sound = value.encode(errors="replace").decode()
    return sound.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a number in the text format; integers without a decimal point."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))
