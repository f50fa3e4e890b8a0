"""Consecutive ports for the clusters of tests and benchmarks."""

from __future__ import annotations

import random
import socket

#: Below Ray's worker ports and those of jobs, above most services.
FIRST_PORT, END_PORT, BLOCK = 6400, 9900, 20


def free_block() -> int:
    """Return the first of some consecutive ports that nobody uses."""
    starts = list(range(FIRST_PORT, END_PORT, BLOCK))
    random.shuffle(starts)
    return next(start for start in starts if all(_is_free(start + number) for number in range(BLOCK)))


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True
