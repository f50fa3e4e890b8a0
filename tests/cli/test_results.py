"""Metrics of jobs outside a sweep, reported or printed: in `show`, in lists and in the API, as for runs."""

from __future__ import annotations

import json

import pytest

from bench import Bench, wait_for
from dibs.errors import NotFound

pytestmark = pytest.mark.usefixtures("started")

PRINTS = "for n in 3 2 1; do echo step $n loss: 0.$n; done"
SAYS = """echo '{"loss": %s}' >> "$DIBS_REPORT" """
METRIC = ["--metric", "loss=loss: ([0-9.]+)"]


def finished(bench: Bench, *words: str) -> int:
    """Submit a command line without a GPU and return its job when it has finished."""
    done = bench.cli("add", "-g0", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return int(bench.until(int(done.stdout))["id"])


def reported(bench: Bench, job_id: int, report: dict[str, float] | None) -> bool:
    """Wait until a job shows these metrics: files are read in the background, which may take a while."""
    return bool(wait_for(lambda: [bench.job(job_id)["report"]], lambda seen: seen == [report]))


@pytest.mark.parametrize(
    ("words", "report"),
    [
        ([*METRIC, PRINTS], {"loss": 0.1}),
        ([*METRIC, "--metric", r"step=step (\d)", PRINTS], {"loss": 0.1, "step": 1}),
        ([*METRIC, PRINTS + "; exit 3"], {"loss": 0.1}),
        ([f"{SAYS % 7}; {SAYS % 5}"], {"loss": 5}),
        ([*METRIC, f"{PRINTS}; {SAYS % 5}"], {"loss": 5}),
        ([*METRIC, "echo nothing to see"], None),
        (["true"], None),
    ],
)  # fmt: skip
def test_metrics_are_shown_wherever_a_job_is(bench: Bench, words: list[str], report: dict[str, float] | None) -> None:
    """Reported metrics override printed ones."""
    job_id = finished(bench, *words)
    assert reported(bench, job_id, report)
    assert json.loads(bench.cli("show", str(job_id), "--json").stdout)["report"] == report
    for select in ((), ("all",)):
        assert [job["report"] for job in json.loads(bench.cli("status", *select, "--json").stdout)["jobs"]] == [report]
    shown = bench.cli("show", str(job_id)).stdout
    assert ("reported" in shown) is (report is not None)
    assert all(f"{name}={value:g}" in shown for name, value in (report or {}).items())


def test_each_attempt_has_its_own_metrics_and_clean_deletes_them(bench: Bench) -> None:
    job_id = finished(bench, *METRIC, "echo loss: $DIBS_ATTEMPT; exit 1")
    assert reported(bench, job_id, {"loss": 1})
    bench.retry(job_id)
    assert bench.until(job_id)["attempt"] == 2
    assert reported(bench, job_id, {"loss": 2})
    assert bench.cli("clean", "-y", str(job_id)).returncode == 0


def test_the_history_of_the_metrics_of_an_attempt_is_available(bench: Bench) -> None:
    job_id = finished(bench, f"""{SAYS % 3}; echo "{{\\"loss\\": $DIBS_ATTEMPT}}" >> "$DIBS_REPORT"; exit 1""")
    bench.retry(job_id)
    assert bench.until(job_id)["attempt"] == 2
    course = {"name": "loss", "at": [None, None], "steps": [None, None]}
    for query, last in (([], 2), ([("attempt", "1")], 1)):
        told = bench.client.get(f"/v1/jobs/{job_id}/numbers", query)
        assert told == {"numbers": [course | {"values": [3, last]}], "cut": False}
    with pytest.raises(NotFound, match="no attempt 3"):
        bench.client.get(f"/v1/jobs/{job_id}/numbers", [("attempt", "3")])


def test_a_run_of_a_sweep_shows_printed_metrics_too(bench: Bench) -> None:
    bench.cli("sweep", "echo loss: {a}", "-p", "a", "4", "-g0", *METRIC, "--name", "s")
    assert bench.until(1)["state"] == "done"
    assert reported(bench, 1, {"loss": 4})
