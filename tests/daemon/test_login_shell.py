"""The environment of a login shell: read in a child, in time, never empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import wait_for
from dibs.daemon import login_shell
from dibs.system import processes


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return the file that a login shell of this home reads, whichever shell it is."""
    for name in (".zprofile", ".bash_profile"):
        (tmp_path / name).symlink_to(".profile")
    return tmp_path / ".profile"


def test_what_the_profile_exports_is_there_and_what_it_prints_is_not(profile: Path) -> None:
    profile.write_text("echo welcome\nexport PATH=/opt/tool/bin:$PATH GREETING='two\nlines'\n")
    variables, source = login_shell.read({"HOME": str(profile.parent)})
    assert source == "login shell"
    assert variables[b"PATH"].startswith(b"/opt/tool/bin:")
    assert variables[b"GREETING"] == b"two\nlines"
    assert variables[b"HOME"] == os.fsencode(profile.parent)
    assert variables[b"USER"]
    assert not {b"_", b"SHLVL", b"PWD", b"welcome"} & variables.keys()


def test_variables_of_the_daemon_are_not_in_it(profile: Path) -> None:
    profile.write_text("")
    variables, _ = login_shell.read({"HOME": str(profile.parent), "DIBS_HOME": "/x", "ODD": "1"})
    assert not {b"DIBS_HOME", b"ODD"} & variables.keys()


@pytest.mark.parametrize("text", ["exit 3", "sleep 1000", "exec sleep 1000"])
def test_a_profile_that_fails_or_hangs_leaves_a_small_environment(profile: Path, text: str) -> None:
    profile.write_text(f"export LOST=1\n{text}\n")
    variables, source = login_shell.read({"HOME": str(profile.parent)}, patience_s=0.3)
    assert source == "user database"
    assert {b"HOME", b"USER", b"PATH", b"LANG"} <= variables.keys()
    assert b"LOST" not in variables


def test_nothing_that_the_profile_started_is_left(profile: Path) -> None:
    """An agent that keeps its output open delays nothing."""
    profile.write_text("export MARK=$HOME\nsleep 1000 &\n")
    variables, source = login_shell.read({"HOME": str(profile.parent)})
    assert (source, variables[b"MARK"]) == ("login shell", os.fsencode(profile.parent))
    wait_for(lambda: not [*processes.marked([b"MARK=" + os.fsencode(profile.parent)])])
