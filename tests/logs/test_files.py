"""Logs of any size: their last lines, search, and the index of lines."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dibs.errors import Conflict, UserError
from dibs.logs import files, search_child
from dibs.logs.files import LogFile

GIB = 1024**3
texts = some.lists(
    some.sampled_from([b"a", b"B", b"\n", b"\n", b"\xc3\xa9", b"\xff", b"\r", b"x" * 700]), max_size=60
).map(b"".join)


@contextlib.contextmanager
def written(folder: Path, body: bytes) -> Iterator[LogFile]:
    path = folder / "log"
    path.write_bytes(body)
    log = files.open_log(str(path))
    yield log
    log.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@settings(max_examples=200)
@given(body=texts, count=some.integers(0, 12))
def test_the_last_lines_equal_those_of_tail(folder, body, count):
    with written(folder, body) as log:
        lines = body.removesuffix(b"\n").split(b"\n")
        last = b"\n".join(lines[max(0, len(lines) - count) :]) + b"\n" * body.endswith(b"\n")
        assert body[files.last_lines(log, count) :] == (last if count else b"")


def test_very_long_lines_are_cut_at_the_start(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as file:
        file.truncate(GIB)
    log = files.open_log(str(tmp_path / "log"))
    assert files.last_lines(log, 3) == GIB - files.FARTHEST
    log.close()


def found(log: LogFile, text: str, begin: int = 0, **how: Any) -> dict[str, Any]:
    """Call the functions of the child in this process."""
    assert log.fd is not None
    question = {"text": text, "regex": False, "case": False} | how
    return search_child.search(log.fd, log.size, begin, question, how.get("most", 1000))


@settings(max_examples=200)
@given(body=texts, text=some.sampled_from(["a", "b", "é", "ab", "x"]), case=some.booleans(), most=some.integers(1, 5))
def test_a_search_finds_all_matching_lines(folder, body, text, case, most):
    """In several steps, with the byte offset of each line, and its number where it is known."""
    with written(folder, body) as log:
        at, expected = 0, []
        for number, line in enumerate(body.removesuffix(b"\n").split(b"\n")):
            shown = line.decode(errors="replace")
            if (text if case else text.lower()) in (shown if case else shown.lower()):
                expected.append((at, number))
            at += len(line) + 1
        seen, begin = [], 0
        while begin is not None:
            told = found(log, text, begin, case=case, most=most)
            assert [match["line"] is None for match in told["matches"]] == [begin > 0] * len(told["matches"])
            seen += [match["offset"] for match in told["matches"]]
            begin = told["next"]
        assert seen == [at for at, _ in expected]


def test_a_match_far_into_a_line_shows_the_text_around_it(tmp_path: Path) -> None:
    with written(tmp_path, b"first\n" + b"-" * 5000 + b"needle" + b"+" * 5000 + b"\n") as log:
        (match,) = found(log, "needle")["matches"]
        assert (match["offset"], match["line"]) == (6, 1)
        assert match["text"].startswith("-" * 200 + "needle+")
        assert len(match["text"]) == search_child.TOLD


@settings(max_examples=100)
@given(lengths=some.lists(some.integers(0, 3), max_size=3000), is_open=some.booleans())
def test_an_index_has_the_offset_of_every_thousandth_line(folder, lengths, is_open):
    body = b"".join(b"." * length + b"\n" for length in lengths) + b"end" * is_open
    with written(folder, body) as log:
        assert log.fd is not None
        told = search_child.index(log.fd, log.size, 0, 0)
    begins, at = [], 0
    for line in body.splitlines(keepends=True):
        begins.append(at)
        at += len(line)
    assert told["offsets"] == begins[::1000]
    assert (told["lines"], told["next"]) == (len(begins), None)


def test_an_index_can_be_continued_at_any_offset(tmp_path: Path) -> None:
    body = b"".join(b"line %d\n" % number for number in range(5000)) + search_child.TRACEBACK + b":\n"
    with written(tmp_path, body) as log:
        assert log.fd is not None
        whole = search_child.index(log.fd, log.size, 0, 0)
        for at in (1, 7, 1000, 8890, 8891, 30_000):
            before = search_child.index(log.fd, at, 0, 0)
            rest = search_child.index(log.fd, log.size, at, before["line"])
            assert [*before["offsets"], *rest["offsets"]] == whole["offsets"]
            assert (rest["lines"], rest["traceback"]) == (5001, body.index(b"Trace"))


def test_a_child_searches_five_gigabytes_in_steps(tmp_path: Path) -> None:
    """It holds at most one block in memory; each step continues where the last one ended."""
    with open(tmp_path / "log", "wb") as file:
        file.write(b"first line\n")
        file.seek(5 * GIB)
        file.write(b"\nthe needle\n")
    log = files.open_log(str(tmp_path / "log"))
    try:
        assert log.size == 5 * GIB + 12
        told = json.loads(files.search(log, 0, "Needle", is_regex=False, is_case=False, most=10))
        # How far one step gets depends on the machine.
        assert (told["next"] is None) == bool(told["matches"])
        assert told["next"] is None or 0 < told["next"] < log.size
        last = log.size - 100_000
        told = json.loads(files.search(log, last, "n[e]edle$", is_regex=True, is_case=True, most=10))
        assert told == {
            "matches": [{"offset": 5 * GIB + 1, "line": None, "text": "the needle"}],
            "next": None,
            "size": log.size,
        }
        lines = json.loads(files.index(log, 0, 0))
        assert lines["offsets"] == [0]
        assert lines["next"] is None or 0 < lines["next"] < log.size
        assert lines["line"] == (3 if lines["next"] is None else 1)
        assert files.last_lines(log, 1) == 5 * GIB + 1
    finally:
        log.close()


def test_an_endless_regular_expression_is_aborted(tmp_path: Path) -> None:
    with (
        written(tmp_path, b"a" * 60 + b"!\n") as log,
        pytest.raises(UserError, match="the search took more than 2 s of CPU time and was stopped"),
    ):
        files.search(log, 0, "(a+)+$", is_regex=True, is_case=True, most=1)


@pytest.mark.parametrize("text", ["(", "a{99999999999}", "(?P<x", "[b-a]", "(?:" * 5000 + ")" * 5000])
def test_an_invalid_regular_expression_is_refused(tmp_path: Path, text: str) -> None:
    with written(tmp_path, b"a\n") as log, pytest.raises(UserError, match="text expected a regular expression"):
        files.search(log, 0, text, is_regex=True, is_case=True, most=1)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe would wait for a writer, a device might never end."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(Conflict, match="is not a regular file, so its output cannot be shown"):
            files.open_log(str(path))
    assert files.open_log(str(tmp_path / "none")) == LogFile(None, 0)
    assert files.open_log(str(tmp_path / "none" / "log")).size == 0
