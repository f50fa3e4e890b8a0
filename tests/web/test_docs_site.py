"""The documentation site that `scripts/docs` built: accessible in both themes, and complete without a network."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from dibs.version import __version__

ROOT = Path(__file__).parents[2]
PAGES = (
    *("index", "how-it-works", "troubleshooting", "verbs", "sweeps", "performance", "security", "notebooks"),
    "decisions/index",
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Build the site and serve it on loopback."""
    if not os.environ.get("DIBS_TEST_STRICT") and not (ROOT / ".venv-docs").exists():
        pytest.skip("scripts/docs was not run here: MkDocs is not installed")
    built = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in "".join(line for line in built.stderr.splitlines() if "Location" not in line)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(ROOT / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_is_accessible_and_asks_no_other_host(address: str, browser: Browser, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in PAGES:
        page.goto(f"{address}/{__version__}/{name}.html")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    assert [url for url in asked if not url.startswith(address)] == []
    context.close()


def test_the_search_finds_a_page(address: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    page.wait_for_url(f"**/{__version__}/index.html")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("EADDRINUSE")
    page.locator(".md-search-result a", has_text="Address already in use").first.wait_for()
    page.close()
