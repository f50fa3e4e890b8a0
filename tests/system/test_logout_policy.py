"""Whether jobs survive a logout, and whether a disk is nearly full: decided from files and values of the system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs.system import disk, logout_policy

SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
MANAGER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn.scope\n"
OLD = "12:pids:/user.slice/user-1000.slice/session-3.scope\n1:name=systemd:/user.slice/session-3.scope\n"


@pytest.mark.parametrize(
    ("groups", "lingers", "kills", "word"),
    [
        (SESSION, False, False, None),
        (SESSION, True, True, "KillUserProcesses"),
        (OLD, False, True, "KillUserProcesses"),
        (MANAGER, False, False, "user manager"),
        (MANAGER, True, True, None),
        ("0::/\n", False, True, None),
        ("0::/system.slice/dibs.service\n", False, True, None),
        ("", False, True, None),
    ],
)
def test_whether_a_logout_ends_jobs(groups: str, lingers: bool, kills: bool, word: str | None) -> None:
    told = logout_policy.judge(groups, lingers, kills)
    assert (told is None) if word is None else word in str(told)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], False),
        (["[Login]\n#KillUserProcesses=yes\n"], False),
        (["[Login]\nKillUserProcesses=yes\n"], True),
        (["KillUserProcesses=yes", "KillUserProcesses=no"], False),
        (["KillUserProcesses=yes\nKillOnlyUsers=bob"], False),
        (["KillUserProcesses=yes\nKillOnlyUsers=bob alice"], True),
        (["KillUserProcesses = on\nKillExcludeUsers=root alice"], False),
    ],
)
def test_the_logind_configuration_is_parsed_as_logind_does(texts: list[str], expected: bool) -> None:
    assert logout_policy.kills_processes(texts, "alice") is expected


def test_drop_in_files_of_the_configuration_count_too(tmp_path: Path) -> None:
    config = tmp_path / "logind.conf"
    config.write_text("KillUserProcesses=no\n")
    (tmp_path / "logind.conf.d").mkdir()
    (tmp_path / "logind.conf.d" / "50-kill.conf").write_text("KillUserProcesses=yes\nKillExcludeUsers=\n")
    assert logout_policy.kills_processes(logout_policy._texts(config), "root")
    # Whatever group this test runs in, a process that has exited has none.
    assert logout_policy.logout_kills(999_999_999, config, tmp_path) is None


def test_a_disk_is_nearly_full_when_bytes_or_files_run_out() -> None:
    folder = Path("/somewhere")
    plenty = disk.Room(10**12, 10**13, 10**6)
    assert disk.warning(folder, plenty) is None
    assert disk.warning(folder, disk.Room(10**12, 10**13, None)) is None
    told = disk.warning(folder, disk.Room(100 * 2**20, 10**13, 10**6))
    assert told == "the disk of /somewhere is nearly full (100M free); no job can start when it is full"
    assert "room for 7 files" in str(disk.warning(folder, disk.Room(10**12, 10**13, 7)))


def test_free_space_is_read_from_the_system(tmp_path: Path) -> None:
    left = disk.room(tmp_path)
    assert 0 <= left.free <= left.total == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
