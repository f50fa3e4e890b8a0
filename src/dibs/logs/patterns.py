"""Metrics that a job prints: a name, and a regular expression with one capture group that finds them in its log.

Pure.
"""

from __future__ import annotations

import re

from dibs.errors import UserError

EXAMPLE = "NAME=REGEX with one group for the number, such as loss='loss: ([0-9.]+)'"


def check(name: str, pattern: str) -> None:
    """Raise an error if the expression could never find a number."""
    if not re.fullmatch(r"[A-Za-z_][\w./-]*", name):
        raise UserError(f'expected {EXAMPLE}, got the name "{name[:80]}".')
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f'expected {EXAMPLE}; "{pattern[:80]}" is not a regular expression: {error}.') from None
    if groups != 1:
        raise UserError(
            f'expected {EXAMPLE}; "{pattern[:80]}" has {groups} groups.',
            "Use (?:...) for groups that are not the number.",
        )
