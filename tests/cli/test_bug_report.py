"""`dibs doctor --report`: a text to paste, which gives nothing private away."""

from __future__ import annotations

from bench import Bench
from dibs.cli.verbs import doctor
from dibs.client.checks.findings import OK, Finding
from dibs.version import __version__


def test_the_report_has_versions_and_findings() -> None:
    text = doctor.report({"HOME": "/home/somebody"}, [Finding("state", OK, "/home/somebody/state (ext4)", "")])
    assert text.startswith(f"dibs {__version__}, Python ")
    assert f"| state | {OK} | ~/state (ext4) |" in text


def test_home_user_host_and_machine_are_replaced() -> None:
    text = f"ada on gpu1.lab in /h/ada/x, {'0a' * 16}; adamant, gpu10"
    shown = doctor.hidden(text, "/h/ada", {"ada": "USER", "gpu1.lab": "HOST", "gpu1": "HOST"})
    assert shown == "USER on HOST in ~/x, MACHINE; adamant, gpu10"


def test_a_command_in_a_setting_is_not_printed(bench: Bench) -> None:
    shown = bench.cli("doctor", "--report", environ={"DIBS_NOTIFY": "curl token=abc"})
    assert "- notify = (set)" in shown.stdout
    assert "token=abc" not in shown.stdout
