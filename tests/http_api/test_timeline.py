"""`/v1/timeline`, `/v1/settings`, `/v1/doctor`: what the page shows about the whole machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import Bench
from dibs.errors import UserError
from dibs.model import serialization
from dibs.system import settings


def bars(queue: Bench, **query: str) -> dict[int, dict[str, Any]]:
    return {bar["job"]: bar for bar in queue.client.get("/v1/timeline", list(query.items()))["bars"]}


def test_a_timeline_has_past_running_and_planned_jobs(queue: Bench) -> None:
    """The plan as far as it is known: the second in line starts when the limit of the first one is over."""
    done = queue.add("true", name="past")
    queue.until(done)
    running = [queue.long_job(name=f"now{n}", time_limit_s=3600) for n in range(4)]
    first, second = (queue.add("true", name=f"next{n}", gpus=4, time_limit_s=600) for n in range(2))
    told = bars(queue)
    assert [told[n]["is_plan"] for n in (done, *running, first, second)] == [False] * 5 + [True] * 2
    assert told[done]["state"] == "done"
    assert told[done]["from"] <= told[done]["to"]
    assert {told[n]["to"] for n in running} == {None}
    ends = [serialization.parse_moment(told[n]["from"]) + 3_600_000 for n in running]
    assert [serialization.parse_moment(told[n]["expected_end"]) for n in running] == ends
    assert serialization.parse_moment(told[first]["from"]) == max(ends)
    assert {told[n]["expected_end"] for n in (done, first, second)} == {None}
    assert sorted(told[n]["gpu_ids"][0] for n in running) == [f"FAKE-{n}" for n in range(4)]
    assert sorted(told[first]["gpu_ids"]) == [f"FAKE-{n}" for n in range(4)]
    assert told[second]["from"] == told[first]["to"]
    lanes = queue.client.get("/v1/timeline")["lanes"]
    assert lanes[0] == {"gpu_id": "FAKE-0", "index": 0, "name": "Pretend GPU"}
    assert done not in bars(queue, since="2099-01-01")
    assert done not in bars(queue, since="9d", until="8d")


def test_a_job_without_a_limit_has_no_expected_end(queue: Bench) -> None:
    queue.cancel("all", grace_s=0)
    running = queue.long_job()
    assert bars(queue)[running]["expected_end"] is None


def test_every_attempt_is_a_bar(queue: Bench) -> None:
    queue.cancel("all", grace_s=0)
    job_id = queue.add("false")
    queue.until(job_id)
    queue.retry(job_id)
    queue.until(job_id)
    told = [bar for bar in queue.client.get("/v1/timeline")["bars"] if bar["job"] == job_id]
    assert [(bar["attempt"], bar["state"]) for bar in told] == [(1, "failed"), (2, "failed")]


@pytest.mark.parametrize("query", [{"since": "soon"}, {"until": "99999-01-01"}, {"since": "3"}])
def test_an_invalid_time_is_refused(queue: Bench, query: dict[str, str]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(query))} expected a time"):
        bars(queue, **query)


def test_settings_are_those_of_the_daemon(queue: Bench) -> None:
    told = queue.client.get("/v1/settings")
    rows = {row["name"]: row for row in told["settings"]}
    assert rows.keys() == {setting.name for setting in settings.SETTINGS}
    assert rows["devices"]["value"] == "fake:4"
    assert rows["devices"]["source"] == "DIBS_DEVICES"
    assert rows["grace"]["source"] == "default"
    assert all(row["help"] for row in rows.values())
    assert Path(told["home"]) == queue.home


def test_the_page_and_the_command_line_have_the_same_doctor(queue: Bench) -> None:
    told = queue.client.get("/v1/doctor", patience_s=120)["checks"]
    assert {check["state"] for check in told} <= {"ok", "warn", "bad"}
    assert {"python", "settings", "gpus", "state", "leases"} <= {check["name"] for check in told}
    assert "daemon" not in {check["name"] for check in told}
    assert next(check for check in told if check["name"] == "python")["state"] == "ok"


def test_usage_lists_every_day_and_its_users(queue: Bench) -> None:
    done = queue.add("true", name="short", project="vision", gpus=2)
    queue.until(done)
    found = queue.client.get("/v1/usage", [("days", "3")])
    assert len(found["days"]) == 3
    assert found["days"][0]["from"] <= queue.job(done)["finished_at"] < found["days"][-1]["to"]
    assert found["sums"][0].keys() == {
        "day", "project", "sweep", "gpu_s", "watched_s", "idle_s", "group", "used_s", "jobs", "waited_s",
    }  # fmt: skip
    assert "vision" in {one["project"] for one in found["sums"]}
    assert found["waits"]["count"] >= 1
    for wrong in ("0", "367", "many"):
        with pytest.raises(UserError, match="days: expected a"):
            queue.client.get("/v1/usage", [("days", wrong)])
