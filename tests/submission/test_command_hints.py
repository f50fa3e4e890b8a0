"""Warnings about commands that probably do not do what was meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs.submission import command_hints

ENVIRON = {"BASH_FUNC_load%%": "() { true; }"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    (tmp_path / "run.sh").touch()
    (tmp_path / "bin").mkdir()
    for name in ("python", "sleep"):
        program = tmp_path / "bin" / name
        program.touch()
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train.py", "command not found: train.py; it is a Python file. Name its interpreter: python train.py"),
        ("train.py --lr=0.1", "Name its interpreter: python train.py"),
        ("A=1 ./train.py | tee x", "command not found: ./train.py; it is a Python file."),
        ("nothere.py > x", "command not found: nothere.py\n"),
        ("run.sh 1", "command not found: run.sh\n"),
        ("pyhton train.py", "command not found: pyhton\n"),
        ("sleep 1", ""),
        ("time sleep 1", ""),
        ("cd src", ""),
        ("load cuda", ""),
        ("f() { true; }; f", ""),
        ("cd src && ./later.sh", ""),
        ("if true; then nothere.py; fi", ""),
        ("$PYTHON train.py", ""),
        ("A=1", ""),
        ("", ""),
    ],
)
def test_a_program_that_cannot_be_started_is_named(folder: Path, line: str, says: str) -> None:
    found = command_hints.unknown_program(line, ENVIRON, str(folder), str(folder / "bin"))
    assert bool(found) == bool(says)
    assert says in f"{found}\n"


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python nothere.py --lr=0.1", "nothere.py"),
        ("A=1 python nothere.py > log.py", "nothere.py"),
        ("python train.py --lr=0.1 --out=new.py", None),
        ("python train.py > new.py", None),
        ("cat list | python nothere.py", None),
        ("python *.py", None),
    ],
)
def test_a_missing_script_is_named_up_to_what_the_shell_interprets(folder: Path, line: str, script: str | None) -> None:
    found = command_hints.missing_script([line], os.fspath(folder))
    assert found.startswith(f"{script} does not exist") if script else found == ""
