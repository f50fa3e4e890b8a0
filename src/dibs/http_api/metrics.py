"""`GET /metrics`: metrics of the queue, the GPUs and the daemon for Prometheus.

A request does not read the GPUs: it reports the last reading, and keeps readings frequent for a while.
"""

from __future__ import annotations

import itertools
import math
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.http_api import queue
from dibs.http_api.event_stream import Channel
from dibs.jobqueue.counters import Histogram, Tally
from dibs.model.devices import Device
from dibs.store.writer import Reader
from dibs.system import paths
from dibs.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a value with labels."""

    value: float
    labels: Labels = field(default_factory=dict)
    #: Appended to the name; distinguishes the lines of a histogram.
    suffix: str = ""


async def get_metrics(daemon: Daemon, channel: Channel) -> web.Response:
    """Return metrics of the queue, the GPUs and the daemon for Prometheus."""
    daemon.watcher.note_viewer()
    found = await daemon.ask(lambda reader: [*_queue(reader), *_devices(daemon, reader), *_process(daemon)])
    families = [*found, *_counted(daemon.counters), *_daemon(daemon, len(channel.hub.streams))]
    return web.Response(text="".join(families), headers={"Content-Type": CONTENT_TYPE})


def _queue(reader: Reader) -> Iterator[str]:
    state = queue.queue_state(reader)
    words = [Sample(count, {"state": word}) for word, count in state.counts.items()]
    yield gauge("dibs_jobs", "Jobs by state; finished ones until they are deleted.", *words)
    yield gauge("dibs_queue_paused", "1 while the queue is paused.", Sample(state.queue.paused))


def _counted(tally: Tally) -> Iterator[str]:
    ends = [Sample(n, {"outcome": outcome, "cause": cause}) for (outcome, cause), n in sorted(tally.ends.items())]
    yield counter("dibs_attempts_ended_total", "Attempts that ended, by outcome and cause.", *ends)
    yield histogram("dibs_wait_seconds", "From submit, or --begin, to the first start of a job.", tally.waits)
    yield histogram("dibs_gap_seconds", "Idle time of a GPU between two jobs, if the second was waiting.", tally.gaps)
    yield histogram("dibs_turn_seconds", "Duration of a scheduling round.", tally.turns)


#: Metrics of a GPU: name, help text, and how to read the value; None if the driver does not report it.
DEVICE_NUMBERS: tuple[tuple[str, str, Callable[[Device], float | None]], ...] = (
    (
        "utilization_ratio",
        "Share of the time in which the GPU was busy.",
        lambda d: d.utilization and d.utilization / 100,
    ),
    ("memory_used_bytes", "Memory in use.", lambda d: d.memory_used),
    ("memory_total_bytes", "Memory of the GPU.", lambda d: d.memory_total),
    ("temperature_celsius", "Temperature.", lambda d: d.temperature),
    ("power_watts", "Power drawn.", lambda d: d.power),
    ("ecc_errors", "Uncorrectable memory errors since the driver was loaded.", lambda d: d.ecc_errors),
    ("healthy", "0 if the GPU has a problem and no job starts on it.", lambda d: d.fault is None),
    ("drained", "1 if the GPU is drained.", lambda d: d.drained is not None),
    ("foreign", "1 if a foreign process uses the GPU.", lambda d: d.foreign is not None),
)


def _devices(daemon: Daemon, reader: Reader) -> Iterator[str]:
    devices = daemon.inventory.devices
    for name, about, read in DEVICE_NUMBERS:
        told = [(device, read(device)) for device in devices]
        samples = [Sample(value, _labels(device)) for device, value in told if value is not None]
        yield gauge(f"dibs_gpu_{name}", about, *samples)
    held = [device for job in reader.active_devices() for device in job.devices]
    jobs = [Sample(held.count(device.id), _labels(device)) for device in devices]
    yield gauge("dibs_gpu_jobs", "Jobs of this queue on the GPU.", *jobs)
    age_s = daemon.devices.age_s
    ages = [] if age_s is None else [Sample(age_s)]
    yield gauge("dibs_gpu_look_age_seconds", "Age of the GPU readings, while GPUs are read.", *ages)


def _labels(device: Device) -> dict[str, str]:
    return {"gpu": str(device.index), "id": device.id, "name": device.name}


def _daemon(daemon: Daemon, streams: int) -> Iterator[str]:
    yield gauge("dibs_build_info", "Always 1; the version is a label.", Sample(1, {"version": __version__}))
    waiting = daemon.pending_work
    yield gauge(
        "dibs_requests_waiting", "Requests and messages that wait for the next scheduling round.", Sample(waiting)
    )
    # Without this request's own question.
    asked = max(0, daemon.readers.pending - 1)
    yield gauge("dibs_questions_waiting", "Database reads in progress or waiting.", Sample(asked))
    yield gauge("dibs_event_streams", "Listeners to GET /v1/events.", Sample(streams))


def _process(daemon: Daemon) -> Iterator[str]:
    """Return the standard Prometheus process metrics, and the size of the store."""
    database = paths.database(daemon.identity.home)
    size = sum(_size(Path(f"{database}{end}")) for end in ("", "-wal"))
    yield gauge("dibs_store_bytes", "Size of the database and its log.", Sample(size))
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "CPU time of the daemon.", Sample(used.ru_utime + used.ru_stime))
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    yield gauge("process_resident_memory_bytes", "Memory of the daemon.", Sample(resident))
    yield gauge("process_open_fds", "Open files of the daemon.", Sample(len(os.listdir("/proc/self/fd"))))
    yield gauge(
        "process_max_fds",
        "Maximum number of open files of the daemon.",
        Sample(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    )
    started_s = daemon.identity.started_at / 1000
    yield gauge("process_start_time_seconds", "Start time of the daemon, in seconds since 1970.", Sample(started_s))
    yield gauge("dibs_uptime_seconds", "Seconds since the daemon started.", Sample(max(0.0, time.time() - started_s)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        # SQLite deletes the WAL file when the last connection closes.
        return 0


# -- the text format of Prometheus, version 0.0.4 ----------------------------------------------------------------


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
    lines += [f"{name}{one.suffix}{_label_text(one.labels)} {number(one.value)}" for one in samples]
    return "\n".join(lines) + "\n"


def _label_text(labels: Labels) -> str:
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
