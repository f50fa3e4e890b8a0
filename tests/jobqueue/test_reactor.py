"""The event loop of the writer thread: nothing posted, watched or timed is missed or delivered twice."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from dibs.jobqueue.reactor import Reactor


@pytest.fixture
def hectic() -> Iterator[None]:
    """Let threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hectic")
def test_work_posted_by_many_threads_arrives_once_and_in_order() -> None:
    """A consumer that runs between a post and its wake-up must not fail."""
    waits: Reactor[tuple[int, int]] = Reactor()
    each, threads = 3000, 4

    def post(who: int) -> None:
        for number in range(each):
            waits.post((who, number))

    posters = [threading.Thread(target=post, args=(who,)) for who in range(threads)]
    for poster in posters:
        poster.start()
    taken: list[tuple[int, int]] = []
    while len(taken) < each * threads:
        taken += waits.wait(is_idle=False)
    for poster in posters:
        poster.join()
    assert [[n for who, n in taken if who == one] for one in range(threads)] == [list(range(each))] * threads
    waits.close()


def test_a_descriptor_fires_once_and_a_timer_when_it_is_due() -> None:
    waits: Reactor[str] = Reactor()
    readable, writable = os.pipe()
    seen: list[str] = []
    waits.watch(readable, lambda: seen.append("pipe"))
    waits.later(0.0, lambda: seen.append("timer"))
    waits.wait()
    assert seen == ["timer"]
    os.write(writable, b"x")
    waits.wait()
    waits.wait(is_idle=False)
    assert seen == ["timer", "pipe"]
    waits.close()
    os.close(readable)
    os.close(writable)
