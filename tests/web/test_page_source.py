"""The source of the page: its libraries match VENDOR.txt, its source follows the rules, and its pure functions pass
their tests."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "src/dibs/web"
OWN = sorted(path for path in WEB.rglob("*") if path.suffix in (".js", ".html", ".css") and "vendor" not in path.parts)
#: What turns text into markup or code, or needs a looser policy than ours.
FORBIDDEN = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|createContextualFragment|DOMParser"
    r"|\beval\(|new Function|javascript:"
)


def test_vendored_files_are_unchanged():
    said = re.findall(r"^([0-9a-f]{64})  (\S+)$", (WEB / "vendor/VENDOR.txt").read_text(), re.MULTILINE)
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (WEB / "vendor").iterdir()}
    assert {name: digest for digest, name in said} == {n: d for n, d in found.items() if n != "VENDOR.txt"}


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(WEB)))
def test_the_source_never_turns_text_into_markup_and_loads_nothing_external(path):
    text = path.read_text()
    assert not re.search(FORBIDDEN, text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text), "the page works without any other host"
    # An attribute is refused by the policy; style=${...} with an object sets properties, which is not.
    assert not re.search(r"\bstyle=[\"']", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=\"", text)


def test_every_file_named_by_the_page_exists():
    for path in OWN:
        text = path.read_text()
        named = re.findall(r"[\"'](/static/[\w./-]+)[\"']", text)
        assert [name for name in named if not (WEB / name.removeprefix("/static/")).is_file()] == []
        imports = re.findall(r"(?:from |import\()\"(\.[\w./-]+)\"", text)
        assert [name for name in imports if not (path.parent / name).is_file()] == []


def test_the_lock_file_names_no_download_location():
    assert "resolved" not in (HERE / "package-lock.json").read_text()


def test_the_pure_functions_of_the_page_pass_their_tests():
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs nodejs")
    files = sorted(str(path) for path in HERE.glob("*.test.mjs"))
    assert files
    ran = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
