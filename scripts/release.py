"""`scripts/release`: check that this commit can be released, build it twice, compare the bytes, and tag it.

`--dry-run` does everything but the tag. Nothing is ever pushed or uploaded: docs/releasing.md has those commands.
"""

from __future__ import annotations

import argparse
import email
import email.message
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Each distribution and its folder in the repository.
DISTRIBUTIONS = {
    "dibs": ".",
    "dibs-compat": "compat",
    "hydra-dibs-launcher": "plugins/hydra-dibs-launcher",
    "submitit-dibs": "plugins/submitit-dibs",
}
#: The oldest Python of each. That of dibs is for `import dibs` inside jobs, which needs no dependency.
PYTHONS = {name: ">=3.9" if name == "dibs" else ">=3.11" for name in DISTRIBUTIONS}
#: Files without which an installed dibs would lack something that no import notices.
NEEDED = ("dibs/web/index.html", "dibs/py.typed", "data/scripts/dibs", "data/share/man/man1/dibs.1")


class Failed(Exception):
    """A step that must pass before a release did not; the text says what to do."""


def build(source: Path, target: Path, epoch: int) -> list[Path]:
    """Build the wheel and the sdist of every distribution in `source`; return the files, sorted by name."""
    for folder in DISTRIBUTIONS.values():
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(target)],
            cwd=source / folder,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return sorted(target.iterdir())


def check_same_bytes(first: list[Path], second: list[Path]) -> None:
    """Raise `Failed` unless two builds gave the same files."""
    if [path.name for path in first] != [path.name for path in second]:
        raise Failed(f"two builds made different files: {first} and {second}.")
    different = [one.name for one, other in zip(first, second, strict=True) if one.read_bytes() != other.read_bytes()]
    if different:
        raise Failed(f"two builds of the same commit differ: {', '.join(different)}. Compare them with diffoscope.")


def metadata(built: Path) -> email.message.Message:
    """Return the metadata of a wheel or an sdist."""
    if built.suffix == ".whl":
        with zipfile.ZipFile(built) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(wheel.read(name))
    with tarfile.open(built) as sdist:
        member = sdist.extractfile(f"{built.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert member is not None
        return email.message_from_bytes(member.read())


def check_metadata(files: list[Path], version: str) -> None:
    """Raise `Failed` unless the built files say what they are and hold what an install needs."""
    if len(files) != 2 * len(DISTRIBUTIONS):
        raise Failed(f"expected a wheel and an sdist of each distribution, got {[path.name for path in files]}.")
    for path in files:
        fields = metadata(path)
        found = {name: fields[name] for name in ("Version", "Requires-Python", "License-Expression")}
        if fields["Name"] not in DISTRIBUTIONS or found != {
            "Version": version,
            "Requires-Python": PYTHONS[fields["Name"]],
            "License-Expression": "MIT",
        }:
            raise Failed(f"unexpected metadata in {path.name}: {fields['Name']} {found}.")
        needs = [need for need in fields.get_all("Requires-Dist", []) if "python_version >=" not in need]
        if fields["Name"] == "dibs" and (more := [need for need in needs if "extra ==" not in need]):
            raise Failed(f"{path.name} requires {', '.join(more)} inside jobs. Add a marker in pyproject.toml.")
        if fields["Name"] != "dibs" and f"dibs=={version}" not in fields.get_all("Requires-Dist", []):
            raise Failed(f"{path.name} does not require dibs=={version}. Correct its pyproject.toml.")
        if path.name.startswith("dibs-") and path.suffix == ".whl":
            names = zipfile.ZipFile(path).namelist()
            missing = [name for name in NEEDED if not any(one.endswith(name) for one in names)]
            if missing:
                raise Failed(f"{path.name} lacks {', '.join(missing)}.")


def read_version(source: Path) -> str:
    """Return the version that all distributions have; raise `Failed` where they differ."""
    found = re.search(r'__version__ = "([^"]+)"', (source / "src/dibs/version.py").read_text())
    version = found[1] if found else "nothing"
    for folder in list(DISTRIBUTIONS.values())[1:]:
        other = tomllib.loads((source / folder / "pyproject.toml").read_text())["project"]
        if other["version"] != version or f"dibs=={version}" not in other["dependencies"]:
            raise Failed(f"src/dibs/version.py has {version}; {folder}/pyproject.toml has {other['version']}. Use one.")
    return version


def check_changelog(text: str, version: str) -> None:
    """Raise `Failed` unless the changelog has a section for the version."""
    if not re.search(rf"^## \[{re.escape(version)}\]( - \d{{4}}-\d\d-\d\d)?$", text, re.MULTILINE):
        raise Failed(f'CHANGELOG.md has no section "## [{version}]". Move what is under [Unreleased] there.')


def check_clean() -> None:
    """Raise `Failed` where the working tree differs from the commit."""
    changed = _git("status", "--porcelain")
    if changed:
        raise Failed(f"the working tree has changes. Commit or remove them:\n{changed}")


def check_tag(tag: str) -> None:
    """Raise `Failed` where the tag exists."""
    if _git("tag", "--list", tag):
        raise Failed(f"the tag {tag} exists. Raise the version in src/dibs/version.py and every pyproject.toml.")


def build_twice(version: str) -> None:
    """Build the commit in two folders, compare the results and check what they say; keep the first in `dist/`."""
    epoch = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="dibs-release-") as name:
        built = []
        for source in (Path(name) / "a", Path(name) / "another folder"):
            source.mkdir()
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
            subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
            built.append(build(source, source / "dist", epoch))
        check_same_bytes(*built)
        check_metadata(built[0], version)
        target = ROOT / "dist"
        target.mkdir(exist_ok=True)
        for path in built[0]:
            (target / path.name).write_bytes(path.read_bytes())
            print(f"   dist/{path.name}")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _passes(title: str, check: Callable[[], None]) -> bool:
    print(f"== {title}", flush=True)
    try:
        check()
    except Failed as failure:
        print(f"   FAILED: {failure}")
        return False
    return True


def main(words: list[str]) -> int:
    """Run every step, also after one that failed; tag only when all have passed."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="check and build, but do not tag")
    options = parser.parse_args(words)
    try:
        version = read_version(ROOT)
    except Failed as failure:
        print(f"scripts/release: {failure}", file=sys.stderr)
        return 1
    tag = f"v{version}"
    changelog = (ROOT / "CHANGELOG.md").read_text()
    steps: dict[str, Callable[[], None]] = {
        "the working tree is clean": check_clean,
        f"the tag {tag} is free": lambda: check_tag(tag),
        f"the changelog has a section for {version}": lambda: check_changelog(changelog, version),
        "all distributions, built twice, have the same bytes": lambda: build_twice(version),
    }
    failed = [title for title, check in steps.items() if not _passes(title, check)]
    if failed:
        print(f"== not released: {len(failed)} of {len(steps)} steps failed")
        return 1
    if options.dry_run:
        print(f"== dry run: not tagged. Without --dry-run: git tag -a {tag}")
        return 0
    _git("tag", "-a", tag, "-m", f"dibs {version}")
    print(f"== tagged {tag}. Not pushed: git push origin {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
