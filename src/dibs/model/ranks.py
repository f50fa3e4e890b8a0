"""Ranks: where a waiting job stands among those of its priority, as a text that sorts.

A job begins with the rank of its id, so the order is that of submission. Between any two ranks there is another, so a
move changes one job and no other, however many wait. A rank that a move made ends with the job's id: no two are equal.
"""

from __future__ import annotations

#: Digits of a rank that no move has made, and the number in it that stands for id 0: half of all are before it.
DIGITS = 16
ZERO = 2**62


def rank_of_id(job_id: int) -> str:
    """Return the rank with which a job begins."""
    return f"{ZERO + job_id:0{DIGITS}x}"


def ahead_of(first: str, job_id: int) -> str:
    """Return a rank for a job before `first`, which is the first; it does not grow, so this may be done for ever."""
    return _own(int(first[:DIGITS], 16) - 1, DIGITS, job_id)


def between(low: str, high: str, job_id: int) -> str:
    """Return a rank for a job between two others, as short as can be."""
    if low >= high:
        raise ValueError(f"expected two ranks in order, got {low} and {high}")
    digits = DIGITS
    while True:
        digits += 1
        least, most = (int(rank[:digits].ljust(digits, "0"), 16) for rank in (low, high))
        # Strictly between the beginnings of both, so whatever follows changes nothing.
        if most - least > 1:
            return _own((least + most) // 2, digits, job_id)


def _own(number: int, digits: int, job_id: int) -> str:
    # Of one length, so that equal ends mean equal ids; and a last digit above 0, for zeros at the end count as nothing.
    return f"{number:0{digits}x}{job_id:012x}1"
