"""Help in error messages: the place of the mistake, and the nearest known word if one is close enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dibs.errors import UserError


@contextmanager
def inside(where: str) -> Iterator[None]:
    """Put a place, or an option, before the messages of user errors."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where} {error.message}", error.hint) from None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word within a few typos of `word`, or the only one that starts with it; None if there is
    none."""
    typed = word.lower()
    if not typed:
        return None
    words = list(known)
    # Compare only words of similar length letter by letter: the input may be a whole pasted file.
    alike = [(place, name) for place, name in enumerate(words) if abs(len(typed) - len(name)) <= _allowed(typed, name)]
    scored = [(_slips(typed, name.lower()), place, name) for place, name in alike]
    near = [each for each in scored if each[0] <= _allowed(typed, each[2])]
    if near:
        return min(near)[2]
    # A prefix of three letters is enough if only one word starts with it.
    longer = [name for name in words if len(typed) >= 3 and name.lower().startswith(typed)]
    return longer[0] if len(longer) == 1 else None


def one_slip(word: str, known: Iterable[str]) -> str | None:
    """Return the known word with one typo after the first letter: for long lists, where some name is always near."""
    alike = (name for name in known if name[:1] == word[:1] and abs(len(name) - len(word)) <= 1)
    return min((name for name in alike if len(word) >= 3 and _slips(word, name) == 1), default=None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean ...?", or an empty string if no known word is close."""
    near = nearest(word, known)
    return f"Did you mean {near}?" if near is not None else ""


def _allowed(typed: str, name: str) -> int:
    """Return how many typos still leave a word recognizable: none in very short words, three in long ones."""
    if len(typed) < 2 or len(name) < 3:
        return 0
    length = min(len(typed), len(name))
    return 1 if length < 5 else 2 if length < 9 else 3


def _slips(typed: str, name: str) -> int:
    """Return the number of letters that were omitted, added, changed, or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, char in enumerate(typed, 1):
        earlier, before, row = before, row, [i]
        for j, wanted in enumerate(name, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != wanted))
            if i > 1 and j > 1 and char == name[j - 2] and typed[i - 2] == wanted:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]
