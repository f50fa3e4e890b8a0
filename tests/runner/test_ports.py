"""The ports of jobs: different for thousands of them, free, and outside the ephemeral range."""

from __future__ import annotations

import socket
from itertools import islice

from dibs.runner import ports


def test_thousands_of_jobs_have_different_ports_and_a_restart_repeats_none() -> None:
    """Nothing is kept between two draws, so this is also what a new daemon would do."""
    drawn = [ports.free("/home/a/.dibs", number) for number in range(1, 5001)]
    assert len(set(drawn)) == 5000


def test_retries_do_not_take_the_ports_of_other_jobs() -> None:
    drawn = [next(ports.candidates("x", n, attempt, ports.END)) for n in range(5000) for attempt in (1, 2)]
    assert len(set(drawn)) == 10_000


def test_the_ports_are_below_the_ephemeral_ones() -> None:
    with open(ports.EPHEMERAL) as file:
        low = int(file.read().split()[0])
    end = low if low - ports.FIRST >= ports.FEWEST else ports.END
    assert all(ports.FIRST <= ports.free("x", number) < end for number in range(100))


def test_a_port_in_use_is_skipped_for_one_that_is_no_neighbours() -> None:
    taken = ports.free("x", 7)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", taken))
        sock.listen()
        other = ports.free("x", 7)
        assert other not in {taken, ports.free("x", 8), ports.free("x", 6)}


def test_every_port_of_the_range_is_tried_once() -> None:
    order = list(ports.candidates("x", 3, 1, 24_096))
    assert sorted(order) == list(range(ports.FIRST, 24_096))


def test_two_people_begin_at_different_places() -> None:
    first, second = (next(islice(ports.candidates(owner, 1, 1, ports.END), 1)) for owner in ("/home/a", "/home/b"))
    assert first != second
