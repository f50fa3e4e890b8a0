"""Ranks: the position of a waiting job among jobs of its priority, as a sortable string.

The initial rank derives from the job id, so the order is that of submission. There is always a rank between two others,
so a move changes one job only, however long the queue is. A move puts the job id at the end, so ranks are unique.
"""

from __future__ import annotations

#: Digits of an initial rank, and the number that represents id 0: half of the range is before it.
DIGITS = 16
ZERO = 2**62


def rank_of_id(job_id: int) -> str:
    """Return the initial rank of a job."""
    return f"{ZERO + job_id:0{DIGITS}x}"


def ahead_of(first: str, job_id: int) -> str:
    """Return a rank before `first`, the first in use; its length is constant, so this can be repeated without limit."""
    return _own(int(first[:DIGITS], 16) - 1, DIGITS, job_id)


def between(low: str, high: str, job_id: int) -> str:
    """Return the shortest possible rank between two others."""
    if low >= high:
        raise ValueError(f"expected two ranks in order, got {low} and {high}")
    digits = DIGITS
    while True:
        digits += 1
        least, most = (int(rank[:digits].ljust(digits, "0"), 16) for rank in (low, high))
        # Strictly between both prefixes, so any suffix keeps the order.
        if most - least > 1:
            return _own((least + most) // 2, digits, job_id)


def _own(number: int, digits: int, job_id: int) -> str:
    # With a fixed width, equal suffixes mean equal ids. The last digit is not 0 because `between` pads with zeros.
    return f"{number:0{digits}x}{job_id:012x}1"
