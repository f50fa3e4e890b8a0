"""The writer thread claims priority; readers yield, but not for ever."""

from __future__ import annotations

import threading

import build
from bench import wait_for
from desk import Desk
from dibs.jobqueue.reactor import Reactor, ReadPriority

#: Seconds that no test waits for.
LONG_S = 600.0


def test_a_yielding_reader_continues_when_the_writer_is_done():
    way = ReadPriority(LONG_S)
    happened: list[str] = []
    way.take()

    def read() -> None:
        way.give()
        happened.append("read")

    reader = threading.Thread(target=read)
    reader.start()
    happened.append("started a job")
    way.leave()
    reader.join()
    assert happened == ["started a job", "read"]


def test_a_reader_does_not_wait_while_no_writer_works():
    way = ReadPriority(LONG_S)
    way.give()
    way.take()
    way.leave()
    way.give()
    assert not way.is_taken


def test_a_reader_waits_no_longer_than_the_bound():
    way = ReadPriority(longest_s=0.0)
    way.take()
    way.give()
    assert way.is_taken


def test_priority_is_claimed_while_the_thread_works_and_released_while_it_sleeps():
    waits: Reactor[str] = Reactor()
    seen: list[bool] = []
    waits.later(0.0, lambda: seen.append(waits.way.is_taken))
    assert waits.wait(is_idle=False) == []
    assert seen == [True]
    assert waits.way.is_taken

    def post() -> None:
        try:
            wait_for(lambda: not waits.way.is_taken)
        finally:
            waits.post("work")

    other = threading.Thread(target=post)
    other.start()
    assert waits.wait() == ["work"]
    assert waits.way.is_taken
    other.join()
    waits.close()


def test_a_reader_can_yield_between_any_two_jobs_of_a_list(desk: Desk):
    store = desk.store
    with store.batch():
        store.submit([build.spec() for _ in range(5)], build.NOW)
    steps: list[str] = []
    store.pause = lambda: steps.append("pause")
    assert len(store.overview(10, 10)) == 5
    assert steps == ["pause"] * 5
