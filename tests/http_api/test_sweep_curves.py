"""`/v1/sweeps/{id}/curves`: the metric of all runs, thinned, and read again only when it changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import Bench
from dibs.errors import NotFound, UserError
from dibs.http_api import sweep_curves
from dibs.http_api.sweep_curves import CurveCache

POINTS = 5000


def report(queue: Bench, job: int, lines: list[str]) -> None:
    """Write what an attempt reported."""
    path = Path(queue.job(job)["log"]).with_name("report.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def point(n: int, loss: float) -> str:
    return json.dumps({"at": f"2026-01-01T00:{n // 60 % 60:02d}:{n % 60:02d}.000Z", "step": n, "loss": loss})


def test_curves_have_all_runs_with_their_peaks(queue: Bench) -> None:
    done = queue.cli("sweep", "true {a}", "--name", "curves", "-g", "0", "-p", "a=1,2,3")
    assert done.returncode == 0, done.stderr
    queue.wait_all()
    (sweep,) = queue.client.get("/v1/sweeps", [("name", "curves")])["sweeps"]
    runs = queue.client.get(f"/v1/sweeps/{sweep['id']}/results")["runs"]
    first, second, _ = (run["job"] for run in runs)
    report(queue, first, [point(n, 99.0 if n == 1234 else 1 / (n + 1)) for n in range(POINTS)])
    report(queue, second, ["not JSON", point(1, 5.0), '{"step": 2, "loss": NaN}', point(3, 4.0)])

    def curves(**query: str) -> dict[int, dict[str, list[float]]]:
        told = queue.client.get(f"/v1/sweeps/{sweep['id']}/curves", [("metric", "loss"), *query.items()])
        assert not told["more"]
        return {each["job"]: each for each in told["curves"]}

    found = curves()
    assert sorted(found) == [first, second]
    assert len(found[first]["x"]) <= sweep_curves.MOST_OF_RUN + 2
    assert (found[first]["x"][0], found[first]["x"][-1]) == (0, POINTS - 1)
    assert max(found[first]["y"]) == 99
    assert (found[second]["x"], found[second]["y"]) == ([1, 3], [5, 4])
    assert curves() == found
    # What is written later is read: the file has another size.
    report(queue, second, [point(1, 5.0), point(3, 4.0), point(4, 3.0)])
    assert curves()[second]["y"] == [5, 4, 3]
    assert curves(x="time")[second]["x"][1] - curves(x="time")[second]["x"][0] == 2
    for bad in ({"x": "epoch"}, {"metric": ""}):
        with pytest.raises(UserError):
            queue.client.get(f"/v1/sweeps/{sweep['id']}/curves", list(({"metric": "loss"} | bad).items()))
    with pytest.raises(NotFound):
        queue.client.get("/v1/sweeps/999/curves", [("metric", "loss")])


def test_the_cache_drops_what_was_used_least_recently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_curves, "MOST_KEPT", 2)
    cache = CurveCache()
    keys: list[sweep_curves.Key] = [(name, 1, 1, "loss", "step", 10) for name in "abc"]
    cache.put(keys[0], ([1], [1]))
    cache.put(keys[1], ([2], [2]))
    assert cache.get(keys[0]) == ([1], [1])
    cache.put(keys[2], ([3], [3]))
    assert [cache.get(key) is None for key in keys] == [False, True, False]


def test_a_job_tells_the_step_of_each_value(queue: Bench) -> None:
    job = queue.add("true", gpus=0)
    queue.until(job)
    report(queue, job, [point(7, 0.5), '{"loss": 0.25}'])
    (loss,) = [each for each in queue.client.get(f"/v1/jobs/{job}/numbers")["numbers"] if each["name"] == "loss"]
    assert (loss["steps"], loss["values"]) == ([7, None], [0.5, 0.25])
