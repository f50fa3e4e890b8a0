"""The order of the runs of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from dibs.cli.results_spool import Spool
from dibs.sweeps.ranking import MINIMIZE


def sent(index: int, state: str, loss: float | None, cause: str | None = None) -> dict[str, Any]:
    numbers = {} if loss is None else {"loss": loss}
    return {"index": index, "job": index, "state": state, "cause": cause, "params": {}, "numbers": numbers}


@pytest.mark.parametrize("state", ["failed", "cancelled", "timeout", "lost"])
def test_a_run_that_did_not_end_well_is_not_the_best(state: str) -> None:
    with Spool("loss", MINIMIZE) as spool:
        for run in (sent(1, state, 0.1), sent(2, "done", 0.3), sent(3, "running", 0.2), sent(4, "done", None)):
            spool.add(run)
        assert [run["index"] for run in spool.best(None).as_sent()] == [3, 2, 1, 4]
        assert spool.winner == 2


def test_a_run_that_was_stopped_early_keeps_its_place() -> None:
    with Spool("loss", MINIMIZE) as spool:
        for run in (sent(1, "done", 0.3), sent(2, "cancelled", 0.4, "early"), sent(3, "done", 0.5)):
            spool.add(run)
        assert [run["index"] for run in spool.best(None).as_sent()] == [1, 2, 3]
