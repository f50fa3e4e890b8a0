"""docs/python.md: its code runs and its values are correct; its recipes continue where they were stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import blocks
from bench import Bench

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
BLOCKS = [block for block in blocks.of(PAGE) if block.language == "python"]
FILES = {block.file: block.text for block in BLOCKS if block.file}
#: `job.state    # -> 'done'`
VALUE = re.compile(r"^( *)(\S.*?) +# -> (.+)$", re.MULTILINE)


def checked(expression: str, value: object, expected: str) -> None:
    """Compare a value with what the page says."""
    assert repr(value) == expected, expression


def _check(found: re.Match[str]) -> str:
    indent, expression, expected = found.groups()
    return f"{indent}checked({expression!r}, {expression}, {expected!r})"


def test_the_code_of_the_page_runs_and_its_values_are_correct(
    user_queue: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (user_queue.folder / name).write_text(text)
    seen: dict[str, Any] = {"checked": checked}
    values = 0
    for block in BLOCKS:
        if not block.file:
            code, count = VALUE.subn(_check, block.text)
            exec(compile("\n" * block.line + code, str(PAGE), "exec"), seen)
            values += count
    assert values >= 15


class Training:
    """A recipe with a stand-in for its library: it does a step when the test allows one."""

    def __init__(self, recipe: str, folder: Path) -> None:
        (folder / recipe).write_text(FILES[recipe])
        job = {
            "DIBS_CHECKPOINT_DIR": str(folder / "checkpoint"), "DIBS_REPORT": str(folder / "report.jsonl"),
            "DIBS_STOP": "TERM@30",
        }  # fmt: skip
        path = f"{ROOT / 'tests' / 'support' / 'fakes' / 'ml'}:{ROOT / 'src'}"
        self.process = subprocess.Popen(
            [sys.executable, recipe], env={**os.environ, **job, "PYTHONPATH": path}, cwd=folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def reads(self) -> str:
        """Return its next line."""
        return self.stdout.readline().strip()

    def does_a_step(self) -> None:
        """Let it continue from where a step is due."""
        assert self.reads() == "step"
        self.stdin.write("go\n")
        self.stdin.flush()

    def is_stopped_in_a_step(self) -> None:
        """Send it TERM during a step."""
        assert self.reads() == "step"
        self.process.send_signal(signal.SIGTERM)
        self.stdin.write("go\n")
        self.stdin.flush()

    def end(self) -> int:
        """Return its exit code, and check that it does nothing more."""
        assert self.reads() == ""
        self.process.communicate()
        return self.process.returncode


@pytest.mark.parametrize("recipe", ["recipe_torch.py", "recipe_trainer.py", "recipe_lightning.py"])
def test_a_stopped_recipe_continues_in_its_next_attempt(recipe: str, tmp_path: Path) -> None:
    first = Training(recipe, tmp_path)
    assert first.reads() == "from step 0"
    first.does_a_step()
    first.does_a_step()
    first.is_stopped_in_a_step()
    assert first.end() == 1
    second = Training(recipe, tmp_path)
    assert second.reads() == "from step 3"
    for _ in range(3):
        second.does_a_step()
    assert second.end() == 0
    told = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [each["step"] for each in told] == [1, 2, 3, 4, 5, 6]
    assert all("loss" in each for each in told)
