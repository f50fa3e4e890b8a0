"""Job arrays in Slurm's notation: `0-99%4`, `1,3,7`, `0-10:2`."""

from __future__ import annotations

from dataclasses import dataclass

from dibs.errors import UserError

EXAMPLE = "numbers such as 0-99, 1,3,7, 0-10:2 or 0-99%4"
#: Maximum number of jobs in one submission.
MOST = 100_000


@dataclass(frozen=True, slots=True)
class Array:
    """The sorted, distinct indices of an array and the limit on concurrent jobs; None: no limit."""

    indices: tuple[int, ...]
    at_once: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables in which Slurm describes the whole array to each task."""
        first, last = self.indices[0], self.indices[-1]
        step = self.indices[1] - first if len(self.indices) > 1 else 1
        return {
            "SLURM_ARRAY_TASK_COUNT": str(len(self.indices)),
            "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_MAX": str(last),
            "SLURM_ARRAY_TASK_STEP": str(step),
        }


def parse(text: str) -> Array:
    """Parse an array specification."""
    numbers, percent, limit = text.strip().partition("%")
    ranges = [_range(part, text) for part in numbers.split(",")]
    if sum(len(each) for each in ranges) > MOST:
        raise UserError(f'expected at most {MOST:,} jobs, got "{text}".', "Submit them in several calls.")
    at_once = _number(limit, text) if percent else None
    if at_once == 0:
        raise _wrong(text)
    return Array(tuple(sorted({index for each in ranges for index in each})), at_once)


def _range(part: str, text: str) -> range:
    ends, colon, step = part.strip().partition(":")
    first, dash, last = ends.partition("-")
    if colon and not dash:
        raise _wrong(text)
    begin = _number(first, text)
    end = _number(last, text) if dash else begin
    by = _number(step, text) if colon else 1
    if end < begin or by == 0:
        raise _wrong(text)
    return range(begin, end + 1, by)


def _number(word: str, text: str) -> int:
    # Nine digits are more than any array has, and fit every integer type.
    if not (word.isascii() and word.isdigit() and len(word) <= 9):
        raise _wrong(text)
    return int(word)


def _wrong(text: str) -> UserError:
    return UserError(f'expected {EXAMPLE}, got "{text[:80]}".')
