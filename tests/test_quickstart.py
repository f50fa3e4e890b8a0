"""`scripts/quickstart` in a tree of fake programs: it ends with a `dibs` that can be typed, and says how."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Stands for the interpreter of .venv: there is no GPU, and every verb prints its name.
PYTHON = """#!/bin/sh
case $1:$3 in
-c:*) echo 0 ;;
-m:add) echo 1 ;;
*) echo "dibs $3" ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a clone whose installation takes no time."""
    folder = tmp_path / "clone"
    for name, text in (
        ("scripts/venv", "#!/bin/sh\n"),
        (".venv/bin/python", PYTHON),
        (".venv/bin/dibs", "#!/bin/sh\n"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "quickstart", folder / "scripts")
    return folder


def run(tree: Path, *words: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Run it as a person with an own home would."""
    environ = {"HOME": str(tree.parent / "me"), "PATH": path}
    command = [tree / "scripts" / "quickstart", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_it_ends_with_the_line_that_activates_dibs(tree: Path) -> None:
    done = run(tree)
    assert done.returncode == 0, done.stderr
    end = done.stdout.partition("== Try next\n")[2]
    assert end.startswith(f"  . {tree}/.venv/bin/activate    # dibs in this shell")
    assert 'DIBS_DEVICES=fake:4 dibs add "echo hello' in end
    assert not (tree.parent / "me").exists()


def test_install_puts_a_link_on_the_search_path_and_says_so(tree: Path) -> None:
    link = tree.parent / "me" / ".local" / "bin" / "dibs"
    for _ in range(2):
        done = run(tree, "--install")
        assert done.returncode == 0, done.stderr
        assert f"linked: {link} -> {tree}/.venv/bin/dibs" in done.stdout
        assert "export PATH=" in done.stdout
    assert link.samefile(tree / ".venv" / "bin" / "dibs")
    assert "export PATH=" not in run(tree, "--install", path=f"{link.parent}:/usr/bin:/bin").stdout


def test_another_dibs_is_not_replaced(tree: Path) -> None:
    link = tree.parent / "me" / ".local" / "bin" / "dibs"
    link.parent.mkdir(parents=True)
    link.write_text("mine")
    done = run(tree, "--install")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{link} exists and is another dibs" in done.stderr
    assert link.read_text() == "mine"


def test_other_words_are_refused(tree: Path) -> None:
    done = run(tree, "--instal")
    assert (done.returncode, done.stderr) == (2, 'scripts/quickstart: expected nothing or --install, got "--instal".\n')
