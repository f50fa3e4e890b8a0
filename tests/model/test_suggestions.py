"""Suggestions for mistyped words: similar words are named, others are not guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.model import suggestions

VERBS = ("status", "add", "run", "show", "cancel", "retry", "completion", "config", "doctor")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("stauts", "status"),
        ("statu", "status"),
        ("Status", "status"),
        ("shwo", "show"),
        ("cancle", "cancel"),
        ("compleation", "completion"),
        ("comp", "completion"),
        ("ad", "add"),
        ("dd", "add"),
        ("ru", "run"),
        ("rnu", "run"),
        ("wh", None),
        ("st", None),
        ("x", None),
        ("", None),
        ("con", "config"),
        ("start", None),
        ("banana", None),
        ("rm", None),
    ],
)
def test_only_similar_words_are_suggested(typed: str, meant: str | None) -> None:
    assert suggestions.nearest(typed, VERBS) == meant


@given(st.text(min_size=4, max_size=12, alphabet="abcdefgh"), st.integers(0, 10))
def test_one_missing_letter_is_always_corrected(word: str, at: int) -> None:
    at %= len(word)
    assert suggestions.nearest(word[:at] + word[at + 1 :], [word]) == word


@given(st.text(max_size=8), st.lists(st.text(max_size=8), max_size=5))
def test_a_suggestion_is_one_of_the_known_words(word: str, known: list[str]) -> None:
    assert suggestions.nearest(word, known) in (None, *known)


def test_a_very_long_text_gets_no_suggestion_and_is_not_compared_letter_by_letter() -> None:
    # Letter by letter this would take hours.
    assert suggestions.nearest("x" * 10**8, ["status", "show"]) is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pyhton", "python"),
        ("pythn", "python"),
        ("pythonn", "python"),
        ("ypthon", None),
        ("pyhtno", None),
        ("python", "python3"),
        ("sl", None),
        ("", None),
    ],
)
def test_among_program_names_only_a_single_slip_is_corrected(typed: str, meant: str | None) -> None:
    assert suggestions.one_slip(typed, ["ls", "python", "python3", "pydoc", ""]) == meant
