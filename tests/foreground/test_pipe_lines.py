"""Splitting a stream into commands, whatever pieces it arrives in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.foreground.command_lines import Lines


def read(text: bytes, **how: bool) -> list[str]:
    """Return the commands of a whole stream."""
    lines = Lines(**how)
    return lines.feed(text) + lines.feed(b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"  a \t\r\nb\rc\n", ["  a", "b\rc"]),
        (b"\n\n", ["", ""]),
        (b"a\xff\n", ["a\udcff"]),
        ("é\u3000\n".encode(), ["é"]),
        (b"---\na\\\n", ["---", "a\\"]),
    ],
)
def test_each_line_is_a_command(text: bytes, expected: list[str]) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a \\\n  b\nc\n", ["a \\\n  b", "c"]),
        (b"a\\\\\nb\n", ["a\\\\", "b"]),
        (b"---\na\nb\n---\nc\n", ["a\nb", "c"]),
        (b"---\na\n---\n---\n\nb\\\n---\n", ["a", "\nb\\"]),
        (b"x\n---\na\nb", ["x", "a\nb"]),
        (b"---\n---\na\n", ["a"]),
        (b"a\\\n---\n", ["a\\\n---"]),
        (b"a\\", ["a\\"]),
    ],
)
def test_several_lines_can_be_one_command(text: bytes, expected: list[str]) -> None:
    assert read(text, is_joined=True) == expected


def test_blank_lines_and_comments_can_be_skipped() -> None:
    assert read(b"\n  \n# x\na # y\n---\n\n# z\n---\n", is_joined=True, skips_blank=True) == ["a # y"]


def test_a_line_is_available_as_soon_as_it_ends() -> None:
    lines = Lines(is_joined=True)
    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o\r") == []
    assert lines.feed(b"\nthree\n") == ["two", "three"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab\\-#\n\r é"), max_size=60), st.integers(1, 7), st.booleans())
def test_the_pieces_of_the_stream_do_not_matter(text: str, size: int, is_joined: bool) -> None:
    raw = text.encode()
    lines = Lines(is_joined=is_joined)
    pieces = [lines.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    assert [command for piece in [*pieces, lines.feed(b"")] for command in piece] == read(raw, is_joined=is_joined)
