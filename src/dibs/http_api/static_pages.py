"""The files of the page, out of a dictionary that is made once: no path that somebody asks for reaches the disk."""

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
#: What is served, by the end of its name; other files are for those who work on the page.
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
#: Comments that have lines for themselves, and types: a fifth of what a browser would load, for readers of the source.
COMMENTS = re.compile(rb"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)$|/\*\* @(?:[^*]|\*(?!/))*\*/ ?", re.MULTILINE)
#: Below this a packed file is hardly smaller.
WORTH_PACKING = 512


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page, as it is and packed (None: not worth it)."""

    content: bytes
    packed: bytes | None
    kind: str
    tag: str


class Pages:
    """All files of the page, read when the first one is asked for."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, File] | None = None
        self._reading = asyncio.Lock()

    async def find(self, name: str) -> File:
        """Return the file of that name."""
        async with self._reading:
            if self._files is None:
                self._files = await asyncio.to_thread(load, self._folder)
        if name not in self._files:
            raise NotFound("the page has no file of this name.")
        return self._files[name]


PAGES: web.AppKey[Pages] = web.AppKey("pages", Pages)


def load(folder: Path) -> dict[str, File]:
    """Return all files of the page by name, such as `vendor/ui.js`."""
    paths = (path for path in folder.rglob("*") if path.suffix in KINDS and path.is_file())
    return {path.relative_to(folder).as_posix(): _file(path) for path in paths}


def _file(path: Path) -> File:
    content = path.read_bytes()
    if path.suffix == ".js":
        content = COMMENTS.sub(_only_lines, content)
    # Without a time in it, so that the same file has the same tag on every machine.
    packed = gzip.compress(content, 9, mtime=0) if len(content) >= WORTH_PACKING else None
    return File(content, packed, KINDS[path.suffix], hashlib.sha256(content).hexdigest()[:16])


def _only_lines(comment: re.Match[bytes]) -> bytes:
    """Return the ends of a comment's lines: what a browser says about line 40 is then about line 40 of the source."""
    return b"\n" * comment[0].count(b"\n")


async def get_page(request: web.Request) -> web.Response:
    """Answer with the page; what it shows is decided in the browser."""
    return await _answer(request, INDEX)


async def get_file(request: web.Request) -> web.Response:
    """Answer with a file of the page."""
    return await _answer(request, request.match_info["file"])


async def _answer(request: web.Request, name: str) -> web.Response:
    file = await request.app[PAGES].find(name)
    is_packed = file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", "")
    # Asked for anew each time, and sent again only when it has changed.
    headers = {
        "ETag": f'"{file.tag}{"-gz" if is_packed else ""}"',
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    if file.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if is_packed else file.content
    return web.Response(body=body, content_type=file.kind, charset="utf-8", headers=headers)
