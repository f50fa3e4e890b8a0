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
        "loss": [(first, 1, 0.5), (second, None, None), (None, None, 0.25), (None, None, 0.2)],
        "step": [(first, 1, 1)],
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
    assert all(points[-1] == (None, None, 999) for points in found.values())
    assert len(reports.courses(told, most=999)["loss"]) == 500


def test_a_curve_has_the_step_of_each_line_or_counts_lines() -> None:
    told = b'{"loss": 3, "epoch": 10}\n{"acc": 1}\nnoise\n{"step": 20, "epoch": 2, "loss": null}\n'
    steps, values = zip(*reports.curve(told, "loss"), strict=True)
    assert steps == (10, 20)
    assert values[0] == 3
    assert math.isnan(values[1])
    assert reports.curve(b'{"at": "x", "epoch": 7, "acc": 1}\n') == [(7, 1)]
    assert reports.curve(b'{"acc": 1}\n{"acc": 2}\n', "acc") == [(1, 1), (2, 2)]


def test_a_track_has_steps_or_seconds_and_a_restart_replaces_what_was_after_it() -> None:
    told = b"""{"at": "2026-01-01T00:00:10.000Z", "loss": 3, "step": 1}
noise
{"at": "2026-01-01T00:00:20.000Z", "loss": 2, "step": 2}
{"at": "2026-01-01T00:00:30.000Z", "loss": 1.5, "step": 3}
{"at": "2026-01-01T00:00:40.000Z", "loss": null, "step": 3}
{"at": "2026-01-01T00:00:50.000Z", "loss": 1.9, "step": 2}
{"loss": 1.2, "step": 4}"""
    records = reports.records(told)
    assert reports.track(records, "loss") == [(1, 3), (2, 1.9), (4, 1.2)]
    seconds = reports.track(records, "loss", "2026-01-01T00:00:00.000Z", is_time=True)
    assert seconds == [(10, 3), (20, 2), (30, 1.5), (50, 1.9)]
    assert reports.track(records, "loss", is_time=True)[0] == (0, 3)
    assert reports.track([{"acc": 1}, {"acc": True}, {"acc": 2}], "acc") == [(1, 1), (2, 2)]


def test_a_thinned_curve_keeps_its_ends_and_its_peaks() -> None:
    points = [(float(n), 100.0 if n == 777 else math.sin(n / 50)) for n in range(2000)]
    found = reports.thinned(points, 100)
    assert len(found) <= 102
    assert found[0] == points[0]
    assert found[-1] == points[-1]
    assert (777.0, 100.0) in found
    assert [place for place, _ in found] == sorted({place for place, _ in found})
    assert reports.thinned(points[:50], 100) == points[:50]


@given(st.binary(max_size=200))
def test_any_file_can_be_read(data: bytes) -> None:
    found = reports.latest(data)
    assert found is None or all(isinstance(name, str) for name in found)
    assert set(reports.courses(data)) == set(found or {})
