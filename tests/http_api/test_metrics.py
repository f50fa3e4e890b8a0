"""`GET /metrics` of a real daemon, read as Prometheus does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import exposed
from bench import Bench, wait_for
from dibs.http_api import metrics as metrics_route
from event_listener import Listener, ask
from exposed import Read

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"


def metrics(queue: Bench) -> dict[str, Read]:
    head, _, body = ask(queue, "GET /metrics HTTP/1.1").partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    return exposed.read(body.decode())


def value(found: dict[str, Read], family: str, /, **labels: str) -> float:
    """Return the value of a metric with these labels."""
    [told] = [one for (_, have), one in found[family].samples.items() if labels.items() <= dict(have).items()]
    return told


def _counted(found: dict[str, Read]) -> tuple[float, float]:
    """Return how many attempts ended, and how many jobs started."""
    ended = sum(found.get("dibs_attempts_ended_total", Read("")).samples.values())
    return ended, found["dibs_wait_seconds"].samples["dibs_wait_seconds_count", ()]


def test_queue_devices_and_daemon_have_metrics(bench: Bench) -> None:
    bench.start()
    bench.until(bench.add("true", gpus=1))
    bench.until(bench.add("exit 3", gpus=1))
    running = bench.long_job(gpus=2)
    bench.add("true", gpus=0, hold=True)
    # A turn is counted after the clients that waited for it were answered.
    found = wait_for(lambda: metrics(bench), lambda now: _counted(now) == (2, 3))
    assert value(found, "dibs_jobs", state="held") == 1
    assert value(found, "dibs_jobs", state="running") == 1
    assert value(found, "dibs_attempts_ended_total", outcome="done", cause="") == 1
    assert value(found, "dibs_attempts_ended_total", outcome="failed", cause="exit") == 1
    assert found["dibs_turn_seconds"].samples["dibs_turn_seconds_count", ()] > 3
    held = bench.job(running)["gpu_ids"]
    assert {dict(have)["id"] for (_, have), jobs in found["dibs_gpu_jobs"].samples.items() if jobs} == {*held}
    assert value(found, "dibs_gpu_healthy", gpu="0", id="FAKE-0", name="Pretend GPU") == 1
    assert value(found, "dibs_gpu_memory_total_bytes", gpu="3") > 0
    assert value(found, "process_open_fds") < value(found, "process_max_fds")
    assert value(found, "process_resident_memory_bytes") > 10e6
    assert value(found, "dibs_store_bytes") > 0
    assert value(found, "dibs_event_streams") == 0
    one = Listener(bench)
    wait_for(lambda: value(metrics(bench), "dibs_event_streams"), lambda now: now == 1)
    one.close()
    wait_for(lambda: value(metrics(bench), "dibs_event_streams"), lambda now: now == 0)
    missing = {name for name in found if f"`{name}`" not in PAGE.read_text()}
    assert not missing


def test_the_documentation_names_every_metric_of_a_device() -> None:
    """Also those that pretend GPUs do not have."""
    page = PAGE.read_text()
    assert not [name for name, *_ in metrics_route.DEVICE_NUMBERS if f"`dibs_gpu_{name}`" not in page]


def test_the_documentation_names_only_existing_metrics(queue: Bench) -> None:
    told = {*metrics(queue), *(f"dibs_gpu_{name}" for name, *_ in metrics_route.DEVICE_NUMBERS)}
    only_sometimes = {"dibs_attempts_ended_total", "dibs_gpu_look_age_seconds"}
    named = set(re.findall(r"`((?:dibs|process)_\w+)`", PAGE.read_text()))
    assert named - only_sometimes <= told


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_only_reading_is_allowed(queue: Bench, method: str) -> None:
    assert b" 405 " in ask(queue, f"{method} /metrics HTTP/1.1").partition(b"\r\n")[0]
