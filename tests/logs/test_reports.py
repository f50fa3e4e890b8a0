"""Metrics that jobs report: appended as lines, read from the end, whatever else is in the file."""

from __future__ import annotations

import json
import math
import os
import sys
from datetime import datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dibs.logs import reports


def test_the_last_number_of_each_name_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "1" / "report.jsonl")
    assert reports.last(path) is None
    reports.append(path, {"loss": 0.5, "step": 1}, datetime(2026, 1, 1))
    reports.append(path, {"loss": 0.25, "acc": float("nan")}, datetime(2026, 1, 1, 0, 0, 1))
    assert reports.last(path) == {"step": 1, "loss": 0.25, "acc": None}
    assert json.loads(Path(path).read_text().splitlines()[0])["at"] == "2026-01-01T00:00:00.000Z"
    assert reports.shown(reports.last(path) or {}) == "step=1 loss=0.25 acc=nan"
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_malformed_lines_are_skipped(tmp_path: Path) -> None:
    lines = [b"hello", b"[1, 2]"]
    lines += [b'{"loss": "low", "flag": true, "step": 3}', b"\xff", b"3", b'{"loss": 1e400}', b'{"x"']
    assert reports.latest(b"\n".join(lines)) == {"step": 3, "loss": None}
    assert reports.latest(b'{"big": 1' + b"0" * 400 + b"}\n" + b"[" * 60_000) == {"big": None}
    os.mkfifo(tmp_path / "pipe")
    assert reports.last(str(tmp_path / "pipe")) is None
    assert reports.last(str(tmp_path)) is None


def test_a_long_report_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    path.write_text('{"first": 1}\n' + "".join(f'{{"step": {n}}}\n' for n in range(20_000)))
    assert reports.last(str(path)) == {"step": 19_999}


def test_the_history_of_a_metric_is_everything_written_for_it() -> None:
    told = b"""{"at": "2026-01-01T00:00:00.000Z", "loss": 0.5, "step": 1}
hello
{"at": "2026-01-01T00:00:01.000Z", "loss": null}
{"loss": 0.25, "at": 7}
{"loss": 0.2, "at": "yesterday"}"""
    first, second = "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z"
    assert reports.courses(told) == {
        "loss": [(first, 0.5), (second, None), (None, 0.25), (None, 0.2)],
        "step": [(first, 1)],
    }
    assert reports.courses(b"") == {}


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, min_size=1))
def test_a_summary_has_minimum_maximum_and_mean(values: list[float]) -> None:
    told = "".join(f'{{"loss": {json.dumps(value)}}}\n{{"loss": null, "flag": true}}\n' for value in values)
    # The largest float counts as missing: no table has it.
    kept = [value for value in values if abs(value) < reports.MOST]
    found = reports.summaries(told.encode())
    if not kept:
        assert found == {}
        return
    least, greatest, mean, count = found["loss"]
    assert (least, greatest, count) == (min(kept), max(kept), len(kept))
    expected = math.fsum(value / len(kept) for value in kept)
    # Half of the smallest float is not a float: there the two ways of rounding may differ.
    tolerance = max(1e-9 * max(map(abs, kept)), sys.float_info.min)
    assert math.isclose(mean, expected, rel_tol=1e-6, abs_tol=tolerance)


def test_a_long_history_is_thinned_per_metric() -> None:
    """Metrics that are written in turn must not be lost by a step that matches their rhythm."""
    told = b"".join(b'{"loss": %d}\n{"acc": %d}\n' % (n, n) for n in range(1000))
    found = reports.courses(told, most=100)
    assert {name: len(points) for name, points in found.items()} == {"loss": 100, "acc": 100}
    assert all(points[-1] == (None, 999) for points in found.values())
    assert len(reports.courses(told, most=999)["loss"]) == 500


@given(st.binary(max_size=200))
def test_any_file_can_be_read(data: bytes) -> None:
    found = reports.latest(data)
    assert found is None or all(isinstance(name, str) for name in found)
    assert set(reports.courses(data)) == set(found or {})
