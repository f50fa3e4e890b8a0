"""The end of a log and what is appended to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dibs.cli.top.log_tail import MOST_BYTES, LogTail


def test_lines_are_read_once_and_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthr")
    tail = LogTail(str(path))
    assert tail.read() == ["one", "two"]
    with path.open("a") as file:
        file.write("ee\n")
    assert (tail.read(), tail.read()) == (["three"], [])


def test_a_long_log_begins_with_a_whole_line_near_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    found = LogTail(str(path)).read()
    assert found[-1] == "line 99999"
    assert found[0].startswith("line ")
    assert sum(len(line) + 1 for line in found) <= MOST_BYTES


def test_a_log_that_was_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old line\n")
    tail = LogTail(str(path))
    tail.read()
    path.write_text("new\n")
    assert tail.read() == ["new"]


def test_colours_progress_bars_and_control_characters_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[31mred\x1b[0m\n 10%\r 50%\r100%\r\n\x1b[2Jboo\xff\n")
    assert LogTail(str(path)).read() == ["red", "100%", "\\e[2Jboo�"]


def test_a_log_that_does_not_exist_yet_is_an_error_for_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LogTail(str(tmp_path / "log")).read()
