"""Selectors: the words that name jobs (`12`, `3-7`, `@~1`, `failed`, `name:vit*`, `sweep:lr+bad`) as a small value.

Parsing only; `store` turns the value into a query. Several words are a union, `a+b` means both.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from dibs import units
from dibs.errors import UserError
from dibs.jobs import Outcome, State


@dataclass(frozen=True, slots=True)
class Ids:
    """Jobs whose id is in one of these ranges, ends included."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Last:
    """The job submitted `back` before the newest."""

    back: int


@dataclass(frozen=True, slots=True)
class Everything:
    """All jobs."""


@dataclass(frozen=True, slots=True)
class InState:
    """Jobs in one of these states or with one of these outcomes, by the word that outputs show."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Jobs whose `field` (name, project, tag, sweep) matches a glob."""

    field: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Since:
    """Jobs submitted within the last so many seconds."""

    seconds: float


Atom = Ids | Last | Everything | InState | Like | Since
#: A union of intersections.
Selection = tuple[tuple[Atom, ...], ...]

STATE_WORDS = tuple(s.value for s in State if s is not State.FINISHED) + tuple(o.value for o in Outcome)
GROUP_WORDS = {
    "bad": ("failed", "timeout", "lost"),
    "finished": tuple(o.value for o in Outcome),
    "unfinished": tuple(s.value for s in State if s is not State.FINISHED),
}
FIELDS = ("name", "project", "tag", "sweep")


def parse(words: Sequence[str]) -> Selection:
    """Return the selection that `words` mean together; a word that means nothing is an error that says what would."""
    return tuple(tuple(_atom(part) for part in _parts(word)) for word in words)


def _parts(word: str) -> list[str]:
    # A plus inside name:... belongs to the name unless a selector follows it; names with a plus are rare enough.
    return word.split("+")


def _atom(word: str) -> Atom:
    if word == "all":
        return Everything()
    if word == "@" or word.startswith("@~"):
        back = word[2:] or "0"
        if back.isdigit():
            return Last(int(back))
    if word in STATE_WORDS:
        return InState((word,))
    if word in GROUP_WORDS:
        return InState(GROUP_WORDS[word])
    head, colon, tail = word.partition(":")
    if colon and head in FIELDS and tail:
        return Like(head, tail)
    if colon and head == "since" and tail:
        return Since(units.parse_duration(tail))
    if word and all(char.isdigit() or char in ",-" for char in word):
        return Ids(tuple(_range(part, word) for part in word.split(",")))
    raise UserError(f'expected a job such as 12, 3-7, @, failed or name:vit*, got "{word}".', _nearest(word))


def _range(part: str, word: str) -> tuple[int, int]:
    low, dash, high = part.partition("-")
    if not low.isdigit() or (dash and not high.isdigit()):
        raise UserError(f'expected job ids such as 1,4,9-12, got "{word}".')
    first, last = int(low), int(high) if dash else int(low)
    if first > last:
        raise UserError(f'expected the lower id first, got "{part}": write {last}-{first}.')
    if last >= 2**63:
        raise UserError(f'expected a job id, got "{part}", which is larger than any.')
    return first, last


def _nearest(word: str) -> str:
    near = difflib.get_close_matches(word, [*STATE_WORDS, *GROUP_WORDS, "all"], 1)
    return f"Did you mean {near[0]}?" if near else ""
