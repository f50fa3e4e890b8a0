"""`/v1/reservations`: list, make and cancel; the timeline shows them, and `dibs reserve` sees the same ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench import Bench
from dibs.errors import DibsError, NotFound, UserError
from dibs.model import serialization

HOUR_S = 3600.0


def moment(in_s: float) -> str:
    return serialization.moment(int((time.time() + in_s) * 1000))


def reserve(queue: Bench, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = queue.client.post("/v1/reservations", {"from": moment(HOUR_S), "for_s": HOUR_S, **fields})
    return made


def listed(queue: Bench) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = queue.client.get("/v1/reservations")["reservations"]
    return found


@pytest.fixture(autouse=True)
def none_is_left(queue: Bench) -> Iterator[None]:
    yield
    for one in listed(queue):
        queue.client.post(f"/v1/reservations/{one['id']}/cancel", {})


def test_a_reservation_is_made_listed_and_cancelled(queue: Bench) -> None:
    assert listed(queue) == []
    made = reserve(queue, gpu_ids=["1"], name="paper\x1b")
    assert (made["gpus"], made["gpu_ids"], made["name"]) == ([1], ["FAKE-1"], "paper")
    assert (made["state"], made["every"], made["is_ours"]) == ("planned", None, True)
    assert listed(queue) == [made]
    told = json.loads(queue.cli("reserve", "list", "--json").stdout)["reservations"]
    assert [(one["id"], one["gpus"], one["from"]) for one in told] == [(made["id"], [1], made["from"])]
    assert queue.client.post(f"/v1/reservations/{made['id']}/cancel", {}) == {"reservations": []}
    assert listed(queue) == []


def test_a_gpu_names_the_reservation_that_has_begun(queue: Bench) -> None:
    made = reserve(queue, gpu_ids=["1"], **{"from": moment(-1)})
    reserve(queue, gpu_ids=["2"])
    shown = {gpu["index"]: gpu["reservation"] for gpu in queue.client.get("/v1/gpus")["gpus"]}
    assert shown[1] == {**made, "state": "now"}
    assert shown[0] is shown[2] is None


def test_the_timeline_has_every_time_of_a_reservation(queue: Bench) -> None:
    made = reserve(queue, gpus=2, every="day")
    until = moment(60 * HOUR_S)
    kept = queue.client.get("/v1/timeline", [("until", until)])["reservations"]
    assert {one["id"] for one in kept} == {made["id"]}
    # In an hour, and a day and two days later.
    assert len(kept) == 3
    assert kept[0] == made
    assert len({one["from"] for one in kept}) == 3
    # As long as plans at least.
    assert len(queue.client.get("/v1/timeline")["reservations"]) == 1


def test_a_reservation_that_has_begun_is_for_now(queue: Bench) -> None:
    assert reserve(queue, gpus=1, **{"from": moment(-60)})["state"] == "now"
    assert [one["state"] for one in listed(queue)] == ["now"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"from": "soon"}, "from expected a time"),
        ({"from": "2020-01-01T00:00:00Z"}, "ends in the future"),
        ({"gpu_ids": ["9"]}, "gpu_ids expected an index or UUID of a GPU"),
        ({"gpus": 3, "gpu_ids": ["0"]}, "of 1 that are named"),
        ({"for_s": 0}, "for_s"),
        ({"every": "year"}, "every"),
        ({"user": "nobody-of-that-name"}, "there is no user"),
        ({"gpus": 9}, "are requested"),
    ],
)
def test_a_wrong_reservation_is_refused_in_words(queue: Bench, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(DibsError, match=says):
        reserve(queue, **fields)
    assert listed(queue) == []


def test_gpus_that_are_reserved_cannot_be_reserved_again(queue: Bench) -> None:
    reserve(queue, gpu_ids=["0"])
    with pytest.raises(DibsError, match="can be reserved for that time"):
        reserve(queue, gpu_ids=["0"])


def test_an_unknown_reservation_cannot_be_cancelled(queue: Bench) -> None:
    with pytest.raises(NotFound, match="there is no reservation 77"):
        queue.client.post("/v1/reservations/77/cancel", {})


def test_a_reservation_needs_its_times(queue: Bench) -> None:
    with pytest.raises(UserError, match="from"):
        queue.client.post("/v1/reservations", {"for_s": 60})
