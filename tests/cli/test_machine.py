"""`dibs machine`: prepared by root for all users, completed when GPUs are added, undone; users see what to type."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench
from dibs.leases import prepared_folder

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can prepare a folder")


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dibs-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_an_action_is_required(bench: Bench) -> None:
    for words in ((), ("begin",), ("init", "now"), ("init", "--json")):
        assert bench.cli("machine", *words).returncode == 2


@needs_root
def test_a_machine_is_prepared_completed_and_undone(bench: Bench, root: Path) -> None:
    where = ("--root", str(root))
    before = bench.cli("machine", "status", *where)
    assert (before.returncode, before.stdout.split(";")[0]) == (1, "not prepared")
    made = bench.cli("machine", "init", *where)
    assert (made.returncode, "4 GPUs, 4 of them new" in made.stdout) == (0, True)
    assert bench.cli("machine", "status", *where).returncode == 0
    again = bench.cli("machine", "init", *where)
    assert "4 GPUs, 0 of them new" in again.stdout
    bench.environ["DIBS_DEVICES"] = "fake:5"
    more = bench.cli("machine", "status", "--json", *where)
    seen = json.loads(more.stdout)
    assert (more.returncode, seen["prepared"], seen["at_boot"], seen["missing"]) == (1, True, True, ["FAKE-4"])
    assert "5 GPUs, 1 of them new" in bench.cli("machine", "init", *where).stdout
    (root / prepared_folder.TMPFILES[1:]).unlink()
    assert "gone after a reboot" in bench.cli("machine", "status", *where).stdout
    assert bench.cli("machine", "undo", *where).stdout.startswith("removed")
    assert bench.cli("machine", "undo", *where).stdout == "not prepared\n"


@needs_root
def test_a_queue_runs_in_a_prepared_folder(bench: Bench, root: Path) -> None:
    bench.cli("machine", "init", "--root", str(root))
    bench.environ["DIBS_LEASE_DIR"] = f"{root}/run/dibs"
    job = bench.add(["true"])
    assert bench.until(job)["state"] == "done"
    assert bench.cli("lease", "--", "true").returncode == 0
    leases = [one for one in json.loads(bench.cli("doctor", "--json").stdout)["findings"] if one["check"] == "leases"]
    assert [one["level"] for one in leases] == ["warning"]


@needs_root
def test_a_folder_without_the_sticky_bit_is_refused_with_the_fix(bench: Bench) -> None:
    bench.leases.chmod(0o777)
    told = bench.cli("lease", "--", "true")
    assert (told.returncode, f"chmod +t {bench.leases}" in told.stderr) == (125, True)
    found = json.loads(bench.cli("doctor", "--json").stdout)["findings"]
    assert [one["fix"] for one in found if one["check"] == "leases"] == [f"As root: chmod +t {bench.leases}"]
