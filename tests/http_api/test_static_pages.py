"""The page's files as the daemon hands them out: all of it small, and nothing of it but comments left out."""

from __future__ import annotations

import re

from dibs.http_api import static_pages

#: Bytes of what a browser loads before it shows the overview, packed.
FIRST_LOAD = 60_000


def test_comments_stay_at_home_and_lines_keep_their_numbers() -> None:
    source = b"""// What it is.
/**
 * Types * of / it.
 */
import x from "./x.js"; // kept
  /** @type {number} */
const a = /** @type {any} */ (1);
const url = "http://here"; /* kept */
"""
    served = static_pages.COMMENTS.sub(static_pages._only_lines, source)
    assert served.decode().splitlines() == [
        "", "", "", "", 'import x from "./x.js"; // kept', "", "const a = (1);",
        'const url = "http://here"; /* kept */',
    ]  # fmt: skip


def test_the_overview_is_quickly_there() -> None:
    files = static_pages.load(static_pages.FOLDER)
    index = files[static_pages.INDEX].content.decode()
    named = {"index.html", "core/stream.worker.js", *re.findall(r'"/static/([^"]+)"', index)}
    assert sum(len(files[name].packed or files[name].content) for name in named) <= FIRST_LOAD


def test_what_the_overview_needs_is_asked_for_at_once() -> None:
    """Each module that begins with the page is named in `index.html`, or a browser learns of it only step by step."""
    files = static_pages.load(static_pages.FOLDER)
    preloaded = set(re.findall(r'modulepreload" href="/static/([^"]+)"', files[static_pages.INDEX].content.decode()))
    needed: set[str] = set()
    left = ["app.js", "pages/overview.js"]
    while left:
        name = left.pop()
        needed.add(name)
        folder = static_pages.FOLDER / name
        if not name.startswith("vendor/"):
            found = re.findall(r'^(?:import|export|\}).* from "(\.[^"]+)"', files[name].content.decode(), re.MULTILINE)
            paths = {(folder.parent / one).resolve().relative_to(static_pages.FOLDER).as_posix() for one in found}
            left += paths - needed
    assert preloaded == needed - {"app.js"}
