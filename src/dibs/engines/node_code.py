"""The code that runs on the nodes of an engine: a copy of the lean modules in the shared folder.

Nodes need a Python and nothing of dibs, and an upgrade changes nothing for what already runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from functools import lru_cache
from pathlib import Path

#: As in `runner_pool.BOOT`. An old Python could not even import the code that would say so.
BOOT = (
    "import sys; sys.version_info >= (3, 9) or sys.exit('dibs: the nodes need Python 3.9 or newer, this is %s (%s)' "
    "% (sys.version.split()[0], sys.executable)); "
    "root = sys.argv.pop(1); sys.path.append(root + '/dibs/runner'); import bundle; sys.path.pop(); bundle.start(root)"
)
SOURCE = Path(__file__).resolve().parents[1]
#: All of these is lean; of the other packages, the modules that say so.
LEAN_PACKAGES = ("runner", "leases")


def argv(python: str, root: Path, spec: str) -> tuple[str, ...]:
    """Return the command that carries out the start of a spec file on a node."""
    return (python or sys.executable, "-I", "-S", "-c", BOOT, str(root), spec)


def root_in(shared: Path) -> Path:
    """Return the folder of this version of the code in the shared folder."""
    return shared / "code" / _version()


@lru_cache(maxsize=1)
def _version() -> str:
    digest = hashlib.sha256()
    for name, content in sorted(lean_files().items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def install(shared: Path) -> Path:
    """Copy the code into the shared folder, unless this version is there; return the folder to import it from."""
    root = root_in(shared)
    if not root.is_dir():
        files = lean_files()
        # Complete or not at all: another daemon may be copying too.
        fresh = root.with_name(f".{root.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            for name, content in files.items():
                path = fresh / "dibs" / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.write_bytes(content)
            fresh.rename(root)
        except OSError:
            # A full disk, for example: what was written must not make it fuller with each try.
            shutil.rmtree(fresh, ignore_errors=True)
            if not root.is_dir():
                raise
    return root


def lean_files() -> dict[str, bytes]:
    """Return the files that a node needs, by their names in the package: all lean modules."""
    found: dict[str, bytes] = {}
    for path in SOURCE.rglob("*.py"):
        content = path.read_bytes()
        if path.parent.name in LEAN_PACKAGES or b"\nLean.\n" in content:
            found[str(path.relative_to(SOURCE))] = content
    for folder in {"", *(os.path.dirname(name) for name in found)}:
        name = os.path.join(folder, "__init__.py")
        found[name] = (SOURCE / name).read_bytes()
    return found
