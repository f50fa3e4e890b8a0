"""The page's files as the daemon serves them: small, and complete except for comments."""

from __future__ import annotations

import re

from dibs.http_api import static_pages

#: Bytes that a browser loads before it shows the overview, compressed.
FIRST_LOAD = 60_000


def test_comments_are_removed_and_line_numbers_stay() -> None:
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


def test_the_overview_loads_few_bytes() -> None:
    files = static_pages.load(static_pages.FOLDER)
    index = files[static_pages.INDEX].content.decode()
    named = {"index.html", "core/stream.worker.js", *re.findall(r'"/static/([^"]+)"', index)}
    assert sum(len(files[name].packed or files[name].content) for name in named) <= FIRST_LOAD


def test_modules_of_the_overview_are_preloaded() -> None:
    """Each module needed at the start is named in `index.html`, or a browser finds it only step by step."""
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
