"""The files of the web page, served from a dictionary built once: no requested path ever reaches the disk."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from dibs.errors import NotFound

FOLDER = Path(__file__).resolve().parent.parent / "web"
INDEX = "index.html"
#: Content types by file suffix; other files are for development and not served.
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
#: Comments on their own lines, and type annotations: a fifth of the bytes, of no use to a browser.
COMMENTS = re.compile(rb"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)$|/\*\* @(?:[^*]|\*(?!/))*\*/ ?", re.MULTILINE)
#: Bytes below which compression hardly helps.
WORTH_PACKING = 512


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page, plain and compressed (None: too small to compress)."""

    content: bytes
    packed: bytes | None
    kind: str
    tag: str


class Pages:
    """All files of the page, read on the first request."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, File] | None = None
        self._reading = asyncio.Lock()

    async def find(self, name: str) -> File:
        async with self._reading:
            if self._files is None:
                self._files = await asyncio.to_thread(load, self._folder)
        if name not in self._files:
            raise NotFound("the page has no file of this name.")
        return self._files[name]


def load(folder: Path) -> dict[str, File]:
    """Return all files of the page by name, such as `vendor/ui.js`."""
    paths = (path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())
    return {path.relative_to(folder).as_posix(): _file(path) for path in paths}


def _file(path: Path) -> File:
    content = path.read_bytes()
    if path.suffix == ".js":
        content = COMMENTS.sub(_only_lines, content)
    # No timestamp, so that the same file compresses to the same bytes on every machine.
    packed = gzip.compress(content, 9, mtime=0) if len(content) >= WORTH_PACKING else None
    return File(content, packed, KINDS[path.suffix], hashlib.sha256(content).hexdigest()[:16])


def _only_lines(comment: re.Match[bytes]) -> bytes:
    """Replace a comment by its newlines, so that line numbers in the browser match the source."""
    return b"\n" * comment[0].count(b"\n")


async def get_page(pages: Pages, request: web.Request) -> web.Response:
    """Return the page; the browser decides what it shows."""
    return await get_file(pages, request, INDEX)


async def get_file(pages: Pages, request: web.Request, file: str) -> web.Response:
    """Return a file of the page."""
    found = await pages.find(file)
    is_packed = found.packed is not None and "gzip" in request.headers.get("Accept-Encoding", "")
    # The browser revalidates each time; the file is sent again only if it changed.
    headers = {
        "ETag": f'"{found.tag}{"-gz" if is_packed else ""}"',
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    if found.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    body = found.packed if is_packed else found.content
    return web.Response(body=body, content_type=found.kind, charset="utf-8", headers=headers)
