"""The order of waiting jobs: there is always room between any two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model import ranks


def test_jobs_are_ordered_by_id():
    ids = [1, 2, 15, 16, 17, 255, 256, 10**6, 10**12]
    assert sorted(ranks.rank_of_id(job_id) for job_id in ids) == [ranks.rank_of_id(job_id) for job_id in ids]


@given(st.lists(st.tuples(st.integers(0, 2**30), st.sampled_from(["first", "before", "after"])), max_size=80))
def test_a_moved_job_is_where_it_was_put(moves):
    line = [(ranks.rank_of_id(job_id), job_id) for job_id in range(1, 6)]
    for number, where in moves:
        _, job_id = line.pop(number % len(line))
        spot = 0 if where == "first" else number // 7 % len(line) + (where == "after")
        high = line[spot][0] if spot < len(line) else ranks.rank_of_id(6)
        rank = ranks.between(line[spot - 1][0], high, job_id) if spot else ranks.ahead_of(high, job_id)
        line.insert(spot, (rank, job_id))
        assert line == sorted(line)


@given(st.integers(1, 2**40), st.integers(1, 2**40))
def test_two_jobs_moved_to_the_same_place_get_different_ranks(one, other):
    """One of them may have finished and be retried."""
    low, high = ranks.rank_of_id(1), ranks.rank_of_id(2)
    assert (ranks.between(low, high, one) == ranks.between(low, high, other)) == (one == other)
    assert (ranks.ahead_of(low, one) == ranks.ahead_of(low, other)) == (one == other)


def test_many_moves_to_the_front_do_not_lengthen_ranks():
    rank = ranks.ahead_of(ranks.rank_of_id(1), 2)
    for job_id in range(3, 1000):
        new = ranks.ahead_of(rank, job_id)
        assert (new < rank, len(new)) == (True, len(rank))
        rank = new


def test_many_moves_to_one_place_lengthen_ranks_slowly():
    low, high = ranks.rank_of_id(1), ranks.rank_of_id(2)
    for job_id in range(3, 103):
        low = ranks.between(low, high, job_id)
    assert len(low) < 60


def test_there_is_no_rank_between_two_that_are_not_in_order():
    with pytest.raises(ValueError, match="in order"):
        ranks.between(ranks.rank_of_id(2), ranks.rank_of_id(2), 3)
