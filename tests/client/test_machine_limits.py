"""What the doctor reports about the interpreter, processes and open files, each with its fix."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import people
from bench import PATIENCE_S, Bench, wait_for
from dibs.client import machine_limits


def test_a_working_interpreter_is_no_problem() -> None:
    assert machine_limits.interpreter(sys.executable) is None


def test_a_missing_or_broken_interpreter_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    assert machine_limits.interpreter(str(python)) == (
        f"{python} is missing: no daemon or job can be started",
        "Install dibs again.",
    )
    python.write_text("#!/bin/sh\nexit 3\n")
    assert machine_limits.interpreter(str(python)) == (
        f"{python} cannot be executed",
        f"chmod +x {python}, or see mount for noexec.",
    )
    python.chmod(0o755)
    found = machine_limits.interpreter(str(python))
    assert found is not None
    assert "does not run" in found[0]


def test_an_interpreter_of_another_version_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3.9.1\n")
    python.chmod(0o755)
    found = machine_limits.interpreter(str(python))
    assert found is not None
    assert f"{python} is Python 3.9.1 now" in found[0]


def test_a_daemon_whose_interpreter_was_removed_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "python"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "1000"]) as process:
        try:
            assert machine_limits.daemon_interpreter(process.pid) is None
            program.unlink()
            gone = machine_limits.daemon_interpreter(process.pid)
            assert gone is not None
            assert gone[0] == f"{program}, the daemon's interpreter for starting jobs, cannot be executed any more"
            shutil.copy("/bin/true", program)
            replaced = machine_limits.daemon_interpreter(process.pid)
            assert replaced is not None
            assert "was replaced while it ran" in replaced[0]
        finally:
            process.kill()


def test_a_low_limit_and_many_open_files_are_reported() -> None:
    program = "import sys; held = [open('/dev/null') for _ in range(560)]; print('ready', flush=True); sys.stdin.read()"
    for limit, told in ((100, "may open only 100 files"), (600, "files open"), (4096, None)):
        code = program if limit >= 600 else program.replace("560", "1")
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            found = machine_limits.file_limit(process.pid)
            process.communicate()
        assert (
            (found is None) if told is None else (found is not None and told in found[0] and "LimitNOFILE" in found[1])
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="being another user needs root")
def test_a_nearly_reached_process_limit_is_reported(tmp_path: Path) -> None:
    """As a user: root has no such limit."""
    tmp_path.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "HOME": "/", "DIBS_HOME": "/tmp/dibs-test-none", "DIBS_DEVICES": "fake:1"}
    done = subprocess.run(
        [people.shared_environment() / "bin" / "dibs", "doctor", "--json"],
        env=environ, user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True,
        timeout=PATIENCE_S, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (150, 150)),
    )  # fmt: skip
    told = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "limits"]
    assert [each["level"] for each in told] == ["warning"], told
    assert "more processes may be started (limit 150)" in told[0]["text"]
    assert "ulimit -u" in told[0]["fix"]


def test_the_doctor_checks_the_disks_of_state_and_leases_and_the_limits(bench: Bench) -> None:
    bench.start()
    wait_for(bench.pid)
    told = json.loads(bench.cli("doctor", "--json").stdout)["findings"]
    disks = [each["text"] for each in told if each["check"] == "disk"]
    assert [folder for folder in (bench.home, bench.leases) if not any(str(folder) in text for text in disks)] == []
    assert "limits" in {each["check"] for each in told}
