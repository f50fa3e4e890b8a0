"""Releases: two builds give the same bytes wherever they are made, and an incomplete release is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import release

ROOT = Path(__file__).parent.parent
#: A second of 2026, as `git log` would give it for a commit.
EPOCH = 1_794_744_000


def copy(target: Path) -> Path:
    """Copy the sources of the distributions."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "compat", "plugins"):
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, target / name)
    return target


def test_builds_in_two_folders_at_two_times_are_identical(tmp_path: Path) -> None:
    first = copy(tmp_path / "first")
    second = copy(tmp_path / "a second folder")
    for path in second.rglob("*.py"):
        os.utime(path, (EPOCH, EPOCH))
    built = [release.build(source, source / "dist", EPOCH) for source in (first, second)]
    release.check_same_bytes(*built)
    release.check_metadata(built[0], release.read_version(first))


def test_differing_files_are_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one" / "a.whl", tmp_path / "other" / "a.whl"
    for path in (one, other):
        path.parent.mkdir()
        path.write_text(str(path))
    with pytest.raises(release.Failed, match=r"differ: a\.whl"):
        release.check_same_bytes([one], [other])


def test_a_version_without_a_changelog_section_is_refused() -> None:
    release.check_changelog("# Changelog\n\n## [1.2.3] - 2026-01-02\n", "1.2.3")
    release.check_changelog("## [1.2.3]\n", "1.2.3")
    with pytest.raises(release.Failed, match="CHANGELOG"):
        release.check_changelog("## [Unreleased]\n\n## [1.2.30]\n", "1.2.3")


def test_the_repository_has_one_version() -> None:
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(), release.read_version(ROOT))
