"""Selectors: the words that name jobs (`12`, `3-7`, `@~1`, `failed`, `name:vit*`, `sweep:lr+bad`) as a small value.

Parsing only; `store` turns the value into a query. Several words are a union, `a+b` means both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dibs.errors import UserError
from dibs.model import spelling, units
from dibs.model.jobs import ACTIVE, Outcome, State


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
    """Jobs submitted within this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Is:
    """Jobs whose `field` (project, tag, sweep and gpu by their id) is exactly that; only a door says so."""

    field: str
    value: str | int


@dataclass(frozen=True, slots=True)
class Text:
    """Jobs in whose name or command this stands, in any case; only a door says so."""

    part: str


@dataclass(frozen=True, slots=True)
class Between:
    """Jobs submitted from one moment on and before another, in wall-clock milliseconds; only a door says so."""

    since: int
    until: int


Atom = Ids | Last | Everything | InState | Like | Since | Is | Text | Between
#: A union of intersections.
Selection = tuple[tuple[Atom, ...], ...]

STATE_WORDS = tuple(s.value for s in State if s is not State.FINISHED) + tuple(o.value for o in Outcome)
GROUP_WORDS = {
    "bad": ("failed", "timeout", "lost"),
    "finished": tuple(o.value for o in Outcome),
    "unfinished": tuple(s.value for s in State if s is not State.FINISHED),
    "active": tuple(s.value for s in State if s in ACTIVE),
}
FIELDS = ("name", "project", "tag", "sweep")
#: Words and parts other than ids in one selection. SQLite takes expressions up to 1000 deep.
MOST_PARTS = 500
#: Characters of a glob: more than any name has, and less than SQLite takes.
LONGEST_PATTERN = 4000


def parse(words: Sequence[str]) -> Selection:
    """Return the selection that `words` mean together; a word that means nothing is an error that says what would."""
    unions = [tuple(_atom(part) for part in _parts(word)) for word in words]
    # People hand over thousands of ids as words of their own; together they are one condition.
    ids = tuple(ends for atoms in unions for ends in _plain_ids(atoms))
    others = [atoms for atoms in dict.fromkeys(unions) if not _plain_ids(atoms)]
    if sum(len(atoms) for atoms in others) > MOST_PARTS:
        raise UserError(f"expected at most {MOST_PARTS} selectors besides ids, got more.", "Name the jobs by id.")
    return ((Ids(ids),), *others) if ids else tuple(others)


def _plain_ids(atoms: tuple[Atom, ...]) -> tuple[tuple[int, int], ...]:
    match atoms:
        case (Ids(ranges),):
            return ranges
        case _:
            return ()


def is_moving(chosen: Selection) -> bool:
    """Tell whether it may mean other jobs a moment later although none was submitted, or by one that was."""
    return any(isinstance(atom, Last | InState | Since) for atoms in chosen for atom in atoms)


def within(chosen: Selection, states: Iterable[State | Outcome]) -> Selection:
    """Return the part of a selection that is in one of these states, or ended in one of these ways."""
    return narrowed(chosen, [InState(tuple(state.value for state in states))])


def narrowed(chosen: Selection, also: Sequence[Atom]) -> Selection:
    """Return the part of a selection that is all of these as well."""
    return tuple((*atoms, *also) for atoms in chosen)


def states(text: str) -> tuple[str, ...]:
    """Return the words that outputs show of `failed,unfinished`: states, outcomes, and groups of them."""
    found: list[str] = []
    for word in text.split(","):
        if word not in STATE_WORDS and word not in GROUP_WORDS:
            nearest = spelling.did_you_mean(word, [*STATE_WORDS, *GROUP_WORDS])
            raise UserError(f'expected states such as failed,timeout, got "{word[:80]}".', nearest)
        found += GROUP_WORDS.get(word, (word,))
    return tuple(dict.fromkeys(found))


def ranges(ids: Iterable[int]) -> str:
    """Return the word that means exactly these ids, in runs: `1-5000,7`."""
    runs: list[list[int]] = []
    for job_id in sorted(set(ids)):
        if runs and runs[-1][1] == job_id - 1:
            runs[-1][1] = job_id
        else:
            runs.append([job_id, job_id])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _parts(word: str) -> list[str]:
    # A plus inside name:... belongs to the name unless a selector follows it; names with a plus are rare enough.
    return word.split("+")


def _atom(word: str) -> Atom:
    if word == "all":
        return Everything()
    if word == "@" or word.startswith("@~"):
        back = word[2:] or "0"
        if units.is_whole(back):
            return Last(int(back))
    if word in STATE_WORDS:
        return InState((word,))
    if word in GROUP_WORDS:
        return InState(GROUP_WORDS[word])
    head, colon, tail = word.partition(":")
    if colon and head in FIELDS and len(tail) > LONGEST_PATTERN:
        raise UserError(f"{head}: expected at most {LONGEST_PATTERN:,} characters, got {len(tail):,}.")
    if colon and head in FIELDS and tail:
        return Like(head, tail)
    if colon and head == "since" and tail:
        return Since(units.parse_duration(tail))
    if word and all(char in "0123456789,-" for char in word):
        return Ids(tuple(_range(part, word) for part in word.split(",")))
    raise UserError(f'expected a job such as 12, 3-7, @, failed or name:vit*, got "{word}".', _nearest(word))


def _range(part: str, word: str) -> tuple[int, int]:
    low, dash, high = part.partition("-")
    if not low or (dash and not high) or "-" in high:
        raise UserError(f'expected job ids such as 1,4,9-12, got "{word}".')
    if not units.is_whole(low) or (dash and not units.is_whole(high)):
        raise UserError(f'expected a job id, got "{part}", which is larger than any.')
    first, last = int(low), int(high) if dash else int(low)
    if first > last:
        raise UserError(f'expected the lower id first, got "{part}": write {last}-{first}.')
    return first, last


def _nearest(word: str) -> str:
    head, colon, tail = word.partition(":")
    if colon and (field := spelling.nearest(head, [*FIELDS, "since"])):
        return f"Did you mean {field}:{tail or '...'}?"
    # What other tools call one before the last.
    if word.startswith("@") and word.lstrip("@-~").isdigit():
        return f"Did you mean @~{word.lstrip('@-~')}?"
    return spelling.did_you_mean(word, [*STATE_WORDS, *GROUP_WORDS, "all"])
