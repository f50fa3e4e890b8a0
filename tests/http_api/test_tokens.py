"""The token and the codes that are exchanged for it; the time is passed in."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from dibs.http_api.tokens import (
    CODE_FOR_S,
    DELAY_S,
    FORGET_AFTER_S,
    MOST_CODES,
    MOST_SIDES,
    PATIENT_UNTIL,
    Failures,
    Tokens,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the token is kept."""
    return tmp_path / "web.json"


def test_a_code_is_good_once(path: Path) -> None:
    own = Tokens(path)
    code = own.new_code(0)
    assert own.exchange(code, 1) == own.token
    assert own.exchange(code, 1) is None


def test_a_code_ends(path: Path) -> None:
    own = Tokens(path)
    early, late = own.new_code(0), own.new_code(0)
    assert own.exchange(early, CODE_FOR_S - 0.001) == own.token
    assert own.exchange(late, CODE_FOR_S) is None
    # It was used up by that, whatever the clock says then.
    assert own.exchange(late, 0) is None


@pytest.mark.parametrize("said", ["", "x", "ÿ", "\ud800"])
def test_what_is_no_code_is_exchanged_for_nothing(path: Path, said: str) -> None:
    own = Tokens(path)
    code = own.new_code(0)
    assert own.exchange(said, 0) is None
    assert own.exchange(code[:-1], 0) is None
    assert own.exchange(code, 0) == own.token


def test_there_are_never_more_than_a_few_codes(path: Path) -> None:
    own = Tokens(path)
    codes = [own.new_code(0) for _ in range(MOST_CODES + 3)]
    assert len({*codes}) == len(codes)
    good = [own.exchange(code, 0) is not None for code in codes]
    assert good == [False] * 3 + [True] * MOST_CODES


def test_the_token_has_256_bits_and_only_its_owner_reads_the_file(path: Path) -> None:
    own = Tokens(path)
    assert own.token is None
    own.new_code(0)
    assert own.token is not None
    assert len(own.token) == 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["web.json"]


def test_token_and_port_are_kept_but_codes_are_not(path: Path) -> None:
    first = Tokens(path)
    code = first.new_code(0)
    first.remember(8080)
    second = Tokens(path)
    assert (second.token, second.port) == (first.token, 8080)
    assert second.exchange(code, 0) is None
    second.remember(None)
    assert Tokens(path).port is None


def test_a_new_token_ends_the_old_one_and_all_codes(path: Path) -> None:
    own = Tokens(path)
    code, old = own.new_code(0), own.token
    own.remember(8080)
    own.rotate()
    assert own.token not in (None, old)
    assert own.exchange(code, 0) is None
    assert Tokens(path).token == own.token
    assert Tokens(path).port == 8080


def test_a_file_that_others_could_have_seen_or_made_is_not_used(path: Path, tmp_path: Path) -> None:
    own = Tokens(path)
    own.new_code(0)
    path.chmod(0o640)
    assert Tokens(path).token is None
    path.chmod(0o600)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert Tokens(link).token is None
    assert Tokens(path).token == own.token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"token": "short", "port": 1}',
        '{"token": 5, "port": 1}',
        '{"port": 1}',
        "\0",
        "ÿ" * 9999,
    ],
)
def test_a_broken_file_counts_as_none_and_is_written_anew(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    own = Tokens(path)
    assert own.token is None
    own.new_code(0)
    assert json.loads(path.read_text())["token"] == own.token


@pytest.mark.parametrize("port", [0, -1, 65536, "80", 1.5, None, True])
def test_a_port_that_is_none_is_not_believed(path: Path, port: object) -> None:
    path.write_text(json.dumps({"token": "t" * 43, "port": port}))
    path.chmod(0o600)
    assert Tokens(path).port is None
    assert Tokens(path).token == "t" * 43


def test_whoever_is_wrong_too_often_waits_and_nobody_else_does() -> None:
    failures = Failures()
    assert [failures.delay_s("ann", 0) for _ in range(PATIENT_UNTIL)] == [0.0] * PATIENT_UNTIL
    assert failures.delay_s("ann", 1) == DELAY_S
    assert failures.delay_s("ben", 1) == 0.0
    assert failures.delay_s("ann", 1 + FORGET_AFTER_S) == 0.0


def test_no_more_sides_are_remembered_than_fit() -> None:
    failures = Failures()
    for number in range(3 * MOST_SIDES):
        failures.delay_s(str(number), 0)
    assert len(failures._sides) == MOST_SIDES
