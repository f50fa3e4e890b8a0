"""Folders for logs: no part of the path may belong to another user, or be replaceable by one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import Bench
from dibs.system import trusted_paths

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user needs root")


def test_our_own_folders_are_trusted_even_if_they_do_not_exist(tmp_path: Path) -> None:
    assert trusted_paths.find_problem(str(tmp_path)) is None
    assert trusted_paths.find_problem(str(tmp_path / "not" / "there")) is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert trusted_paths.find_problem(str(tmp_path / "link" / "more")) is None


def test_a_sticky_folder_is_trusted_and_a_world_writable_one_is_not(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert trusted_paths.find_problem(str(shared / "mine")) is None
    shared.chmod(0o777)
    assert trusted_paths.find_problem(str(shared / "mine")) == f"every user can write to {shared} (0777)"


def test_circular_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert trusted_paths.find_problem(str(tmp_path / "loop")) == f"{tmp_path / 'loop'} has too many links"


@needs_root
def test_a_folder_or_a_link_of_another_user_is_named(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    why = f"the folder {theirs} belongs to another user (uid {STRANGER})"
    assert trusted_paths.find_problem(str(theirs / "mine")) == why
    # A link of ours leads there as well.
    (tmp_path / "ours").symlink_to("theirs")
    assert trusted_paths.find_problem(str(tmp_path / "ours" / "mine")) == why
    planted = tmp_path / "planted"
    planted.symlink_to(tmp_path)
    os.chown(planted, STRANGER, STRANGER, follow_symlinks=False)
    assert trusted_paths.find_problem(str(planted)) == f"the link {planted} belongs to another user (uid {STRANGER})"


@needs_root
def test_files_below_another_users_folder_are_refused(bench: Bench, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "logs").mkdir(parents=True)
    os.chown(theirs, STRANGER, STRANGER)
    done = bench.cli("status", environ={"DIBS_FILES": str(theirs / "logs")})
    assert done.returncode == 5
    assert f"the folder {theirs} belongs to another user (uid {STRANGER})" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    told = bench.cli("doctor", environ={"DIBS_FILES": str(theirs / "logs")})
    assert told.returncode == 1
    assert "belongs to another user" in " ".join(told.stdout.split())
