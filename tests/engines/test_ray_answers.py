"""What Ray's answers mean: nodes, states of jobs, and answers that make no sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.engines import ray_answers
from dibs.engines.protocol import Node, Seen, Unavailable

HEAD, WORKER = "4e848e1880524611", "b9f7737dab828f91"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def node_row(node_id: str, name: str, state: str = "ALIVE", **resources: float) -> dict[str, Any]:
    totals = {"CPU": 8.0, "GPU": 4.0, "memory": 1e9, **resources}
    return {"node_id": node_id, "node_name": name, "state": state, "resources_total": totals}


def listing(*rows: object) -> dict[str, Any]:
    return {"result": True, "data": {"result": {"total": len(rows), "result": list(rows)}}}


def usage(**used: float) -> dict[str, Any]:
    by_node = {node: {"GPU": [gpus, 4.0], "CPU": [0.0, 8.0]} for node, gpus in used.items()}
    return {"data": {"clusterStatus": {"loadMetricsReport": {"usageByNode": by_node}}}}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"status": "PENDING"}, Seen("waiting", "waits for resources in Ray")),
        ({"status": "RUNNING", "driver_node_id": HEAD}, Seen("running", node="head")),
        ({"status": "SUCCEEDED", "driver_exit_code": 0, "driver_node_id": HEAD}, Seen("ended", code=0, node="head")),
        ({"status": "FAILED", "driver_exit_code": 7}, Seen("ended", code=7)),
        ({"status": "FAILED", "driver_exit_code": -9}, Seen("ended", signal=9)),
        ({"status": "STOPPED", "driver_exit_code": None}, Seen("ended", "stopped")),
        (
            {"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": "long\nstory"},
            Seen("gone", "Ray's supervisor of the job died, or its node was lost"),
        ),
        (
            {"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"},
            Seen("gone", "Ray gave up after waiting too long for the resources"),
        ),
        ({"status": "FAILED", "error_type": "NEW", "message": "\n words\nmore"}, Seen("gone", "words")),
    ],
)
def test_states_of_a_job(row: object, expected: Seen) -> None:
    assert ray_answers.seen(row, {HEAD: "head"}) == expected


@given(JSON)
def test_a_row_that_makes_no_sense_is_unavailable(row: object) -> None:
    with pytest.raises(Unavailable, match="unknown state"):
        ray_answers.seen(row, {})


@given(JSON)
def test_any_list_of_jobs_has_rows_by_id_or_is_unavailable(document: object) -> None:
    try:
        assert isinstance(ray_answers.rows_by_id(document), dict)
    except Unavailable:
        assert not isinstance(document, list)


@given(JSON, JSON)
def test_any_list_of_nodes_is_one_or_unavailable(rows: object, status: object) -> None:
    for document in (rows, {"data": {"result": {"result": rows}}}):
        try:
            found, _ = ray_answers.nodes(document, status)
            assert all(isinstance(node, Node) for node in found)
        except Unavailable:
            pass


def test_nodes_with_their_free_gpus() -> None:
    rows = listing(node_row(HEAD, "head"), node_row(WORKER, "box", **{"accelerator_type:A100": 1.0}))
    found, names = ray_answers.nodes(rows, usage(**{HEAD: 0.0, WORKER: 2.5}))
    assert names == {HEAD: "head", WORKER: "box"}
    assert found == [
        Node("head", True, 4, 4, "", 8, 10**9),
        # Of a GPU in use by half, nothing is free.
        Node("box", True, 4, 1, "A100", 8, 10**9),
    ]


def test_without_the_monitor_the_free_gpus_are_unknown() -> None:
    found, _ = ray_answers.nodes(listing(node_row(HEAD, "head")), {"data": None})
    assert found[0].free_gpus is None


def test_several_nodes_of_one_machine_have_different_names() -> None:
    found, _ = ray_answers.nodes(listing(node_row(HEAD, "box"), node_row(WORKER, "box")), None)
    assert [node.name for node in found] == ["box-4e848e", "box-b9f773"]


def test_a_node_that_came_back_is_listed_once_and_a_dead_one_as_down() -> None:
    rows = listing(node_row("old", "box", "DEAD"), node_row("new", "box"), node_row("gone", "other", "DEAD"))
    found, _ = ray_answers.nodes(rows, None)
    assert [(node.name, node.is_up) for node in found] == [("box", True), ("other", False)]


def test_the_end_of_a_traceback_is_its_message() -> None:
    text = "Traceback (most recent call last):\n  File x\nValueError: no such label\n.\n"
    assert ray_answers.last_words(text) == "ValueError: no such label"
