"""Settings are changed in their file: comments stay, and nothing invalid is ever written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs import errors
from dibs.system import settings
from dibs.system.configuration import file as settings_file

SETTINGS = {setting.name: setting for setting in settings.SETTINGS}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dibs" / "config.toml"


def set_value(file: Path, name: str, text: str) -> None:
    settings_file.set_value(file, SETTINGS[name], text, {})


def load(file: Path) -> settings.Settings:
    return settings.load({"DIBS_CONFIG": str(file)}, site=Path("/proc/nonexistent"))


def test_the_first_setting_creates_a_private_file(file: Path) -> None:
    set_value(file, "grace", "2m")
    assert file.read_text() == 'grace = "2m"\n'
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("grace", "90s", 90.0),
        ("max_gpus", "3", 3),
        ("keep_free", "0", 0),
        ("env_exclude", "AWS_*, *_TOKEN", ("AWS_*", "*_TOKEN")),
        ("foreign_memory", "2G", 2 * 2**30),
        ("devices", "0,1", "0,1"),
        ("notify", "", ""),
        ("visible", "index", "index"),
        ("files", "/data/dibs", Path("/data/dibs")),
        ("web_port", "8080", 8080),
    ],
)
def test_a_value_is_written_as_the_file_spells_it(file: Path, name: str, text: str, value: object) -> None:
    set_value(file, name, text)
    assert getattr(load(file), name) == value


def test_comments_order_and_other_values_stay(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("# ours\ngrace = '30s'  # long enough\n\nmax_gpus = 2\n")
    set_value(file, "grace", "1m")
    set_value(file, "keep_free", "1")
    assert file.read_text() == '# ours\ngrace = "1m"  # long enough\n\nmax_gpus = 2\nkeep_free = 1\n'


def test_a_setting_that_is_unset_has_its_default_again(file: Path) -> None:
    set_value(file, "grace", "1m")
    assert settings_file.unset(file, SETTINGS["grace"], {})
    assert load(file).grace == 30.0
    assert not settings_file.unset(file, SETTINGS["grace"], {})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("grace", "soon", "grace: expected a time such as 90m"),
        ("max_gpus", "none", 'max_gpus: expected a whole number from 1 up, got "none".'),
        ("visible", "both", 'visible: expected "uuid" or "index", got "both".'),
        ("notify", "\udcff", "notify: expected UTF-8 text, got other bytes."),
        ("lease_dir", "/tmp/x", "lease_dir cannot be set in a file. Set DIBS_LEASE_DIR instead."),
    ],
)
def test_an_invalid_value_is_refused_and_changes_nothing(file: Path, name: str, text: str, message: str) -> None:
    set_value(file, "keep_free", "1")
    before = file.read_bytes()
    with pytest.raises(errors.UserError) as caught:
        set_value(file, name, text)
    assert message in caught.value.line()
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]


def test_a_file_that_is_already_wrong_is_not_touched(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("grace = 30\n")
    with pytest.raises(errors.UserError, match="line 1: grace: expected a time"):
        set_value(file, "max_gpus", "2")
    assert file.read_text() == "grace = 30\n"


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("max_gpus = 2\n")
    real.chmod(0o644)
    file.parent.mkdir()
    file.symlink_to(real)
    set_value(file, "max_gpus", "3")
    assert file.is_symlink()
    assert real.read_text() == "max_gpus = 3\n"
    assert real.stat().st_mode & 0o777 == 0o644


def test_a_change_waits_until_another_program_has_made_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    ours = settings_file.turn(file)
    ours.__enter__()
    waited = []

    def other_ends(_: float) -> None:
        waited.append(True)
        settings_file.replace(file, "max_gpus = 2\n", {})
        ours.__exit__(None, None, None)

    monkeypatch.setattr(settings_file.time, "sleep", other_ends)
    set_value(file, "keep_free", "1")
    assert (waited, file.read_text()) == ([True], "max_gpus = 2\nkeep_free = 1\n")


def test_a_folder_that_somebody_keeps_locked_blocks_nobody(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    monkeypatch.setattr(settings_file, "PATIENCE_S", 0.0)
    with settings_file.turn(file):
        set_value(file, "keep_free", "1")
    assert file.read_text() == "keep_free = 1\n"
