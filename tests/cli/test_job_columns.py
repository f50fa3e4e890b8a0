"""`dibs status --columns/--sort/--format`: the columns that a user chooses, and their order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench import Bench
from dibs.cli import job_columns
from dibs.cli.job_columns import Order
from dibs.cli.screen import Screen
from dibs.errors import UserError
from dibs.submission import options

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PLAIN = Screen(is_terminal=False, is_coloured=False, width=None)


def job(job_id: int, **fields: Any) -> Any:
    """Return a job with the keys that columns are made of."""
    return {
        "id": job_id, "name": "vit", "state": "queued", "priority": 0, "gpus": 1, "gpu_indices": [], "reason": None,
        "submitted_at": "2026-01-01T11:00:00Z", "started_at": None, "finished_at": None, "engine": "local",
        "node": None, "command": "train.py", "tags": [], "params": None, "report": None,
    } | fields  # fmt: skip


def table(form: str, names: str, *jobs: Any) -> list[str]:
    """Return the lines of a format."""
    return job_columns.lines(PLAIN, jobs, job_columns.read_names(names), form, NOW).split("\n")


def sort(orders: str, *jobs: Any) -> list[int]:
    """Return the ids in the order that `--sort` makes."""
    args = options.parse("status", job_columns.OPTIONS, ["--sort", orders])
    found = args.get(job_columns.SORT)
    assert found is not None
    return [each["id"] for each in job_columns.ordered(jobs, found, NOW)]


def test_the_table_has_the_chosen_columns_in_their_order() -> None:
    jobs = [job(1, gpu_indices=[0, 1], tags=["a", "b"]), job(12, priority=10)]
    assert table("table", "priority,id,gpu,tags", *jobs) == [
        "PRIORITY  ID  GPU  TAGS",
        "0         1   0,1  a,b",
        "10        12  x1   -",
    ]


def test_a_parameter_and_a_reported_number_are_columns() -> None:
    runs = [job(1, params={"lr": 0.1}, report={"loss": 0.5}), job(2)]
    assert table("csv", "id,params.lr,report.loss", *runs) == ["id,params.lr,report.loss", "1,0.1,0.5", "2,,"]


def test_csv_quotes_and_has_whole_times() -> None:
    name, at = table("csv", "name,submitted_at", job(1, name='a "b", c'))[1].rsplit(",", 1)
    assert (name, datetime.fromisoformat(at)) == ('"a ""b"", c"', datetime(2026, 1, 1, 11, tzinfo=UTC))


def test_a_template_makes_one_line_a_job() -> None:
    form = "{id}: {state} {params.lr}!"
    assert table(form, "id", job(3, params={"lr": 1}), job(4)) == ["3: queued 1!", "4: queued !"]


def test_numbers_are_sorted_as_numbers_and_empty_values_come_last() -> None:
    jobs = [job(1, report={"loss": 9.0}), job(2), job(3, report={"loss": 10.0})]
    assert sort("report.loss", *jobs) == [1, 3, 2]
    assert sort("-report.loss", *jobs) == [3, 1, 2]


def test_the_second_column_decides_between_equals() -> None:
    jobs = [job(1, name="b"), job(2, name="a"), job(3, name="a", priority=5)]
    assert sort("name,-priority", *jobs) == [3, 2, 1]
    assert job_columns.ordered(jobs, [Order("name", False)], NOW)[0]["id"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--columns", "id,stat"), '--columns expected columns such as id,name,state, got "stat". Did you mean state?'),
        (("--sort", "-prio"), '--sort expected columns such as id,name,state, got "prio".'),
        (("--format", "{idd}"), '--format expected columns such as id,name,state, got "idd".'),
        (("--format", "xml"), '--format expected table, csv, tsv, or a text with columns such as \'{id} {name}\''),
        (("--columns", "id,"), '--columns expected columns such as id,name,state, got "id,".'),
        (("--columns", "command.x"), 'got "command.x"'),
    ],
)  # fmt: skip
def test_an_unknown_column_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as refusal:
        options.parse("status", job_columns.OPTIONS, words)
    assert said in refusal.value.line()


def test_status_prints_the_chosen_rows_of_real_jobs(bench: Bench) -> None:
    bench.start()
    for name, priority in (("low", 1), ("high", 5)):
        bench.cli("add", "--hold", "-n", name, "--priority", str(priority), "true")
    done = bench.cli("status", "--sort", "-priority", "--columns", "name,priority,state")
    assert done.stdout.split("\n")[1:3] == ["high  5         held", "low   1         held"]
    assert bench.cli("status", "name:low", "--format", "{id}/{name}").stdout == "1/low\n"
    assert bench.cli("status", "done", "--format", "csv", "--columns", "id").stdout == "id\n"
    done = bench.cli("status", "--json", "--sort", "id")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not for --json" in done.stderr
