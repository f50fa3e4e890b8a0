"""The pages on threats and on trouble: every threat has a row, and every test that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dibs.cli.main import VERBS
from dibs.system import settings

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]


def test_every_threat_has_a_row_with_an_answer_and_a_test_or_a_reason() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 42))
    for row in ROWS:
        assert len(row) == 4, row
        assert "::test_" in row[3] or row[3].startswith("no test: "), row


@pytest.mark.parametrize("page", ["security.md", "reliability.md"])
def test_every_named_test_exists(page: str) -> None:
    named = re.findall(r"`(?:tests/)?([\w/]+\.py)::(test_\w+)`", (TESTS.parent / "docs" / page).read_text())
    assert len(named) > 50
    missing = [(file, name) for file, name in named if f"def {name}(" not in (TESTS / file).read_text()]
    assert missing == []


def test_nothing_disables_authentication() -> None:
    """No setting and no option allows requests by everybody."""
    tables = (TESTS.parent / "src" / "dibs").rglob("*.py")
    options = {word for path in tables for word in re.findall(r'"(--[\w-]+)"', path.read_text())}
    names = {setting.name for setting in settings.SETTINGS} | options
    assert {"--rotate", "web_bind"} <= names
    assert "web" in VERBS
    assert [name for name in names if re.search("auth|insecure|anonym|password|no.?token|unsafe|public", name)] == []
