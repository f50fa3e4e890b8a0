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
    """Return the path of the token."""
    return tmp_path / "web.json"


def test_a_code_is_valid_once(path: Path) -> None:
    own = Tokens(path)
    code = own.new_code(0)
    assert own.exchange(code, 1) == own.token
    assert own.exchange(code, 1) is None


def test_a_code_expires(path: Path) -> None:
    own = Tokens(path)
    early, late = own.new_code(0), own.new_code(0)
    assert own.exchange(early, CODE_FOR_S - 0.001) == own.token
    assert own.exchange(late, CODE_FOR_S) is None
    # That used it up, whatever the clock says later.
    assert own.exchange(late, 0) is None


@pytest.mark.parametrize("said", ["", "x", "ÿ", "\ud800"])
def test_an_invalid_code_is_exchanged_for_nothing(path: Path, said: str) -> None:
    own = Tokens(path)
    code = own.new_code(0)
    assert own.exchange(said, 0) is None
    assert own.exchange(code[:-1], 0) is None
    assert own.exchange(code, 0) == own.token


def test_the_number_of_open_codes_is_limited(path: Path) -> None:
    own = Tokens(path)
    codes = [own.new_code(0) for _ in range(MOST_CODES + 3)]
    assert len({*codes}) == len(codes)
    good = [own.exchange(code, 0) is not None for code in codes]
    assert good == [False] * 3 + [True] * MOST_CODES


def test_the_token_has_256_bits_and_its_file_is_private(path: Path) -> None:
    own = Tokens(path)
    assert own.token is None
    own.new_code(0)
    assert own.token is not None
    assert len(own.token) == 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["web.json"]


def test_token_and_port_are_stored_and_codes_are_not(path: Path) -> None:
    first = Tokens(path)
    code = first.new_code(0)
    first.remember(8080)
    second = Tokens(path)
    assert (second.token, second.port) == (first.token, 8080)
    assert second.exchange(code, 0) is None
    second.remember(None)
    assert Tokens(path).port is None


def test_a_new_token_invalidates_the_old_one_and_all_codes(path: Path) -> None:
    own = Tokens(path)
    code, old = own.new_code(0), own.token
    own.remember(8080)
    own.rotate()
    assert own.token not in (None, old)
    assert own.exchange(code, 0) is None
    assert Tokens(path).token == own.token
    assert Tokens(path).port == 8080


def test_a_file_that_others_could_have_read_or_written_is_not_used(path: Path, tmp_path: Path) -> None:
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
def test_a_broken_file_is_ignored_and_rewritten(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    own = Tokens(path)
    assert own.token is None
    own.new_code(0)
    assert json.loads(path.read_text())["token"] == own.token


@pytest.mark.parametrize("port", [0, -1, 65536, "80", 1.5, None, True])
def test_an_invalid_port_is_ignored(path: Path, port: object) -> None:
    path.write_text(json.dumps({"token": "t" * 43, "port": port}))
    path.chmod(0o600)
    assert Tokens(path).port is None
    assert Tokens(path).token == "t" * 43


def test_after_too_many_failures_only_that_client_is_delayed() -> None:
    failures = Failures()
    assert [failures.delay_s("ann", 0) for _ in range(PATIENT_UNTIL)] == [0.0] * PATIENT_UNTIL
    assert failures.delay_s("ann", 1) == DELAY_S
    assert failures.delay_s("ben", 1) == 0.0
    assert failures.delay_s("ann", 1 + FORGET_AFTER_S) == 0.0


def test_the_number_of_remembered_clients_is_limited() -> None:
    failures = Failures()
    for number in range(3 * MOST_SIDES):
        failures.delay_s(str(number), 0)
    assert len(failures._sides) == MOST_SIDES
