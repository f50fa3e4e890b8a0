"""What the core thread waits for: nothing that is posted, watched or timed is missed, and nothing comes twice."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from dibs.jobqueue.reactor import Reactor


@pytest.fixture
def hectic() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hectic")
def test_work_of_many_threads_arrives_once_each_and_in_their_order() -> None:
    """A taker that runs between a post and its bell must not stumble."""
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


def test_a_descriptor_calls_once_and_a_timer_after_its_time() -> None:
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
