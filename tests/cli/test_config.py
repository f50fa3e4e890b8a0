"""`dibs config` changes settings in their file, and in a daemon that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench
from terminal import Terminal


@pytest.fixture
def config(bench: Bench) -> Path:
    """The configuration file of this bench's shell and daemon."""
    path = bench.folder / "config.toml"
    path.write_text("# mine\n")
    bench.environ["DIBS_CONFIG"] = str(path)
    return path


def test_a_setting_is_set_and_unset(bench: Bench, config: Path) -> None:
    done = bench.cli("config", "set", "grace", "2m")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"dibs: grace is 2m ({config}).\n")
    assert config.read_text() == '# mine\ngrace = "2m"\n'
    assert bench.cli("config", "grace").stdout == bench.cli("config", "get", "grace").stdout == "2m\n"
    assert bench.cli("config", "unset", "DIBS_GRACE").stderr == "dibs: grace is 30s (default).\n"
    assert config.read_text() == "# mine\n"
    assert not bench.home.exists(), "changing a file starts no daemon"


@pytest.mark.parametrize("value", ["-p gpu -A lab", "--qos=high", "-x", "plain"])
def test_a_value_may_begin_with_a_dash(bench: Bench, config: Path, value: str) -> None:
    done = bench.cli("config", "set", "engines.lab.options", value)
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, f"dibs: engines.lab.options is {value} ({config}).")
    assert bench.cli("config", "engines.lab.options").stdout == f"{value}\n"
    assert bench.cli("config", "set", "--", "engines.lab.options", "-y").returncode == 0
    assert bench.cli("config", "set", "engines.lab.options").returncode == 2
    assert bench.cli("config", "set", "engines.lab.options", "--help").stdout.startswith("Usage: dibs config")


def test_a_running_daemon_takes_the_new_value_at_once(bench: Bench, config: Path) -> None:
    bench.start()
    first = bench.add("sleep 1000", gpus=1)
    bench.until(first, "started")
    bench.cli("config", "set", "max_gpus", "1")
    second = bench.add("true", gpus=1)
    assert "max_gpus" in bench.cli("why", str(second)).stdout
    assert bench.cli("config", "unset", "max_gpus").returncode == 0
    bench.until(second)
    assert bench.job(first)["state"] == "running"


def test_a_setting_that_needs_a_restart_says_so(bench: Bench, config: Path) -> None:
    bench.start()
    done = bench.cli("config", "set", "web_port", "8099")
    assert done.stderr.endswith(
        "dibs: web_port: takes effect after `dibs daemon restart`; running jobs are not affected.\n"
    )


def test_a_variable_that_overrides_the_file_is_named(bench: Bench, config: Path) -> None:
    done = bench.cli("config", "set", "grace", "2m", environ={"DIBS_GRACE": "5s"})
    assert (
        done.stderr
        == f"dibs: grace is 5s (DIBS_GRACE).\ndibs: {config} was changed, but DIBS_GRACE overrides it here.\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["set", "grace"], 'config set expected a setting and a value, got "grace".'),
        (["set"], "config set expected a setting and a value, got nothing."),
        (["set", "grce", "1m"], 'there is no setting "grce". Did you mean grace?'),
        (["set", "grace", "soon"], "grace: expected a time such as 90m"),
        (["unset"], "config unset expected a setting, got nothing."),
        (["edit", "grace"], 'config edit expected nothing, got "grace".'),
        (
            ["edit"],
            "an editor needs a terminal. Change one setting: dibs config set NAME VALUE",
        ),
        (["grace", "2m"], 'config expected one setting, got "grace 2m". To change it: dibs config set grace 2m'),
        (["--machine"], "--machine goes with config set, unset or edit."),
        (["set", "--json", "grace", "1m"], "config set does not take --json."),
    ],
)
def test_a_mistake_changes_nothing(bench: Bench, config: Path, words: list[str], error: str) -> None:
    done = bench.cli("config", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert error in done.stderr
    assert config.read_text() == "# mine\n"


@pytest.mark.parametrize(
    ("script", "text", "shown"),
    [
        ("s/mine/ours/", "# ours\n", ""),
        ("", "# mine\n", "dibs: nothing was changed.\n"),
        ("$a grace = 3", "# mine\n", "line 2: grace: expected a time such as 90m"),
    ],
)
def test_the_file_is_checked_when_the_editor_is_left(
    bench: Bench, config: Path, script: str, text: str, shown: str
) -> None:
    program = bench.folder / "editor"
    program.write_text(f"#!/bin/sh\nsed -i '{script}' $1\n")
    program.chmod(0o755)
    with Terminal(bench, "config", "edit", columns=400, VISUAL=str(program), TMPDIR=str(bench.folder)) as person:
        code, screen = person.end()
    assert shown in screen.replace("\r", "")
    assert config.read_text() == text
    assert code == (2 if "line 2" in shown else 0)


def test_an_edit_does_not_undo_what_another_program_set_meanwhile(bench: Bench, config: Path) -> None:
    program = bench.folder / "editor"
    program.write_text(f"#!/bin/sh\nsed -i s/mine/ours/ $1\necho 'max_gpus = 2' >>{config}\n")
    program.chmod(0o755)
    with Terminal(bench, "config", "edit", columns=400, VISUAL=str(program), TMPDIR=str(bench.folder)) as person:
        code, screen = person.end()
    assert f"{config} was changed by another program during the edit. Nothing was changed; your text is" in screen
    assert (code, config.read_text()) == (2, "# mine\nmax_gpus = 2\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="LEFT OUT: the settings of the machine need root")
def test_settings_of_the_machine_are_for_root_to_write_and_all_to_read(bench: Bench, config: Path) -> None:
    """The mount namespace has a separate /etc, so that this machine's settings stay as they are."""
    script = """
        mount -t tmpfs tmpfs /etc
        "$@" config set --machine grace 1m
        "$@" config grace
        stat -c %a /etc/dibs/config.toml
        chmod 555 /etc/dibs
        setpriv --bounding-set=-dac_override "$@" config set --machine grace 2m
        echo $?
        mount -o remount,ro /etc
        "$@" config set --machine grace 2m
        """
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-m", "dibs"]
    done = subprocess.run(command, env=bench.environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "1m\n644\n4\n"
    assert "dibs: grace is 1m (/etc/dibs/config.toml).\n" in done.stderr
    assert "you have no permission to write it. Machine-wide settings need root: use sudo." in done.stderr
    assert "/etc/dibs/config.toml cannot be written: Read-only file system. Nothing was changed." in done.stderr
