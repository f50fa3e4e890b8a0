"""Writing the day down: into the store by its own verbs with past times, and into files as runners leave them.

Nothing here invents a state: every job is submitted, placed, started and ended by `writer.Store.record`, so what the
rules of `lifecycle` refuse cannot be in the demo.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dibs.devices.usage import Minute, Sample, Use
from dibs.jobqueue import thread
from dibs.model import environment, environment_names, lifecycle
from dibs.model.devices import DeviceId
from dibs.model.fields import JobSpec
from dibs.model.jobs import After, JobId, Request, When
from dibs.store.writer import Store
from dibs.sweeps import values
from dibs.sweeps.records import SweepSubmission
from dibs.system import paths
from pretend import cards, day, training
from pretend.day import Day, Work

MINUTE_MS = 60_000
GB = 2**30

#: How the store spells a bad end.
ENDS: dict[str, dict[str, object]] = {
    "done": {"exit_code": 0},
    "oom": {"exit_code": 1, "out_of_memory": True},
    "nan": {"exit_code": 1},
    "data": {"exit_code": 1},
    "timeout": {"signal": 15, "timed_out": True},
    "cancelled": {"signal": 15, "was_stopped": True},
}
SWEEPS = {
    day.RUN.name: SweepSubmission(
        day.RUN.project,
        day.RUN.name,
        "python train.py --lr {lr} --wd {wd} --bs {bs} --opt {opt} --drop {drop}",
        metric="acc",
        goal="maximize",
    ),
    day.SEEDS.name: SweepSubmission(
        day.SEEDS.project,
        day.SEEDS.name,
        "python train.py --model {model} --seed {seed} --bs 32",
        metric="loss",
        goal="minimize",
    ),
}


@dataclass(frozen=True)
class Place:
    """Where the demo lives."""

    home: Path
    #: The folder in which its jobs run.
    lab: Path


def write(place: Place, story: Day, now: int) -> dict[str, JobId]:
    """Write all of the day into a new store; return the ids of its jobs by name."""
    store = Store.open(paths.database(place.home))
    try:
        with store.batch(is_synced=False):
            ids = _submit(store, place, [*story.past, *story.running, *story.waiting], now)
            for _, _, happen in sorted(_happenings(store, story, ids, now), key=lambda one: one[:2]):
                happen()
            _hold(store, story, ids, now)
            store.drain(cards.uuid(day.DRAINED), day.DRAIN_REASON, now + day.DRAINED_SINCE * MINUTE_MS)
            _keep_uses(store, story, ids, now)
    finally:
        store.close()
    for work in story.past:
        _write_files(place.home, ids[work.name], work, now)
    return ids


# -- submitting


def _submit(store: Store, place: Place, works: list[Work], now: int) -> dict[str, JobId]:
    """Submit everything in the order of the day; the runs of a sweep together."""
    path = os.pathsep.join((str(Path(os.sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"))
    blob = environment_names.pack({b"PATH": path.encode(), b"HOME": str(place.lab).encode(), b"LANG": b"C.UTF-8"})
    environ_id = store.keep_environ(blob)
    sweeps: dict[str, tuple[int, int]] = {}
    ids: dict[str, JobId] = {}
    for work in sorted(works, key=lambda one: (one.submitted, one.sweep or "", _index(one))):
        at = now + round(work.submitted * MINUTE_MS)
        spec = _asked(work, place, environ_id, ids, now)
        if work.sweep is not None:
            if work.sweep not in sweeps:
                batch = store.add_batch(day.AT_ONCE if work.sweep == day.RUN.name else None, None, 0)
                sweeps[work.sweep] = (store.add_sweep(SWEEPS[work.sweep], batch, at), batch)
            sweep_id, batch = sweeps[work.sweep]
            spec = _of_sweep(spec, work, sweep_id, batch)
            store.grow_batch(batch, 1)
        ids[work.name] = store.submit([spec], at)[0]
    return ids


def _index(work: Work) -> int:
    return int(str(work.params.get("index", 0)))


def _asked(work: Work, place: Place, environ_id: int, ids: dict[str, JobId], now: int) -> JobSpec:
    limit_s = None if work.limit_h is None else work.limit_h * 3600
    return JobSpec(
        work.command,
        None,
        str(place.lab),
        Request(gpus=max(work.gpus, work.kind.gpus), limit_s=limit_s),
        name=work.name,
        project=work.kind.project,
        priority=work.priority,
        tags=work.tags,
        environ_id=environ_id,
        after=(After(ids[work.after], When.DONE),) if work.after else (),
        begin_at=None if work.begin is None else now + round(work.begin * MINUTE_MS),
        retries=len(work.earlier),
    )


def _of_sweep(spec: JobSpec, work: Work, sweep_id: int, batch: int) -> JobSpec:
    params = {key: value for key, value in work.params.items() if key != "index"}
    return replace(
        spec,
        sweep_id=sweep_id,
        sweep=work.sweep,
        batch=batch,
        index=_index(work),
        point=values.identity(params),
        params=json.dumps(params),
    )


# -- what happened

Happening = tuple[int, int, Callable[[], object]]


def _happenings(store: Store, story: Day, ids: dict[str, JobId], now: int) -> Iterator[Happening]:
    """Yield all that happened to past jobs, with its time and its place among what happened then."""
    for work in story.past:
        for at, order, event in _events(work, now):
            yield at, order, lambda job=ids[work.name], event=event: store.record(store.job(job), event)


def _events(work: Work, now: int) -> Iterator[tuple[int, int, lifecycle.Event]]:
    devices = tuple(DeviceId(cards.uuid(lane)) for lane in work.lanes)
    attempts = list(_attempts(work, now))
    for number, (began, ended, end) in enumerate(attempts, 1):
        yield began - 40, 1, lifecycle.Placed(began - 40, devices)
        yield began, 2, lifecycle.Started(began, 20_000 + (began // 1000) % 9_000)
        yield ended, 3, lifecycle.Ended(ended, started_at=began, **ENDS[end])  # type: ignore[arg-type]
        if number < len(attempts):
            yield ended, 4, lifecycle.RetryAsked(ended, is_automatic=True)


def _attempts(work: Work, now: int) -> Iterator[tuple[int, int, str]]:
    """Yield when each attempt began and ended, and how; those before the last took a tenth of its time."""
    took, began = work.took or 0.0, now + round(work.began * MINUTE_MS)
    short = round(took * MINUTE_MS / 10)
    for end in work.earlier:
        yield began, began + short, end
        began += short + 900
    yield began, now + round((work.began + took) * MINUTE_MS), work.end


def _hold(store: Store, story: Day, ids: dict[str, JobId], now: int) -> None:
    for work in story.waiting:
        if work.is_held:
            at = now + round((work.submitted + 2) * MINUTE_MS)
            store.record(store.job(ids[work.name]), lifecycle.HoldAsked(at))


# -- how busy the GPUs were


def _keep_uses(store: Store, story: Day, ids: dict[str, JobId], now: int) -> None:
    minutes: dict[Minute, Sample] = {}
    over = {}
    busy = {(lane, at): work for work in (*story.past, *story.running) for lane in work.lanes for at in _minutes(work)}
    for lane in range(day.GPUS):
        for at in range(-day.DAY, 0):
            _keep_minute(minutes, lane, now // MINUTE_MS + at, cards.reading(lane, at, busy.get((lane, at))))
    for work in story.past:
        for lane in work.lanes:
            use = Use()
            for at in _minutes(work):
                use.add(work.kind.memory_gb * GB, cards.reading(lane, at, work).utilization)
            if use.looks:
                over[ids[work.name], len(work.earlier) + 1, DeviceId(cards.uuid(lane))] = use
    store.keep_uses(over, minutes, 0)


def _keep_minute(minutes: dict[Minute, Sample], lane: int, minute: int, shown: cards.Reading) -> None:
    minutes[DeviceId(cards.uuid(lane)), minute] = Sample(
        minute * MINUTE_MS, shown.memory, shown.utilization, shown.power_w, shown.temperature
    )


def _minutes(work: Work) -> Iterable[int]:
    end = 0 if work.took is None else round(work.began + work.took)
    return range(round(work.began), end)


# -- what runners leave


def _write_files(home: Path, job_id: JobId, work: Work, now: int) -> None:
    folder = home / "jobs" / str(job_id)
    attempts = list(_attempts(work, now))
    args = training.parse(work.command.split()[2:])
    for attempt, (began, ended, end) in enumerate(attempts, 1):
        epochs = list(training.epochs(args))
        part = 1.0 if end == "done" else {"oom": 0.08, "data": 0.0}.get(end, 0.55)
        shown = epochs[: round(len(epochs) * part)]
        own = folder / str(attempt)
        own.mkdir(parents=True, mode=0o700)
        text = training.header(args) + "".join(epoch.text for epoch in shown)
        text += training.TROUBLES.get(end, f"{training.GREEN}saved checkpoints/last.pt{training.PLAIN}\n")
        _write(own / "log", text)
        step = (ended - began) / max(1, len(shown))
        moments = (datetime.fromtimestamp((began + step * n) / 1000, UTC) for n in range(1, len(shown) + 1))
        lines = [training.report_line(epoch.numbers, at) for epoch, at in zip(shown, moments, strict=True)]
        _write(Path(environment.report_path(attempt, str(folder))), "".join(lines))
    os.symlink(f"{len(attempts)}/log", folder / "log")


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", newline="") as file:
        file.write(text)


# -- those that run now


def back_date(home: Path, story: Day, ids: dict[str, JobId], now: int) -> None:
    """Let the jobs that were started a moment ago have begun when the day says. Only while no daemon runs."""
    store = Store.open(paths.database(home))
    try:
        with store.batch():
            # What the first daemon saw: the cards before its jobs had begun.
            store.connection.execute("DELETE FROM minutes WHERE minute >= ?", (now // MINUTE_MS,))
            store.keep_uses({}, _minutes_since(story, now), 0)
            for work in story.running:
                began, job_id = now + round(work.began * MINUTE_MS), ids[work.name]
                store.connection.execute("UPDATE jobs SET started_at = ? WHERE id = ?", (began, job_id))
                # Events are never altered, so each is taken out and put back with its own number.
                store.connection.execute(
                    "INSERT OR REPLACE INTO events (id, job, at, kind, detail) "
                    "SELECT id, job, ? - (kind = 'Placed') * 40, kind, detail FROM events "
                    "WHERE job = ? AND kind IN ('Placed', 'Started')",
                    (began, job_id),
                )
    finally:
        store.close()


def _minutes_since(story: Day, now: int) -> dict[Minute, Sample]:
    """Return how busy the GPUs were while all of this was prepared, so that no chart has a hole there."""
    minutes: dict[Minute, Sample] = {}
    holder = {lane: work for work in story.running for lane in work.lanes}
    for lane in range(day.GPUS):
        for at in range(thread.now_ms() // MINUTE_MS - now // MINUTE_MS):
            _keep_minute(minutes, lane, now // MINUTE_MS + at, cards.reading(lane, at, holder.get(lane)))
    return minutes
