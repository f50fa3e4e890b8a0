"""Devices of a fake driver in the event stream and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import exposed
from bench import Bench
from event_listener import Heard, Listener, ask
from fakes.nvml import world

CARD = "gpu 0 uuid=GPU-aaaa bus=00000000:01:00.0"


@pytest.fixture
def seen(nvml: world.World, tmp_path: Path) -> Iterator[Bench]:
    """Start a queue over one unused card."""
    nvml.is_now(CARD)
    made = Bench(tmp_path, "", **nvml.environ)
    made.start()
    yield made
    made.close()


def test_foreign_use_of_a_card_is_sent_to_listeners(seen: Bench, nvml: world.World, stranger: int) -> None:
    """Nobody requests the devices and no job runs: a listener is reason enough to read them."""

    def is_foreign(heard: Heard) -> bool:
        return heard.event == "gpus" and heard.data["gpus"][0]["state"] == "foreign"

    one = Listener(seen)
    assert one.until(lambda heard: heard.event == "gpus").data["gpus"][0]["state"] == "free"
    nvml.is_now(CARD, f"proc 0 pid={stranger} mem={3 * 2**30}")
    assert one.until(is_foreign).data["gpus"][0]["processes"][0]["pid"] == stranger
    one.close()
    found = exposed.read(ask(seen, "GET /metrics HTTP/1.1").partition(b"\r\n\r\n")[2].decode())
    [((_, labels), is_used)] = found["dibs_gpu_foreign"].samples.items()
    assert (dict(labels)["id"], is_used) == ("GPU-aaaa", 1)
    assert found["dibs_gpu_look_age_seconds"].samples["dibs_gpu_look_age_seconds", ()] >= 0
