"""Ray as an engine: against a server that pretends, and against a real cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import wait_for
from dibs import errors
from dibs.engines.protocol import Needs, Refused, Seen, Start, Unavailable
from dibs.engines.ray import STALE_S, Ray
from fake_ray import FakeRay
from ray_cluster import RayCluster

PATIENCE_S = 180.0
ONE_GPU = Needs(gpus=1)


def make(address: str, shared: Path, token_file: str | None = None, **more: Any) -> Ray:
    return Ray("lab", address, token_file, {"HOME": str(shared)}, shared, **more)


def start(
    folder: Path, number: int, argv: tuple[str, ...] = ("true",), needs: Needs = ONE_GPU, batch: int = 0
) -> Start:
    output = str(folder / f"engine.{number}")
    return Start(f"dibs-a1b2c3-{number}.1.1", str(folder), argv, needs, 0, f"job {number}", output, batch)


# -- a server that pretends ---------------------------------------------------------------------------------------


class Jobs:
    """The jobs of a pretended Ray."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.padding = 0

    def __call__(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        name = path.split("/")[3] if path.startswith("/api/jobs/") else ""
        match method, path:
            case "GET", "/api/jobs/":
                return 200, [*self.rows.values(), {"type": "DRIVER", "submission_id": None, "x": "x" * self.padding}]
            case "POST", "/api/jobs/":
                if body["submission_id"] in self.rows:
                    return 500, "Traceback\nValueError: Job with submission_id already exists.\n"
                self.rows[body["submission_id"]] = {"submission_id": body["submission_id"], "status": "PENDING"}
                return 200, {}
            case "DELETE", _:
                if name in self.rows and self.rows[name]["status"] == "PENDING":
                    return 500, "RuntimeError: it is in a non-terminal state"
                return (200, {}) if self.rows.pop(name, None) else (404, "no")
            case "POST", _:
                return (200, {}) if name in self.rows else (404, "no")
            case _ if name:
                return (200, self.rows[name]) if name in self.rows else (404, "no")
            case _:
                return 200, {"data": {"result": {"result": []}}}


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def fake(jobs: Jobs) -> Iterator[FakeRay]:
    own = FakeRay(jobs)
    yield own
    own.close()


def test_the_same_start_submitted_twice_is_one_job(fake: FakeRay, jobs: Jobs, tmp_path: Path) -> None:
    engine = make(fake.address, tmp_path)
    one = start(tmp_path, 1)
    assert engine.submit([one]) == engine.submit([one]) == {one.key: one.key}
    assert list(jobs.rows) == [one.key]


def test_what_ray_refuses_for_ever_and_what_it_may_take_later(fake: FakeRay, tmp_path: Path) -> None:
    engine = make(fake.address, tmp_path)
    one = start(tmp_path, 1)
    inner = "RuntimeError: Request failed with status code 400: Traceback\nValueError: Invalid label key\n."
    fake.reply = lambda method, path, body: (500, inner)
    assert engine.submit([one]) == {one.key: Refused("Ray refused it: ValueError: Invalid label key", is_final=True)}
    fake.reply = lambda method, path, body: (500, "No available agent to submit job, please try again later.")
    refused = engine.submit([one])[one.key]
    assert isinstance(refused, Refused)
    assert not refused.is_final


def test_what_was_taken_before_ray_stopped_answering_is_known(fake: FakeRay, jobs: Jobs, tmp_path: Path) -> None:
    engine = make(fake.address, tmp_path)

    def one_only(method: str, path: str, body: Any) -> tuple[int, Any] | bytes:
        return jobs(method, path, body) if not jobs.rows else b"garbage"

    fake.reply = one_only
    starts = [start(tmp_path, number) for number in range(3)]
    assert list(engine.submit(starts)) == [starts[0].key]
    with pytest.raises(Unavailable):
        engine.submit(starts[1:])


def test_unknown_jobs_are_missing_in_the_answer(fake: FakeRay, jobs: Jobs, tmp_path: Path) -> None:
    engine = make(fake.address, tmp_path)
    one = start(tmp_path, 1)
    engine.submit([one])
    assert set(engine.poll([one.key, "dibs-a1b2c3-9.1.1"])) == {one.key}
    assert engine.find([one.key, "dibs-a1b2c3-9.1.1"]) == {one.key: [one.key]}


def test_on_a_crowded_cluster_jobs_are_asked_for_one_by_one(fake: FakeRay, jobs: Jobs, tmp_path: Path) -> None:
    engine = make(fake.address, tmp_path)
    one = start(tmp_path, 1)
    engine.submit([one])
    jobs.padding = 5 << 20
    assert engine.poll([one.key, "dibs-a1b2c3-9.1.1"]) == {one.key: Seen("waiting", "waits for resources in Ray")}


def test_a_job_that_cannot_be_deleted_yet_is_deleted_later(fake: FakeRay, jobs: Jobs, tmp_path: Path) -> None:
    """Ray stops a job that waits only when its turn comes."""
    engine = make(fake.address, tmp_path)
    one, two = start(tmp_path, 1), start(tmp_path, 2)
    engine.submit([one, two])
    engine.stop([one.key, "dibs-a1b2c3-9.1.1"], now=False)
    engine.forget([one.key])
    assert one.key in jobs.rows
    jobs.rows[one.key]["status"] = "STOPPED"
    wait_for(lambda: list(engine.poll([two.key])) and list(jobs.rows), lambda left: left == [two.key])


def test_only_old_jobs_of_our_own_are_removed_unasked(fake: FakeRay, jobs: Jobs, tmp_path: Path) -> None:
    engine = make(fake.address, tmp_path)
    one = start(tmp_path, 1)
    engine.submit([one])
    long_ago = (time.time() - STALE_S - 1) * 1000
    for name, ended in {
        "dibs-a1b2c3-7.1.1": long_ago,
        "dibs-a1b2c3-8.1.1": time.time() * 1000,
        "other": long_ago,
    }.items():
        jobs.rows[name] = {"submission_id": name, "status": "SUCCEEDED", "end_time": ended}
    engine.poll([one.key])
    assert sorted(jobs.rows) == [one.key, "dibs-a1b2c3-8.1.1", "other"]


@pytest.mark.parametrize("token_file", [None, "/no/token"])
def test_an_address_beyond_this_machine_needs_a_token(tmp_path: Path, token_file: str | None) -> None:
    engine = make("http://192.0.2.99:8265", tmp_path, token_file)
    with pytest.raises(errors.NotAllowed, match="token") as caught:
        engine.refuse(ONE_GPU, [])
    assert caught.value.exit_code == 4
    # Nothing is sent there either, whatever the settings said before.
    with pytest.raises(Unavailable, match="token"):
        engine.nodes()


# -- a real cluster -----------------------------------------------------------------------------------------------


@pytest.fixture
def engine(ray: RayCluster, tmp_path: Path) -> Ray:
    return make(ray.address, tmp_path, str(ray.token_file), python=str(ray.python))


def names(ray: RayCluster) -> set[str]:
    return {row["submission_id"] for row in ray.request("GET", "/api/jobs/")}


def until(engine: Ray, refs: list[str], phase: str) -> dict[str, Seen]:
    def look() -> dict[str, Seen]:
        return {ref: engine.poll(refs).get(ref, Seen("gone")) for ref in refs}

    return wait_for(look, lambda seen: all(one.phase == phase for one in seen.values()), PATIENCE_S)


def test_jobs_on_a_real_cluster(ray: RayCluster, engine: Ray, tmp_path: Path) -> None:
    """All facts in one pass, because each job of Ray costs seconds: codes, devices, output, free GPUs, removal."""
    # Ray lists nodes that other tests killed as down.
    nodes = [node for node in engine.nodes() if node.is_up]
    assert [(node.gpus, node.cpus) for node in nodes] == [(4, 8)] * 2
    starts = [
        start(tmp_path, 1, ("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"; exit 7'), Needs(gpus=2)),
        start(tmp_path, 2, ("sh", "-c", "kill -9 $$"), Needs()),
        start(tmp_path, 3, ("sh", "-c", "sleep 1000"), Needs(gpus=4)),
        start(tmp_path, 4, ("/no/such/program",), Needs()),
    ]
    refs = {number: str(ref) for number, ref in enumerate(engine.submit(starts).values(), 1)}
    assert engine.submit(starts[:1]) == {starts[0].key: refs[1]}
    seen = until(engine, [refs[1], refs[2], refs[4]], "ended")
    assert (seen[refs[1]].code, seen[refs[2]].signal, seen[refs[4]].code) == (7, 9, 127)
    assert seen[refs[1]].node in {node.name for node in nodes}
    assert (tmp_path / "engine.1").read_text() == "[0,1]\n"
    assert "/no/such/program: not found" in (tmp_path / "engine.4").read_text()
    until(engine, [refs[3]], "running")
    wait_for(lambda: sorted(node.free_gpus or 0 for node in engine.nodes() if node.is_up), lambda free: free == [0, 4])
    engine.stop([refs[3]], now=True)
    until(engine, [refs[3]], "ended")
    engine.forget(list(refs.values()))
    wait_for(lambda: bool(engine.nodes()) and set(refs.values()) & names(ray), lambda left: not left)
    # It stays so: Ray's monitor does not bring back what is deleted.
    wait_for(lambda: bool(engine.nodes()) and engine._unwanted, lambda left: not left)
    assert not set(refs.values()) & names(ray)


def test_many_short_jobs_go_through_a_broker(ray: RayCluster, tmp_path: Path) -> None:
    """The broker uses the cluster's own Ray; this process has none."""
    engine = make(ray.address, tmp_path, str(ray.token_file), python=str(ray.python), broker="always")
    first = engine.submit([start(tmp_path, 0)])
    assert list(first.values()) == ["dibs-a1b2c3-0.1.1"]
    until(engine, ["dibs-a1b2c3-0.1.1"], "ended")
    engine.forget(["dibs-a1b2c3-0.1.1"])
    wait_for(lambda: bool(engine._brokers.wanted([start(tmp_path, 1)])), patience_s=PATIENCE_S)
    starts = [
        start(tmp_path, 1, ("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"; exit 7'), Needs(gpus=2)),
        start(tmp_path, 2, ("sh", "-c", "kill -9 $$"), Needs()),
        *(start(tmp_path, number, ("true",)) for number in range(3, 23)),
    ]
    refs = [str(ref) for ref in engine.submit(starts).values()]
    assert all(":" in ref for ref in refs)
    seen = until(engine, refs, "ended")
    assert (seen[refs[0]].code, seen[refs[1]].signal) == (7, 9)
    assert {seen[ref].code for ref in refs[2:]} == {0}
    assert (tmp_path / "engine.1").read_text() in ("[0,1]\n", "[2,3]\n", "[1,2]\n", "[0,2]\n", "[1,3]\n", "[0,3]\n")

    # Ray starts its tasks in any order: these would keep the GPUs from those above, and the last from the first two.
    long = [
        start(
            tmp_path, 23, ("sh", "-c", "trap 'echo stopped; exit 3' TERM; echo ready; sleep 1000 & wait"), Needs(gpus=4)
        ),
        start(tmp_path, 24, ("sleep", "1000"), Needs(gpus=4)),
    ]
    both = [str(ref) for ref in engine.submit(long).values()]
    running = until(engine, both, "running")
    assert {one.node for one in running.values()} == {node.name for node in engine.nodes() if node.is_up}
    (last,) = map(str, engine.submit([start(tmp_path, 25, ("touch", str(tmp_path / "never")), Needs(gpus=4))]).values())
    # One that waits is dropped at once, one that runs gets a TERM.
    engine.stop([last], now=False)
    until(engine, [last], "ended")
    # The shell says so when its trap is set; before, a TERM would end it without a word.
    wait_for(lambda: (tmp_path / "engine.23").read_text() == "ready\n")
    engine.stop(both, now=False)
    until(engine, both, "ended")
    assert (tmp_path / "engine.23").read_text() == "ready\nstopped\n"
    assert not (tmp_path / "never").exists()
    assert not {*refs, *both, last} & names(ray)


def test_a_wrong_token_is_said(ray: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(Unavailable, match="does not accept the token"):
        make(ray.address, tmp_path, str(tmp_path / "token")).nodes()
    with pytest.raises(Unavailable, match="requires a token"):
        make(ray.address, tmp_path).nodes()
    assert make(ray.address, tmp_path, None).kind == "ray"
    environ = {"RAY_AUTH_TOKEN_PATH": os.fspath(ray.token_file)}
    assert sum(node.is_up for node in Ray("lab", ray.address, None, environ, tmp_path).nodes()) == 2
