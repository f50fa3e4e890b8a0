"""The lock files: everything that scripts/venv installs has a version and hashes, and other bytes are refused."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = ("dev", "docs", "ray", "run", "uv")


def locked(name: str) -> dict[str, list[str]]:
    """Return the hashes of each package in a lock file."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            pinned = re.match(r"([a-z0-9-]+)==[^ ]+ ", line)
            assert pinned, f"not a package with its version: {line[:80]}"
            found[pinned[1]] = re.findall(r"--hash=sha256:[0-9a-f]{64}", line)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_hashes_and_no_file_names_a_host(name: str) -> None:
    assert all(hashes for hashes in locked(name).values())
    assert "://" not in (ROOT / "requirements" / f"{name}.lock").read_text()


def test_the_lock_files_have_all_declared_packages() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run = [*declared["dependencies"], *declared["optional-dependencies"]["python"]]
    wanted = {re.split("[<>=]", each)[0] for each in run}
    tools = {re.split("[<>=]", each)[0] for each in declared["optional-dependencies"]["dev"]}
    assert {*wanted, "hatchling", "editables"} <= locked("run").keys()
    assert wanted | tools <= locked("dev").keys()
    assert locked("run").items() <= locked("dev").items()


def test_nothing_else_is_installed_by_the_scripts() -> None:
    """Each call of pip installs a lock file, or our own sources without dependencies."""
    for name in ("venv", "test", "quickstart", "lock", "docs"):
        text = (ROOT / "scripts" / name).read_text().replace("\\\n", " ")
        for line in re.findall(r"^ *(?:pip_install|\$set_up|.*pip install) (.*)$", text, re.MULTILINE):
            is_definition = line.rstrip(' ;}"').endswith(("--disable-pip-version-check", '"$@'))
            assert is_definition or "--require-hashes -r" in line or line.startswith("--no-deps --no-build-isolation")


def test_a_package_with_other_bytes_is_refused(tmp_path: Path) -> None:
    """scripts/venv itself, with an index in a folder."""
    tree, index = tmp_path / "tree", tmp_path / "index"
    for name in ("scripts/venv", "pyproject.toml", "compat/pyproject.toml", "src/dibs/version.py", "src/bin/dibs"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    index.mkdir()
    wheel = index / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        file.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.dist-info/RECORD", "")
    (tree / "requirements").mkdir()
    lock = tree / "requirements" / "run.lock"
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}

    def install(of: bytes) -> str:
        lock.write_text(f"tiny==1 --hash=sha256:{hashlib.sha256(of).hexdigest()}\n")
        done = subprocess.run(["scripts/venv"], cwd=tree, env=own, capture_output=True, text=True, check=False)
        # Our own package cannot be built here; the previous step is the one that matters.
        assert done.returncode != 0
        return done.stderr

    assert "DO NOT MATCH THE HASHES" in install(b"what somebody else uploaded")
    assert not (tree / ".venv/dibs-install").exists()
    assert "DO NOT MATCH THE HASHES" not in install(wheel.read_bytes())
    assert list((tree / ".venv").glob("lib/*/site-packages/tiny.py"))
