"""Output for users: cleaned, aligned, fitted, coloured only where appropriate."""

from __future__ import annotations

import io
import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import build
from bench import Bench
from dibs.cli import log_output, screen
from dibs.cli.screen import Column, Screen
from dibs.cli.verbs import show
from dibs.client import job_state
from dibs.client.safe_text import LogCleaner, clean
from dibs.devices import assessment
from dibs.submission.options import Args
from terminal import Terminal

PIPED = Screen(is_terminal=False, is_coloured=False, width=None)
COLUMNS = (Column("ID", is_right=True), Column("NAME", least=8), Column("STATE", is_state=True), Column("CMD", least=8))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("a\x1b[31mred", "a\\e[31mred"),
        ("a\x1b]0;title\x07b", "a\\e]0;title\\x07b"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("left\u202eright\u200b", "left\\u202eright\\u200b"),
        ("line\u2028line", "line\\u2028line"),
        ("\ud800", "\\ud800"),
        ("no\u00a0break", "no\u00a0break"),
        ("tag\U000e0041", "tag\\U000e0041"),
    ],
)
def test_names_cannot_control_the_terminal(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_a_cleaned_text_is_one_line_without_control_characters(text: str) -> None:
    shown = clean(text)
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)


def cleaned(*pieces: bytes) -> str:
    """Return what a terminal gets of a log that arrives in these pieces."""
    cleaner = LogCleaner()
    return "".join([*(cleaner.feed(piece) for piece in pieces), cleaner.finish()])


def test_a_log_keeps_only_its_colours_and_lines() -> None:
    assert cleaned(b"\x1b[1;31mred\x1b[0m\n50%\r60%\tok") == "\x1b[1;31mred\x1b[0m\n50%\r60%\tok\x1b[0m"
    assert cleaned(b"\x1b[2J\x1b[1A\x1b]0;x\x07\x08\x9b") == "\\e[2J\\e[1A\\e]0;x\\x07\\x08\ufffd"
    assert cleaned(b"\xc2\x9b\xe2\x80\xae") == "\\x9b\\u202e"


def test_a_colour_or_a_character_may_arrive_in_pieces() -> None:
    assert cleaned(b"a\x1b", b"[3", b"1", b"mb") == "a\x1b[31mb\x1b[0m"
    assert cleaned(b"a\x1b", b"[3", b"J") == "a\\e[3J"
    assert cleaned(b"\xe6\xbc", b"\xa2") == "漢"
    assert cleaned(b"end\x1b[3") == "end\\e[3"
    assert cleaned(b"\xe6") == "\ufffd"


@given(st.binary(), st.integers(1, 7))
def test_the_pieces_of_a_log_do_not_matter(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert cleaned(*pieces) == cleaned(data)


def test_piped_tables_are_plain_complete_and_aligned() -> None:
    text = screen.table(PIPED, COLUMNS, [("7", "a" * 100, "running", "x"), ("12", "", "done", "\x1b[2J")])
    assert text.split("\n") == [
        "ID  NAME" + " " * 98 + "STATE    CMD",
        " 7  " + "a" * 100 + "  running  x",
        "12  -" + " " * 101 + "done     \\e[2J",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 99999), st.text(max_size=60), st.text(max_size=200)), min_size=1, max_size=4),
    st.integers(40, 200),
)
def test_tables_on_a_terminal_fit_its_width(rows: list[tuple[int, str, str]], width: int) -> None:
    view = Screen(is_terminal=True, is_coloured=False, width=width)
    text = screen.table(view, COLUMNS, [(str(number), name, "queued", command) for number, name, command in rows])
    lines = text.split("\n")
    assert len(lines) == len(rows) + 1
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("width", [1, 20, 33])
def test_ids_and_states_are_never_cut_however_narrow_the_terminal_is(width: int) -> None:
    columns = (Column("ID"), Column("NAME", least=8), Column("STATE", is_state=True), Column("GPU", least=3))
    text = screen.table(Screen(True, False, width), columns, [("123456", "a name of a job", "running", "0-3")])
    name = {1: "a…ob", 20: "a…ob", 33: "a nam…a job"}[width]
    assert text.split("\n")[1] == f"123456  {name}  running  0-3"


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("python train.py --lr 0.1", 12, "pytho…lr 0.1"),
        ("short", 12, "short"),
        ("日本語の名前", 12, "日本語の名前"),
        ("日本語の名前", 10, "日本…名前"),
        ("日本語の名前", 3, "日"),
        ("e\u0301" * 6, 6, "e\u0301" * 6),
    ],
)
def test_a_long_command_is_shortened_in_the_middle(text: str, width: int, cut: str) -> None:
    assert screen.middle(text, width) == cut


@pytest.mark.parametrize(
    ("is_terminal", "chosen", "environ", "expected"),
    [
        (True, None, {}, True),
        (True, "auto", {"TERM": "dumb"}, False),
        (True, None, {"NO_COLOR": "1"}, False),
        (True, None, {"NO_COLOR": ""}, True),
        (True, "never", {"FORCE_COLOR": "1"}, False),
        (False, None, {}, False),
        (False, None, {"FORCE_COLOR": "1"}, True),
        (False, None, {"FORCE_COLOR": "0"}, False),
        (False, None, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (False, "always", {"NO_COLOR": "1"}, True),
    ],
)
def test_colour_depends_on_terminal_option_and_environment(
    is_terminal: bool, chosen: str | None, environ: dict[str, str], expected: bool
) -> None:
    assert screen.is_coloured(is_terminal, chosen, environ) is expected


def test_a_stream_that_is_no_terminal_is_piped() -> None:
    assert screen.screen_of_stream(io.StringIO(), Args(), {}) == PIPED


def test_states_are_coloured_only_on_request() -> None:
    rows = [("1", "a", "failed", "x")]
    assert "\x1b[31m" in screen.table(Screen(False, True, None), COLUMNS, rows)
    assert "\x1b" not in screen.table(Screen(True, False, 80), COLUMNS, rows)


def test_times_are_relative_only_on_a_terminal() -> None:
    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    at = "2026-01-01T11:57:55.000Z"
    assert datetime.fromisoformat(screen.moment(PIPED, at, now)) == datetime.fromisoformat(at)
    assert not screen.moment(PIPED, at, now).endswith("Z")
    assert screen.moment(Screen(True, False, 80), at, now) == "2m05s ago"
    assert screen.moment(PIPED, None, now) == ""


@given(st.binary(max_size=2000).map(lambda data: data.replace(b"a", b"\n")), st.integers(0, 12))
def test_the_last_lines_are_found_from_the_end(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, count: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "log"
    file.write_bytes(data)
    tail = data[log_output.start_of_last(str(file), count) :]
    lines = data.split(b"\n") if data else []
    if lines and not lines[-1]:
        lines.pop()
    assert tail.removesuffix(b"\n") == b"\n".join(lines[-count:] if count else [])


def test_the_last_lines_of_a_large_log_are_found_too(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 1000 * 1000 + b"\n" + b"y\n" * 100_000)
    assert file.read_bytes()[log_output.start_of_last(str(file), 3) :] == b"y\n" * 3
    assert log_output.start_of_last(str(file), 100_001) == 0
    assert log_output.last_lines(str(file), 2) == ["y", "y"]


def test_a_job_that_was_stopped_never_exits_with_success() -> None:
    def code(state: str, exit_code: int | None = None, signal: int | None = None) -> int:
        return job_state.exit_code({"exit_code": exit_code, "signal": signal}, state)  # type: ignore[arg-type]

    assert code("done", 0) == 0
    assert code("failed", 3) == 3
    assert code("failed", None, 9) == 137
    assert code("failed") == 125
    assert code("timeout", None, 15) == 124
    assert code("lost") == 125
    assert code("cancelled") == 130
    assert code("cancelled", 0) == 130
    assert code("cancelled", 7) == 7
    assert code("cancelled", None, 15) == 143


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("words", [(), ("status", "all"), ("show", "2"), ("gpus",), ("config",), ("doctor",)], ids=str)
def test_terminal_output_fits_the_width_whatever_the_names(bench: Bench, columns: int, words: tuple[str, ...]) -> None:
    bench.add("sleep 1000; " + "x" * 500, name="evil\x1b[2J\x1b]0;title\x07\nname" * 3, gpus=4)
    bench.add(["true", "\x1b[31m" * 50], name="漢字" * 30)
    bench.until(1, "started")
    with Terminal(bench, *words, columns=columns) as person:
        code, shown = person.end()
    assert code == 0
    lines = shown.replace("\r", "").rstrip("\n").split("\n")
    bare = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines]
    assert not any("\x1b" in line or "\x07" in line for line in bare)
    # A fact of `show` stays on one line, to be copied.
    assert words[:1] == ("show",) or all(cell_len(line) <= columns for line in bare)
    if not words:
        assert bare[0] == "4 GPUs, 0 free; 1 running, 1 queued"
        assert bare[1].startswith("GPU 0-3: job 1 evil")
        assert "needs 1 GPU" in " ".join(bare)


def test_no_colour_on_a_terminal_with_no_color(bench: Bench) -> None:
    bench.add("true")
    with Terminal(bench, "status", NO_COLOR="1") as person:
        code, shown = person.end()
    assert code == 0
    assert "\x1b" not in shown


def test_an_empty_queue_shows_how_to_add_a_job(bench: Bench) -> None:
    with Terminal(bench) as person:
        code, shown = person.end()
    assert code == 0
    assert "dibs add" in shown
    piped = bench.cli()
    assert (piped.returncode, piped.stdout) == (0, "")
    assert "dibs add" in piped.stderr


def test_every_kind_of_event_has_a_readable_text() -> None:
    kinds = {event.__name__ for event in build.EVENT_KINDS}
    source = "".join(path.read_text() for path in Path(show.__file__).parents[2].rglob("*.py"))
    noted = {kind for call in re.findall(r"\bnote\((.*)", source) for kind in re.findall(r'"([A-Z]\w+)"', call)}
    assert len(noted) >= 8
    assert show.EVENT_WORDS.keys() == kinds | noted | {*assessment.KINDS, "Submitted"}
