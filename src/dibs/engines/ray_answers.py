"""What Ray's answers mean for us: its nodes, and what became of its jobs.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dibs.engines.protocol import Node, Seen, Unavailable

#: Characters of Ray's own words that are shown; its messages may carry thousands of lines of a log.
WORDS_MAX = 200

#: States of a job in which nothing of it runs any more.
OVER = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})

#: Why a job without an exit code is gone, by Ray's `error_type`. None of these is the job's own failure.
LOSSES = {
    "JOB_SUPERVISOR_ACTOR_DIED": "Ray's supervisor of the job died, or its node was lost",
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": "Ray gave up after waiting too long for the resources",
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": "Ray could not place it on any node",
    "RUNTIME_ENV_SETUP_FAILURE": "Ray could not set up the environment of the job",
}


def seen(row: object, names: Mapping[str, str]) -> Seen:
    """Return what a job's row says; `names` has the name of each node id."""
    status = _text(row, "status")
    node = _text(row, "driver_node_id")
    where = names.get(node, node[:12])
    match status:
        case "PENDING":
            return Seen("waiting", "waits for resources in Ray")
        case "RUNNING":
            return Seen("running", node=where)
        case "SUCCEEDED":
            return Seen("ended", code=0, node=where)
        case "STOPPED":
            return Seen("ended", "stopped", node=where)
        case "FAILED":
            return _failed(row, where)
    raise Unavailable(f'Ray reports a job in an unknown state: "{status[:40]}"')


def _failed(row: object, where: str) -> Seen:
    status = row.get("driver_exit_code") if isinstance(row, dict) else None
    if isinstance(status, int):
        signum = -status if status < 0 else None
        return Seen("ended", code=None if signum else status, signal=signum, node=where)
    kind = _text(row, "error_type")
    return Seen("gone", LOSSES.get(kind) or first_words(_text(row, "message")) or kind, node=where)


def is_over(row: object) -> bool:
    """Tell whether a job's row shows that it has ended and may be deleted."""
    return _text(row, "status") in OVER


def ended_at(row: object) -> float | None:
    """Return when a job ended, as a time stamp; None if it did not, or Ray does not say."""
    found = row.get("end_time") if isinstance(row, dict) else None
    return found / 1000 if isinstance(found, int | float) and not isinstance(found, bool) else None


def rows_by_id(document: object) -> dict[str, object]:
    """Return the rows of a list of jobs by their submission id; jobs that others started without one are left out."""
    if not isinstance(document, list):
        raise Unavailable("expected a list of jobs, got something else")
    return {name: row for row in document if (name := _text(row, "submission_id"))}


def nodes(listing: object, status: object) -> tuple[list[Node], dict[str, str]]:
    """Return all nodes, and the name of each node id.

    Ray remembers dead nodes; one that came back under the same name is shown once.
    """
    rows = [row for row in _node_rows(listing) if _text(row, "node_id")]
    used = _used_gpus(status)
    names = _names(rows)
    living = {names[_text(row, "node_id")] for row in rows if _is_up(row)}
    found = {}
    for row in rows:
        name = names[_text(row, "node_id")]
        if _is_up(row) or name not in living:
            found[name] = _node(row, name, used)
    return list(found.values()), names


def _node_rows(listing: object) -> list[object]:
    try:
        found = listing["data"]["result"]["result"]  # type: ignore[index]
    except (KeyError, TypeError, IndexError) as error:
        raise Unavailable("expected a list of nodes, got something else") from error
    if not isinstance(found, list):
        raise Unavailable("expected a list of nodes, got something else")
    return found


def _names(rows: list[object]) -> dict[str, str]:
    """Name each node id. Several nodes on one machine have the same name, so they get a part of their id."""
    times = Counter(_label(row) for row in rows if _is_up(row))
    names = {}
    for row in rows:
        name, node_id = _label(row), _text(row, "node_id")
        names[node_id] = f"{name}-{node_id[:6]}" if times[name] > 1 else name
    return names


def _label(row: object) -> str:
    return _text(row, "node_name") or _text(row, "node_ip") or _text(row, "node_id")[:12]


def _is_up(row: object) -> bool:
    return _text(row, "state") == "ALIVE"


def _node(row: object, name: str, used: Mapping[str, float]) -> Node:
    resources = row.get("resources_total") if isinstance(row, dict) else None
    totals: Mapping[str, Any] = resources if isinstance(resources, dict) else {}
    gpus, node_id = int(_number(totals, "GPU")), _text(row, "node_id")
    # A fraction of a GPU in use is a GPU that no job of ours can have.
    free = None if node_id not in used else max(0, int(gpus - used[node_id]))
    kinds = sorted(key.partition(":")[2] for key in totals if key.startswith("accelerator_type:"))
    mem = int(_number(totals, "memory"))
    is_up = _is_up(row)
    return Node(name, is_up, gpus, free if is_up else 0, ",".join(kinds), int(_number(totals, "CPU")), mem)


def _used_gpus(status: object) -> dict[str, float]:
    """Return the GPUs in use on each node, by anybody; empty where Ray's monitor does not run."""
    try:
        usage = status["data"]["clusterStatus"]["loadMetricsReport"]["usageByNode"]  # type: ignore[index]
        return {node: float(row["GPU"][0]) for node, row in usage.items() if "GPU" in row}
    except (KeyError, TypeError, IndexError, ValueError, AttributeError):
        return {}


def first_words(text: str) -> str:
    """Return the first line of a message, as far as it is worth showing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:WORDS_MAX] if lines else ""


def last_words(text: str) -> str:
    """Return what a traceback ends with, as far as it is worth showing."""
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) > 1]
    return lines[-1][:WORDS_MAX] if lines else ""


def _text(row: object, key: str) -> str:
    found = row.get(key) if isinstance(row, dict) else None
    return found if isinstance(found, str) else ""


def _number(row: Mapping[str, Any], key: str) -> float:
    found = row.get(key)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else 0.0
