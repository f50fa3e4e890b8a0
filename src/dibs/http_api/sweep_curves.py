"""`GET /v1/sweeps/{id}/curves`: one metric of all runs of a sweep, thinned so that one chart can show all of them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from dibs.daemon.service import Daemon
from dibs.engines.job_files import JobFiles
from dibs.http_api import job_logs
from dibs.http_api.schemas import sweep_answers
from dibs.http_api.schemas.submission import Name
from dibs.logs import reports, tails
from dibs.model import serialization
from dibs.model.jobs import JobId
from dibs.store.query_results import RunsSince
from dibs.store.writer import Reader
from dibs.sweeps.records import Run

#: The most runs in one answer, and the points of all of them together: about one for each pixel of a large screen.
MOST_RUNS, MOST_POINTS = 1000, 36_000
#: Points of a run, at least and at most.
FEWEST_OF_RUN, MOST_OF_RUN = 40, 1000
#: Curves that are kept: those of finished runs never change, and reading 300 of them takes a second.
MOST_KEPT = 4000

#: A file, its size and time of change; the metric, the axis and the number of points.
Key = tuple[str, int, int, str, str, int]
Track = tuple[list[float], list[float]]


class CurvesQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The metric and the horizontal axis."""

    metric: Annotated[Name, Meta(min_length=1, description="The name of a metric that the runs report.")]
    x: Annotated[
        str, Meta(pattern="^(step|time)$", description="step: what they count; time: seconds since the start.")
    ] = "step"


class CurveCache:
    """Thinned curves of files that have not changed; used by all threads for logs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, Track] = OrderedDict()

    def get(self, key: Key) -> Track | None:
        """Return a curve, and keep it longer than others."""
        with self._lock:
            if (found := self._known.get(key)) is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: Key, track: Track) -> None:
        """Keep a curve; the one that was used least recently makes room."""
        with self._lock:
            self._known[key] = track
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)


async def get_curves(daemon: Daemon, cache: CurveCache, id: int, query: CurvesQuery) -> sweep_answers.Curves:
    """Return one metric of every run of a sweep over its steps or its time, thinned for one chart."""
    runs, is_more = await daemon.ask(lambda reader: _runs(reader, id))
    return await job_logs.in_thread(daemon, _curves, daemon.files, cache, runs, is_more, query)


def _runs(reader: Reader, sweep_id: int) -> tuple[list[Run], bool]:
    """Return the runs that have files, and whether there are more than are shown."""
    reader.sweep(sweep_id)
    runs, following = reader.runs(sweep_id, RunsSince(), MOST_RUNS)
    return [run for run in runs if run.job is not None], following is not None and not following.is_forgotten


def _curves(
    files: JobFiles, cache: CurveCache, runs: Sequence[Run], is_more: bool, query: CurvesQuery
) -> sweep_answers.Curves:
    most = min(MOST_OF_RUN, max(FEWEST_OF_RUN, MOST_POINTS // max(1, len(runs))))
    found = []
    for run in runs:
        x, y = _track(files, cache, run, query, most)
        if x:
            found.append(sweep_answers.Curve(run.index, run.job, x, y))
    return sweep_answers.Curves(query.metric, query.x, found, is_more)


def _track(files: JobFiles, cache: CurveCache, run: Run, query: CurvesQuery, most: int) -> Track:
    path = files.report_of(JobId(run.job or 0), run.attempt)
    try:
        state = os.stat(path)
    except OSError:
        # It has reported nothing, or its files were deleted.
        return [], []
    began = serialization.moment(run.started_at) if query.x == "time" else None
    key = (path, state.st_size, state.st_mtime_ns, query.metric, query.x, most)
    if (track := cache.get(key)) is None:
        lines = tails.read(path, reports.COURSE_BYTES)
        points = reports.thinned(reports.track(_records(lines), query.metric, began, is_time=query.x == "time"), most)
        track = [x for x, _ in points], [y for _, y in points]
        cache.put(key, track)
    return track


def _records(lines: bytes) -> list[dict[str, object]]:
    """Return the objects of a report; at once if all lines are JSON, which is ten times as fast as one by one."""
    try:
        found = msgspec.json.Decoder().decode_lines(lines)
    except (msgspec.DecodeError, RecursionError):
        # A program wrote something else between them, or the first line is cut.
        return reports.records(lines)
    return [each for each in found if isinstance(each, dict)]
