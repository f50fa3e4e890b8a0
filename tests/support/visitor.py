"""Visits of a real browser to the page, and what must not happen on them. The fixtures are in `conftest.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from bench import Bench
from forking import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)

#: Debian's chromium in a container: its sandbox needs what a container forbids, and there is no GPU to draw with.
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
#: What the browser itself logs about an answer that is not 2xx, and about a daemon that is not running.
AWAY = ("net::ERR_CONNECTION_REFUSED", "net::ERR_EMPTY_RESPONSE", "net::ERR_CONNECTION_RESET", "net::ERR_INCOMPLETE")


class Visits:
    """The pages of one test, and everything that must not have happened on them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.faults: list[str] = []
        #: Set while the daemon is stopped on purpose: then the browser may log it.
        self.may_be_away = False

    def context(self, **how: Any) -> BrowserContext:
        """Return a fresh browser session; `how` as Playwright takes it."""
        context = self._browser.new_context(**how)
        context.set_default_timeout(PATIENCE_S * 1000)
        # The longest time for Undo: no test has to be quick.
        context.add_init_script("if (origin !== 'null') localStorage.setItem('dibs.undo_s', '300')")
        context.on("request", self._asked)
        context.on(
            "console",
            lambda message: message.type == "error" and self._said(f"{message.text} {message.location['url']}"),
        )
        context.on("weberror", lambda error: self._blame(f"a script: {error.error}"))
        context.on("dialog", lambda dialog: (self._blame(f"a dialog: {dialog.message}"), dialog.dismiss()))
        self._contexts.append(context)
        return context

    def enter(self, link: str, path: str = "/", context: BrowserContext | None = None, **how: Any) -> Page:
        """Open a page with a login link made for it, and wait until it is loaded."""
        page = (context or self.context(**how)).new_page()
        address, code = link.split("/#")
        page.goto(f"{address}{path}#{code}")
        expect(page.get_by_role("navigation").first).to_be_visible()
        return page

    def _asked(self, request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "blob") and where.hostname not in ("127.0.0.1", "localhost"):
            self._blame(f"a request to another host: {request.url}")

    def _said(self, text: str) -> None:
        if not (self.may_be_away and any(word in text for word in AWAY)):
            self._blame(f"on the console: {text}")

    def _blame(self, text: str) -> None:
        self.faults.append(text)

    def close(self) -> None:
        """Close all pages."""
        while self._contexts:
            self._contexts.pop().close()


def link_to(bench: Bench) -> str:
    """Return a login link for one browser, as `dibs web` prints it."""
    done = bench.cli("web", "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["link"])


PageAt = Callable[..., Page]


def complaints(page: Page) -> list[str]:
    """Return the violations that axe finds on a page, one line each."""
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:160]} ({each['help']})" for each in found for node in each["nodes"]]


def heap_bytes(page: Page) -> int:
    """Return the memory of the scripts of a tab, after a garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])
