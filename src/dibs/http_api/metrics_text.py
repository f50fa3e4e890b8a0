"""The Prometheus text format, version 0.0.4, independent of which metrics there are.

Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
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


def gauge(name: str, about: str, *samples: Sample) -> str:
    """Return a metric that goes up and down."""
    return _family(name, "gauge", about, samples)


def counter(name: str, about: str, *samples: Sample) -> str:
    """Return a metric that only grows while the daemon runs."""
    return _family(name, "counter", about, samples)


def histogram(name: str, about: str, counted: Histogram) -> str:
    """Return a histogram: cumulative buckets, count and sum."""
    below = list(itertools.accumulate(counted.counts))
    ends = [*map(number, counted.ends), "+Inf"]
    buckets = [Sample(count, {"le": end}, "_bucket") for count, end in zip(below, ends, strict=True)]
    samples = (*buckets, Sample(counted.total, {}, "_sum"), Sample(below[-1], {}, "_count"))
    return _family(name, "histogram", about, samples)


def _family(name: str, kind: str, about: str, samples: Sequence[Sample]) -> str:
    """Return the text of one metric; empty without samples."""
    if not samples:
        return ""
    about = about.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{one.suffix}{_labels(one.labels)} {number(one.value)}" for one in samples]
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
