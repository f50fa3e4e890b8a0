"""`dibs.results`, and tables of pandas and polars made of them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pandas
import pytest

import chores
import dibs
from bench import PATIENCE_S, Bench
from dibs import errors
from dibs.python_api.results import Record, Results, flatten


def record(job: int, **more: object) -> Record:
    """Return a record with the given parts."""
    base = {"job": job, "attempt": 1, "index": job - 1, "params": {}, "state": "done", "numbers": {}}
    return base | {"started_at": None, "finished_at": None} | more  # type: ignore[return-value]


UNEVEN = Results(
    [record(1, params={"lr": 1, "a": "x"}, numbers={"loss": 0.5}), record(2, params={"lr": 0.1, "state": 2})]
)
TITLES = ["job", "index", "state", "lr", "a", "loss", "param.state"]


def test_the_results_of_a_sweep_are_found_by_its_name(queue: Bench) -> None:
    with dibs.Executor(gpus=0, sweep="found") as pool:
        assert list(pool.map(chores.square, [2, 3], timeout=PATIENCE_S)) == [4, 9]
    for name in ("found", "default/found"):
        results = dibs.results(name)
        assert [(each["params"], each["numbers"]) for each in results] == [
            ({"x": 2}, {"result": 4}),
            ({"x": 3}, {"result": 9}),
        ]
    assert repr(results).splitlines()[:2] == ["<default/found: 2 done>", "job  index  state  x  result"]
    assert "<caption>default/found: 2 done</caption>" in results._repr_html_()
    with pytest.raises(errors.NotFound, match='there is no sweep "nobody"'):
        dibs.results("nobody")
    with pytest.raises(errors.UserError, match="results expected the name"):
        dibs.results("")
    dibs.Sweep("echo {x}", {"x": [1]}, name="found", project="other", hold=True, gpus=0).submit()
    for name, says in (("found", 'there are 2 sweeps "found"'), ("foun*", "expected one sweep, got 2: default/found")):
        with pytest.raises(errors.UserError, match=says):
            dibs.results(name)


@pytest.fixture
def polars(monkeypatch: pytest.MonkeyPatch) -> type:
    """A stand-in: the library has 180 MB. The real one, 2.1, was tried by hand with the same rows."""

    class DataFrame:
        """Keeps what it was made of."""

        def __init__(self, rows: list[dict[str, object]], infer_schema_length: int | None = 100) -> None:
            self.rows, self.infer_schema_length = rows, infer_schema_length

    module = ModuleType("polars")
    module.DataFrame = DataFrame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", module)
    return DataFrame


def test_runs_with_different_parameters_become_one_frame(polars: type) -> None:
    frame = UNEVEN.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == TITLES
    assert list(frame["lr"]) == [1, 0.1]
    assert len(Results().to_frame()) == 0
    other: Any = UNEVEN.to_frame("polars")
    assert isinstance(other, polars)
    # By default polars takes the types of columns from the first rows, and refuses others later.
    assert (other.rows, other.infer_schema_length) == (UNEVEN.rows(), None)
    assert [list(row) for row in other.rows] == [TITLES, TITLES]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, polars: type) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(UNEVEN.to_frame(), polars)
    with pytest.raises(errors.MachineError, match=r"to_frame needs pandas, which is not installed\. pip install"):
        UNEVEN.to_frame("pandas")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(errors.MachineError, match="to_frame needs pandas or polars, which is not installed"):
        UNEVEN.to_frame()
    with pytest.raises(errors.UserError, match="to_frame expected pandas or polars, got 'numpy'"):
        UNEVEN.to_frame("numpy")  # type: ignore[call-overload]


def test_many_results_are_cut_where_they_are_shown() -> None:
    many = Results([record(job, numbers={"loss": float(job)}) for job in range(1, 61)])
    assert repr(many).splitlines()[0] == "<results: 60 done; 10 more are not shown>"
    assert len(repr(many).splitlines()) == 52
    assert repr(Results()) == "<results: no runs>"


def test_every_column_of_a_row_has_a_unique_name() -> None:
    row: Record = {
        "job": 1, "attempt": 1, "index": 0, "params": {"lr": 0.1, "job": "x"}, "state": "done",
        "numbers": {"lr": 0.2, "loss": None, "state": 3.0}, "started_at": None, "finished_at": None,
    }  # fmt: skip
    assert flatten(row) == {
        "job": 1, "index": 0, "state": "done", "lr": 0.1, "param.job": "x", "number.lr": 0.2, "loss": None,
        "number.state": 3.0,
    }  # fmt: skip
