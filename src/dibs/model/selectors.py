"""Selectors: words that name jobs (`12`, `3-7`, `@~1`, `failed`, `name:vit*`, `sweep:lr+bad`), parsed into values.

`store` turns the value into a query. Several words are a union; `a+b` is an intersection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dibs.errors import UserError
from dibs.model import suggestions, units
from dibs.model.jobs import ACTIVE, Outcome, State


@dataclass(frozen=True, slots=True)
class Ids:
    """Jobs whose id is in one of these inclusive ranges."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Last:
    """The job submitted `back` jobs before the newest."""

    back: int


@dataclass(frozen=True, slots=True)
class Everything:
    """All jobs."""


@dataclass(frozen=True, slots=True)
class InState:
    """Jobs in one of these states or with one of these outcomes, by the word shown in outputs."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Jobs whose `field` (name, project, group, tag, sweep) matches a glob."""

    field: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Since:
    """Jobs submitted within this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Is:
    """Jobs whose `field` (project, tag, sweep and gpu by their id) has exactly this value; no word produces it."""

    field: str
    value: str | int


@dataclass(frozen=True, slots=True)
class Text:
    """Jobs whose name or command contains this text, ignoring case; no word produces it."""

    part: str


@dataclass(frozen=True, slots=True)
class Between:
    """Jobs submitted in a half-open interval, in wall-clock milliseconds; no word produces it."""

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
FIELDS = ("name", "project", "group", "tag", "sweep")
#: Maximum number of words and parts other than ids in one selection. SQLite limits expressions to a depth of 1000.
MOST_PARTS = 500
#: Maximum length of a glob: more than any name has, less than SQLite's limit.
LONGEST_PATTERN = 4000


def parse(words: Sequence[str]) -> Selection:
    """Return the selection that `words` describe together; the error for an invalid word suggests a valid one."""
    unions = [tuple(_atom(part) for part in _parts(word)) for word in words]
    # Scripts pass thousands of ids as separate words; merge them into one condition.
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
    """Tell whether it may soon match other jobs, with or without a new submission."""
    return any(isinstance(atom, Last | InState | Since) for atoms in chosen for atom in atoms)


def named(chosen: Selection) -> list[tuple[Atom, ...]]:
    """Return what each part of a selection names, without states and times; empty: it may well match nothing."""
    return [tuple(atom for atom in atoms if isinstance(atom, Ids | Last | Like | Is | Text)) for atoms in chosen]


def within(chosen: Selection, states: Iterable[State | Outcome]) -> Selection:
    """Return the part of a selection with one of these states or outcomes."""
    return narrowed(chosen, [InState(tuple(state.value for state in states))])


def narrowed(chosen: Selection, also: Sequence[Atom]) -> Selection:
    """Return the part of a selection that matches all of these too."""
    return tuple((*atoms, *also) for atoms in chosen)


def states(text: str) -> tuple[str, ...]:
    """Expand `failed,unfinished` (states, outcomes and groups of them) into the words shown in outputs."""
    found: list[str] = []
    for word in text.split(","):
        if word not in STATE_WORDS and word not in GROUP_WORDS:
            nearest = suggestions.did_you_mean(word, [*STATE_WORDS, *GROUP_WORDS])
            raise UserError(f'expected states such as failed,timeout, got "{word[:80]}".', nearest)
        found += GROUP_WORDS.get(word, (word,))
    return tuple(dict.fromkeys(found))


def ranges(ids: Iterable[int]) -> str:
    """Return the selector that matches exactly these ids, as ranges: `1-5000,7`."""
    runs: list[list[int]] = []
    for job_id in sorted(set(ids)):
        if runs and runs[-1][1] == job_id - 1:
            runs[-1][1] = job_id
        else:
            runs.append([job_id, job_id])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _parts(word: str) -> list[str]:
    # A plus inside name:... always splits the word; names with a plus are rare enough.
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
    if colon and (field := suggestions.nearest(head, [*FIELDS, "since"])):
        return f"Did you mean {field}:{tail or '...'}?"
    # How other tools write the job before the last.
    if word.startswith("@") and word.lstrip("@-~").isdigit():
        return f"Did you mean @~{word.lstrip('@-~')}?"
    return suggestions.did_you_mean(word, [*STATE_WORDS, *GROUP_WORDS, "all"])
