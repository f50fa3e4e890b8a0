"""`dibs daemon install`: what is written for systemd and for cron, and what is never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import Bench
from dibs.cli import boot_service
from dibs.cli.boot_service import Cron, Systemd
from dibs.errors import MachineError, UserError

FAKES = Path(__file__).parents[1] / "support" / "fakes" / "bin"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which only the fake programs are found, also by this process."""
    own = {
        "PATH": f"{FAKES}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(tmp_path),
        "USER": "ann",
        "DIBS_HOME": str(tmp_path / "state %1"),
        "LD_PRELOAD": "not kept",
    }
    for name, value in {
        "PATH": own["PATH"],
        "FAKE_CALLS": str(tmp_path / "calls"),
        "FAKE_CRONTAB": str(tmp_path / "crontab"),
    }.items():
        monkeypatch.setenv(name, value)
    return own


def calls(tmp_path: Path) -> list[str]:
    """Return how the programs were called."""
    return (tmp_path / "calls").read_text().splitlines()


def test_a_unit_starts_the_daemon_and_lets_jobs_outlive_it(environ: dict[str, str], tmp_path: Path) -> None:
    unit = Systemd(environ, is_root=False)
    told = unit.install()
    path = tmp_path / ".config" / "systemd" / "user" / "dibs.service"
    text = path.read_text()
    assert "\nKillMode=process\n" in text
    assert f'\nEnvironment="DIBS_HOME={tmp_path}/state %%1"\n' in text
    assert "-P -m dibs.daemon\n" in text
    assert "WantedBy=default.target" in text
    assert "LD_PRELOAD" not in text
    assert calls(tmp_path)[:2] == ["systemctl --user daemon-reload", "systemctl --user enable --now dibs.service"]
    assert told == [f"wrote {path}; the daemon starts with your first login", boot_service.LINGER]


def test_with_lingering_enabled_there_is_no_hint_about_it(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LINGER", "yes")
    assert len(Systemd(environ, is_root=False).install()) == 1


def test_root_gets_a_system_unit(environ: dict[str, str]) -> None:
    unit = Systemd(environ, is_root=True)
    assert str(unit.path) == "/etc/systemd/system/dibs.service"
    assert "WantedBy=multi-user.target" in unit.text()


def test_installing_twice_rewrites_the_unit(environ: dict[str, str]) -> None:
    Systemd(environ, is_root=False).install()
    again = Systemd(environ | {"DIBS_DEVICES": "0,1"}, is_root=False)
    again.install()
    assert 'Environment="DIBS_DEVICES=0,1"' in again.path.read_text()


def test_a_file_not_written_by_dibs_is_kept(environ: dict[str, str], tmp_path: Path) -> None:
    unit = Systemd(environ, is_root=False)
    unit.path.parent.mkdir(parents=True)
    unit.path.write_text("[Unit]\n")
    for verb in (unit.install, unit.uninstall):
        with pytest.raises(UserError, match="was not written by dibs and was not changed"):
            verb()
    assert unit.path.read_text() == "[Unit]\n"
    assert not (tmp_path / "calls").exists()


def test_uninstalling_removes_the_unit(environ: dict[str, str], tmp_path: Path) -> None:
    unit = Systemd(environ, is_root=False)
    assert unit.uninstall() == ["not installed"]
    unit.install()
    assert "removed" in unit.uninstall()[0]
    assert not unit.path.exists()
    assert calls(tmp_path)[-2:] == ["systemctl --user disable --now dibs.service", "systemctl --user daemon-reload"]


def test_without_systemd_a_line_is_added_to_the_crontab(environ: dict[str, str], tmp_path: Path) -> None:
    table = tmp_path / "crontab"
    table.write_text("0 4 * * * backup\n")
    cron = Cron(environ)
    cron.install()
    cron.install()
    first, second = table.read_text().splitlines()
    assert first == "0 4 * * * backup"
    assert second.startswith("@reboot ")
    assert "-m dibs daemon start" in second
    assert r"state \%1" in second
    assert "removed" in cron.uninstall()[0]
    assert table.read_text() == "0 4 * * * backup\n"
    assert cron.uninstall() == ["not installed"]


def test_an_unreadable_crontab_is_not_overwritten(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CRONTAB", "broken")
    for verb in (Cron(environ).install, Cron(environ).uninstall):
        with pytest.raises(MachineError, match="cannot read the spool"):
            verb()


def test_systemd_is_preferred_and_cron_is_the_fallback(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(boot_service.find(environ), Systemd)
    monkeypatch.setenv("FAKE_SYSTEMD", "none")
    assert isinstance(boot_service.find(environ), Cron)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match="neither systemd nor cron is available"):
        boot_service.find(environ)


def test_without_systemd_and_cron_there_is_nothing_to_uninstall(bench: Bench) -> None:
    done = bench.cli("daemon", "uninstall", environ={"PATH": "/nowhere"})
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "dibs: nothing was installed: neither systemd nor cron is available.\n"


def test_print_shows_the_unit_and_changes_nothing(bench: Bench) -> None:
    path = f"{FAKES}{os.pathsep}{bench.environ['PATH']}"
    more = {"PATH": path, "FAKE_CALLS": str(bench.folder / "calls"), "FAKE_CRONTAB": str(bench.folder / "crontab")}
    shown = bench.cli("daemon", "install", "--print", environ=more)
    assert shown.returncode == 0
    assert "KillMode=process" in shown.stdout
    line = bench.cli("daemon", "install", "--print", environ=more | {"FAKE_SYSTEMD": "none"})
    assert line.stdout.startswith("@reboot ")
    installed = bench.cli("daemon", "install", environ=more | {"FAKE_SYSTEMD": "none"})
    assert installed.stdout == "added a line to your crontab; the daemon starts with the machine\n"
    assert (bench.folder / "crontab").read_text() == line.stdout
    assert bench.cli("daemon", "uninstall", environ=more | {"FAKE_SYSTEMD": "none"}).returncode == 0
    assert (bench.folder / "crontab").read_text() == ""
