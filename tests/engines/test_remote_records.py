"""News from the files of starts: without a call of the engine where they say everything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

import build
from dibs.engines.protocol import Caps, Engine, Node, Seen
from dibs.engines.remote import Remote, _Drop
from dibs.engines.remote_starts import Accepted, Judged, News, Packer, StartId, Tracked
from dibs.runner import attempts, records
from dibs.runner.attempts import Alive, Ended, Lost
from waits import wait_for

ENDED = records.Final("exited", code=7, started_at_ns=5, ended_at_ns=9)
STOPPED = records.Final("signalled", signal=15, stopped=True, started_at_ns=5, ended_at_ns=9)


class Cluster:
    """An engine that is asked seldom, and counts that."""

    name = kind = "lab"
    caps = Caps(holds_queue=True, look_ahead=0, grace_s=0, poll_s=1000)
    has_chores = False
    problem = ""

    def __init__(self) -> None:
        self.polls: list[Sequence[str]] = []
        self.forgotten: list[str] = []
        self.stopped: list[Sequence[str]] = []
        self.poked: list[str] = []
        self.says = Seen("running", node="n2")

    def nodes(self) -> list[Node]:
        return [Node("n1", True, 8, 8, "", 16, 0)]

    def poll(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        self.polls.append(refs)
        return dict.fromkeys(refs, self.says)

    def find(self, keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        return {}

    def stop(self, refs: Sequence[str], *, now: bool) -> None:
        assert now
        self.stopped.append(tuple(refs))

    def poke(self, ref: str) -> None:
        self.poked.append(ref)

    def forget(self, refs: Sequence[str]) -> None:
        self.forgotten += refs


class NoSpecs:
    """Nothing is sent, so nothing is written."""

    def prepare(self) -> Path:
        return Path("/nonexistent")


class Follower:
    """One engine whose thread follows starts that others submitted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster()
        self.news: list[News] = []
        self.remote = Remote(cast("Engine", self.cluster), cast("Packer", NoSpecs()), 10, self.news.extend)
        self.remote.start_thread()
        wait_for(lambda: self.remote.is_known)

    def follow(self, number: int) -> int:
        """Follow a start that a runner has claimed; return the descriptor of its records."""
        own = self.folder / str(number)
        own.mkdir()
        self.remote._inbox.put(Tracked(StartId(number, 1, 1), f"key-{number}", str(own), ref=str(number)))
        claim = attempts.claim(str(own), 1, "shim 5 6 boot", is_shared=True)
        assert claim is not None
        return claim

    def verdict(self, number: int) -> Judged:
        """Wait for the result of a start; return it."""

        def found() -> list[Judged]:
            judged = [one for one in self.news if isinstance(one, Judged) and one.start_id.job == number]
            return [one for one in judged if not isinstance(one.verdict, Alive)]

        return wait_for(found)[0]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Follower]:
    own = Follower(tmp_path)
    yield own
    own.remote.close()


def test_a_result_is_noticed_without_asking_the_engine(lab: Follower) -> None:
    fd = lab.follow(1)
    records.write_running(fd, records.RunningCommand(7, 8, 5, "n1"))
    wait_for(lambda: [one.seen.node for one in lab.news if isinstance(one, Judged)], lambda nodes: nodes == ["n1"])
    records.write_final(fd, ENDED)
    os.close(fd)
    result = lab.verdict(1)
    assert (result.verdict, result.seen.node) == (Ended(ENDED), "n1")
    assert lab.cluster.polls == []
    assert lab.cluster.forgotten == ["1"]
    assert not [one for one in lab.news if isinstance(one, Accepted)]


def test_the_engine_is_asked_where_a_job_ran_if_its_runner_did_not_know(lab: Follower) -> None:
    fd = lab.follow(1)
    records.write_running(fd, records.RunningCommand(7, 8, 5))
    records.write_final(fd, ENDED)
    os.close(fd)
    assert lab.verdict(1).seen.node == "n2"
    assert lab.cluster.polls == [["1"]]


def test_the_engine_is_asked_why_it_ended_a_job(lab: Follower) -> None:
    lab.cluster.says = Seen("ended", "preempted by another job")
    fd = lab.follow(1)
    records.write_running(fd, records.RunningCommand(7, 8, 5, "n1"))
    records.write_final(fd, STOPPED)
    os.close(fd)
    verdict = lab.verdict(1).verdict
    assert isinstance(verdict, Lost)
    assert verdict.why == "its cluster stopped it (preempted by another job)"


def test_a_stopped_job_is_judged_while_the_engine_still_completes_it(lab: Follower) -> None:
    lab.cluster.says = Seen("running", node="n1")
    fd = lab.follow(1)
    records.write_running(fd, records.RunningCommand(7, 8, 5, "n1"))
    wait_for(lambda: lab.news)
    records.write_final(fd, STOPPED)
    os.close(fd)
    assert isinstance(lab.verdict(1).verdict, Lost)
    assert lab.cluster.polls == [["1"]]


def test_a_start_is_noticed_although_the_engine_still_says_that_it_waits(lab: Follower) -> None:
    fd = lab.follow(1)
    records.write_running(fd, records.RunningCommand(7, 8, 5, "n1"))
    wait_for(lambda: [one.verdict for one in lab.news if isinstance(one, Judged)])
    os.close(fd)
    assert lab.cluster.polls == []


def test_a_missing_record_is_no_news(lab: Follower) -> None:
    """A start that waits, and one whose runner has not begun its command."""
    (lab.folder / "1").mkdir()
    lab.remote._inbox.put(Tracked(StartId(1, 1, 1), "key-1", str(lab.folder / "1"), ref="1"))
    os.close(lab.follow(2))
    fd = lab.follow(3)
    records.write_running(fd, records.RunningCommand(7, 8, 5, "n1"))
    records.write_final(fd, ENDED)
    os.close(fd)
    lab.verdict(3)
    assert {one.start_id.job for one in lab.news} == {3}


def test_orders_wait_for_a_folder_that_can_be_written_and_nothing_else_does(lab: Follower) -> None:
    """A full or read-only folder: a pause comes later; a stop is for the engine, since no runner can be told."""
    for number in (1, 2):
        records.write_running(fd := lab.follow(number), records.RunningCommand(7, 8, 5, "n1"))
        os.close(fd)
        # Nobody can write into a folder, not even root.
        (lab.folder / str(number) / "orders.1").mkdir()
    wait_for(lambda: len(lab.news), lambda count: count == 2)
    lab.cluster.caps = lab.cluster.caps._replace(poll_s=0.05)
    lab.remote.order(build.job(1, attempt=1, start=1), "pause")
    lab.remote.order(build.job(2, attempt=1, start=1), "stop 1000")
    fd = lab.follow(3)
    records.write_running(fd, records.RunningCommand(7, 8, 5, "n1"))
    records.write_final(fd, ENDED)
    os.close(fd)
    lab.verdict(3)
    wait_for(lambda: lab.cluster.stopped, lambda stopped: ("2",) in stopped)
    (lab.folder / "1" / "orders.1").rmdir()
    wait_for((lab.folder / "1" / "orders.1").is_file)
    assert attempts.Orders(str(lab.folder / "1"), 1).new() == [["pause"]]
    assert not lab.remote.condition.trouble


def test_an_order_that_cannot_be_written_leaves_a_stopping_job_its_grace(lab: Follower) -> None:
    for number in (1, 2):
        records.write_running(fd := lab.follow(number), records.RunningCommand(7, 8, 5, "n1"))
        os.close(fd)
    wait_for(lambda: len(lab.news), lambda count: count == 2)
    lab.cluster.caps = lab.cluster.caps._replace(poll_s=0.05)
    lab.remote.order(build.job(1, attempt=1, start=1), "stop 1000")
    written = lab.folder / "1" / "orders.1"
    wait_for(written.is_file)
    for path in (written, lab.folder / "2" / "orders.1"):
        path.unlink(missing_ok=True)
        path.mkdir()
    lab.remote.order(build.job(1, attempt=1, start=1), "signal 10")
    lab.remote.order(build.job(2, attempt=1, start=1), "stop 1000")
    wait_for(lambda: lab.cluster.stopped)
    assert {ref for refs in lab.cluster.stopped for ref in refs} == {"2"}


def test_what_was_given_up_is_ended_by_the_engine_and_forgotten(lab: Follower) -> None:
    for number in (1, 2, 3):
        (lab.folder / str(number)).mkdir()
        lab.remote._inbox.put(
            Tracked(StartId(number, 1, 1), f"key-{number}", str(lab.folder / str(number)), ref=str(number))
        )
    for number in (1, 2, 3):
        lab.remote._inbox.put(_Drop(StartId(number, 1, 1)))
    wait_for(lambda: sorted(lab.cluster.forgotten), lambda refs: refs == ["1", "2", "3"])
    assert sorted(ref for refs in lab.cluster.stopped for ref in refs) == ["1", "2", "3"]


def test_a_start_that_waits_in_the_engine_has_no_runner_to_poke(lab: Follower) -> None:
    for number in (1, 2):
        (lab.folder / str(number)).mkdir()
        own = Tracked(StartId(number, 1, 1), f"key-{number}", str(lab.folder / str(number)), ref=str(number))
        own.is_told = number == 2
        lab.remote._inbox.put(own)
        lab.remote.order(build.job(number, attempt=1, start=1), "limit 60")
    wait_for(lambda: lab.cluster.poked)
    assert lab.cluster.poked == ["2"]
    assert attempts.Orders(str(lab.folder / "1"), 1).new() == [["limit", "60"]]
