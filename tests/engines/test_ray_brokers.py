"""Brokers as the daemon sees them: which starts they get, and what their files mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dibs.engines.protocol import Needs, Seen, Start
from dibs.engines.ray_brokers import ALWAYS, AUTO, ENOUGH, NEVER, RETRY_S, SHORT_S, STARTS_MAX, Brokers, Pace, split
from dibs.engines.ray_requests import Resources

GPU = Resources(1, 0.0, 0, {}, {})
RUNS = {"status": "RUNNING"}
NODES = {"4e84": "n1"}


class Lab:
    """Brokers whose Ray only takes note of what it is asked to run, and a clock that a test sets."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.now = 1000.0
        self.launched: list[tuple[str, str]] = []
        self.brokers = Brokers(
            folder, "python3", mode, lambda name, command: self.launched.append((name, command)), lambda: self.now
        )
        self.folder = folder

    def start(self, number: int, batch: int = 0) -> Start:
        return Start(f"dibs-a1b2c3-{number}.1.1", "/f", ("true",), Needs(gpus=1), 0, "x", "/out", batch)

    def submit(self, *numbers: int, batch: int = 0) -> dict[str, str]:
        """Submit what a broker is to get; the rest is not."""
        wanted = self.brokers.wanted([self.start(number, batch) for number in numbers])
        return self.brokers.submit([(start, GPU) for start in wanted]) if wanted else {}

    def report(self, *events: dict[str, Any], name: str | None = None) -> None:
        """Write events as the newest broker does."""
        folder = self.folder / (name or self.launched[-1][0])
        with open(folder / "events", "a") as file:
            file.write("".join(json.dumps(event) + "\n" for event in events))

    def poll(self, *refs: str, **rows: Any) -> dict[str, Seen]:
        """Poll; every broker runs unless `rows` says otherwise."""
        known: dict[str, object] = {name: RUNS for name, _ in self.launched}
        return self.brokers.poll(refs, known | rows, NODES)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, ALWAYS)


def test_starts_run_as_jobs_until_the_broker_is_ready(lab: Lab) -> None:
    assert lab.submit(1) == {}
    ((name, command),) = lab.launched
    assert name.startswith("dibs-a1b2c3-broker-")
    assert f"{name}/broker.py" in command
    lab.report({"ready": "2.60.0"})
    assert lab.submit(2) == {"dibs-a1b2c3-2.1.1": f"{name}:dibs-a1b2c3-2.1.1"}
    assert len(lab.launched) == 1
    request = json.loads((lab.folder / name / "requests").read_text())
    assert request["start"] == "dibs-a1b2c3-2.1.1"
    assert (request["argv"], request["output"], request["gpus"]) == (["true"], "/out", 1)


def test_what_a_broker_reports(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    refs = lab.submit(1, 2, 3, 4, 5, 6)
    key = "dibs-a1b2c3-{}.1.1".format
    lab.report(
        *({"key": key(number), "node": "4e84", "pid": 5} for number in (2, 3, 4, 5)),
        {"key": key(3), "code": 0},
        {"key": key(4), "code": -9},
        {"key": key(5), "gone": "WorkerCrashedError: died"},
        {"key": key(6), "gone": "stopped"},
    )
    seen = lab.poll(*refs.values())
    assert [seen[refs[key(number)]] for number in range(1, 7)] == [
        Seen("waiting", "waits for resources in Ray"),
        Seen("running", node="n1"),
        Seen("ended", code=0),
        Seen("ended", signal=9),
        Seen("gone", "WorkerCrashedError: died"),
        Seen("ended", "stopped"),
    ]


def test_half_a_line_is_read_when_it_is_complete(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    (ref,) = lab.submit(1).values()
    events = lab.folder / lab.launched[0][0] / "events"
    line = json.dumps({"key": split(ref)[1], "code": 3}) + "\n"
    with open(events, "a") as file:
        file.write(line[:10])
    assert lab.poll(ref)[ref].phase == "waiting"
    with open(events, "a") as file:
        file.write(line[10:])
    assert lab.poll(ref)[ref] == Seen("ended", code=3)


@pytest.mark.parametrize("row", [None, {"status": "FAILED"}])
def test_with_the_broker_its_unfinished_starts_are_gone(lab: Lab, row: object) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    refs = list(lab.submit(1, 2).values())
    lab.report({"key": split(refs[0])[1], "code": 0})
    name = lab.launched[0][0]
    rows = {} if row is None else {name: row}
    assert [seen.phase for seen in lab.brokers.poll(refs, rows, NODES).values()] == ["ended", "gone"]
    lab.submit(3)
    assert len(lab.launched) == 2


def test_a_broker_that_said_goodbye_gets_nothing_more(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    (ref,) = lab.submit(1).values()
    lab.report({"bye": 0})
    assert lab.submit(2) == {}
    assert len(lab.launched) == 2
    # It ended before it read that request.
    assert lab.poll(ref)[ref].phase == "gone"


def test_where_a_broker_cannot_run_starts_stay_jobs_and_the_reason_is_known(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"failed": "ModuleNotFoundError: No module named 'ray'"})
    assert lab.submit(1) == {}
    assert lab.submit(2) == {}
    assert "No module named 'ray'" in lab.brokers.problem
    assert len(lab.launched) == 1
    lab.now += RETRY_S
    lab.submit(3)
    assert len(lab.launched) == 2


def test_a_broker_whose_python_does_not_exist_is_known_by_its_output(lab: Lab) -> None:
    lab.submit(0)
    name = lab.launched[0][0]
    (lab.folder / name / "output").write_text("sh: 1: exec: /no/python: not found\n")
    lab.poll(**{name: {"status": "FAILED", "driver_exit_code": 127}})
    assert "/no/python: not found" in lab.brokers.problem


def test_a_broker_with_long_files_is_replaced(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    lab.submit(1)
    lab.brokers._known[lab.launched[0][0]].sent = STARTS_MAX
    lab.submit(2)
    assert len(lab.launched) == 2
    assert (lab.folder / lab.launched[0][0] / "requests").read_text().endswith('{"retire": true}\n')


def test_starts_are_found_again_by_a_new_daemon(lab: Lab, tmp_path: Path) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    refs = lab.submit(1, 2)
    again = Lab(tmp_path, ALWAYS)
    keys = {*refs, "dibs-a1b2c3-9.1.1"}
    assert again.brokers.find(keys) == {key: [ref] for key, ref in refs.items()}
    lab.report({"key": "dibs-a1b2c3-1.1.1", "code": 4})
    rows = {lab.launched[0][0]: RUNS}
    seen = again.brokers.poll(list(refs.values()), rows, NODES)
    assert [one.phase for one in seen.values()] == ["ended", "waiting"]


def test_stop_names_the_key(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    (ref,) = lab.submit(1).values()
    lab.brokers.stop([ref, "dibs-a1b2c3-broker-unknown:dibs-a1b2c3-7.1.1"])
    lines = (lab.folder / lab.launched[0][0] / "requests").read_text().splitlines()
    assert json.loads(lines[-1]) == {"stop": "dibs-a1b2c3-1.1.1"}


def test_never_means_never(tmp_path: Path) -> None:
    lab = Lab(tmp_path, NEVER)
    assert lab.submit(1, batch=5) == {}
    assert lab.launched == []


def test_only_batches_whose_members_proved_short_need_a_broker(tmp_path: Path) -> None:
    lab = Lab(tmp_path, AUTO)
    for number in range(ENOUGH):
        lab.submit(number, batch=5)
        lab.brokers.pace.note_sent(lab.start(number, 5), lab.now)
    assert lab.launched == []
    for number in range(ENOUGH):
        lab.brokers.pace.note_seen(lab.start(number).key, Seen("ended", code=0), lab.now + 1)
    lab.submit(10)
    assert lab.launched == []
    lab.submit(11, batch=5)
    assert len(lab.launched) == 1


def test_a_batch_with_a_long_member_is_not_short() -> None:
    pace = Pace()
    for number in range(ENOUGH + 1):
        pace.note_sent(Lab.start(None, number, 5), 0.0)  # type: ignore[arg-type]
    # The time in which it waits for its turn does not count.
    pace.note_seen("dibs-a1b2c3-0.1.1", Seen("waiting"), 500.0)
    pace.note_seen("dibs-a1b2c3-0.1.1", Seen("ended", code=0), 501.0)
    for number in range(1, ENOUGH):
        pace.note_seen(f"dibs-a1b2c3-{number}.1.1", Seen("ended", code=0), 1.0)
    assert pace.is_short(5)
    pace.note_seen(f"dibs-a1b2c3-{ENOUGH}.1.1", Seen("running"), SHORT_S + 1)
    assert not pace.is_short(5)


def test_as_many_wait_in_ray_as_ended_lately(lab: Lab) -> None:
    lab.submit(0)
    lab.report({"ready": "2.60.0"})
    lab.submit(1)
    assert lab.brokers.look_ahead(2) == 2
    for number in range(30):
        lab.brokers.pace.note_sent(lab.start(number), lab.now)
        lab.brokers.pace.note_seen(lab.start(number).key, Seen("ended", code=0), lab.now)
    assert lab.brokers.look_ahead(2) == 30
    lab.now += 60
    assert lab.brokers.look_ahead(2) == 2
