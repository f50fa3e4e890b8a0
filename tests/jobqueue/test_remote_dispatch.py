"""Which jobs go to an engine that keeps no queue: what fits beside our own and those of others, and a few more."""

from __future__ import annotations

import pytest

import build
from dibs.engines.exchange.node_watch import foreign_gpus
from dibs.engines.protocol import Caps, Node
from dibs.jobqueue.remote import dispatch
from dibs.model.jobs import JobId

NODES = [Node(name, True, 4, 4, "", 16, 0) for name in ("n1", "n2")]
AHEAD = Caps(holds_queue=False, look_ahead=2, grace_s=0)
WAITING = [build.waiting(number) for number in range(100, 120)]


def sent(active: int = 0, foreign: int = 0, caps: Caps = AHEAD, nodes: list[Node] = NODES, most: int = 1000) -> int:
    """Return how many of many jobs with one GPU are sent beside those that are there."""
    own = [(JobId(number), 1, 0) for number in range(active)]
    return len(dispatch.choose(WAITING, own, nodes, caps, most, foreign))


def test_an_engine_with_a_queue_gets_everything() -> None:
    assert sent(active=9, foreign=8, caps=Caps(holds_queue=True, look_ahead=0, grace_s=0)) == len(WAITING)
    assert sent(most=3) == 3


def test_an_engine_without_one_gets_what_fits_and_a_few_more() -> None:
    assert [sent(active) for active in (0, 1, 7, 8, 9, 10, 11)] == [10, 9, 3, 2, 1, 0, 0]


def test_jobs_without_gpus_fit_by_their_cores() -> None:
    jobs = [build.waiting(number, gpus=0, cpus=8) for number in range(10)]
    assert len(dispatch.choose(jobs, [(JobId(99), 1, 8)], NODES, AHEAD, 1000)) == 4 + 2
    assert len(dispatch.choose(jobs, [(JobId(99), 0, 8)], NODES, AHEAD, 1000)) == 3 + 2


def test_what_others_use_is_not_free() -> None:
    assert [sent(active, foreign=6) for active in (0, 2, 4, 5)] == [4, 2, 0, 0]
    assert sent(foreign=8) == 2


def test_what_we_do_not_use_ourselves_others_do() -> None:
    def cluster(*free: int | None) -> list[Node]:
        return [Node(f"n{place}", True, 4, gpus, "", 16, 0) for place, gpus in enumerate(free)]

    assert foreign_gpus(cluster(4, 4), own=0) == 0
    assert foreign_gpus(cluster(1, 0), own=0) == 7
    assert foreign_gpus(cluster(1, 0), own=5) == 2
    # Some that ran just before are counted twice.
    assert foreign_gpus(cluster(3, 4), own=6) == 0
    # The engine does not say, or the node is down.
    assert foreign_gpus([*cluster(None, None), Node("n3", False, 4, 0, "", 16, 0)], own=0) == 0


@pytest.mark.parametrize(
    ("started_at", "ended_at", "shift"),
    [(1_000, 9_000, 0), (5_000, 10_000, 0), (-599_000, -595_000, 600_000), (601_000, 609_000, -599_000)],
)
def test_times_of_a_node_whose_clock_is_wrong_become_ours(started_at: int, ended_at: int, shift: int) -> None:
    job = build.job(submitted_at=1_000)
    assert dispatch.clock_shift_ms(job, 10_000, started_at, ended_at) == shift


def test_a_job_keeps_the_start_that_was_reported() -> None:
    job = build.job(submitted_at=1_000, started_at=3_000)
    assert dispatch.clock_shift_ms(job, 10_000, 603_500, 609_000) == 3_000 - 603_500
