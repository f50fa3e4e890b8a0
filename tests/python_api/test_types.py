"""What a type checker says about programs that use dibs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dibs

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "typed_user.py"

WRONG = """\
import dibs
dibs.submit("true", gpu=1)
dibs.submit("true", time=3)
state: int = dibs.submit("true").wait()
dibs.Executor(gpus=1).submit(len, 3).result()
dibs.Sweep("true", {}, search=3)
dibs.nothing
"""


def mypy(path: Path, cache: Path) -> str:
    """Check a file as strictly as mypy can, as a user would with dibs installed."""
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", f"--cache-dir={cache}"]
    done = subprocess.run([*words, str(path)], capture_output=True, text=True, cwd=cache, check=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_the_program_uses_every_public_name() -> None:
    used = set(re.findall(r"dibs\.(\w+)", PROGRAM.read_text())) | {"errors"}
    assert set(dibs.__all__) <= used


def test_a_program_that_uses_every_name_is_clean(cache: Path) -> None:
    assert mypy(PROGRAM, cache) == ""


def test_each_mistake_is_found_in_its_line(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    lines = {int(found) for found in re.findall(r"wrong\.py:(\d+): error", mypy(file, cache))}
    assert lines == {2, 3, 4, 5, 6, 7}
