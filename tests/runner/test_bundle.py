"""The one file with all modules of a guardian: made by the first start, used by the others, and never needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dibs.engines import node_code
from dibs.runner import records


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return node_code.install(tmp_path / "shared")


def run(code: Path, folder: Path, argv: tuple[bytes, ...] = (b"/bin/sh", b"-c", b"exit 7")) -> tuple[int, str]:
    """Carry out a start; return the exit code of its command, and what was printed beside its log."""
    folder.mkdir()
    spec = records.Spec(1, 1, 1, str(folder), argv, (), b"/", bytes(folder / "log"), engine="lab")
    path = folder / "spec.1"
    path.write_bytes(records.pack(spec))
    done = subprocess.run(node_code.argv(sys.executable, code, str(path)), capture_output=True, text=True, check=False)
    final = records.read_final(str(folder), 1)
    assert final is not None, done.stderr
    return final.code, done.stderr


def bundle_in(code: Path) -> Path:
    (found,) = code.glob("*.bundle")
    return found


def spoil(code: Path) -> None:
    """Make the modules unusable, so that only a bundle can run."""
    for path in (code / "dibs").rglob("*.py"):
        if path.name != "bundle.py":
            path.write_text("raise SystemExit(99)\n")


def test_the_first_start_makes_the_bundle_and_the_next_needs_nothing_else(code: Path, tmp_path: Path) -> None:
    assert run(code, tmp_path / "1") == (7, "")
    assert bundle_in(code).stat().st_size > 0
    spoil(code)
    assert run(code, tmp_path / "2") == (7, "")


@pytest.mark.parametrize("left", [b"", b"\x00", b"not a bundle", b"N", b"{"])
def test_a_bundle_that_a_power_cut_left_incomplete_is_made_again(code: Path, tmp_path: Path, left: bytes) -> None:
    run(code, tmp_path / "1")
    whole = bundle_in(code).read_bytes()
    for number, content in enumerate((left, whole[: len(whole) // 2])):
        bundle_in(code).write_bytes(content)
        assert run(code, tmp_path / f"again {number}") == (7, "")
        assert bundle_in(code).read_bytes() == whole


def test_without_a_place_for_the_bundle_the_job_runs_all_the_same(code: Path, tmp_path: Path) -> None:
    run(code, tmp_path / "1")
    path = bundle_in(code)
    path.unlink()
    path.mkdir()
    exit_code, printed = run(code, tmp_path / "2")
    assert exit_code == 7
    assert f"cannot write {path}" in printed
    assert {left.name for left in code.iterdir()} == {"dibs", path.name}


def test_modules_that_few_starts_need_are_found_beside_the_bundle(code: Path, tmp_path: Path) -> None:
    run(code, tmp_path / "1")
    program = (
        "import sys; sys.path.append(sys.argv[2]); import bundle; sys.path[-1] = sys.argv[3]\n"
        "sys.meta_path.insert(0, bundle._read(sys.argv[1]))\n"
        "from dibs.runner import guardian\n"
        "from dibs.leases import device_lease\n"
        "print(type(guardian.__loader__).__name__, type(device_lease.__loader__).__name__, guardian.__file__)\n"
    )
    words = [sys.executable, "-I", "-S", "-c", program, bundle_in(code), code / "dibs" / "runner", code]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert told == ["Bundle", "SourceFileLoader", str(code / "dibs/runner/guardian.py")]
