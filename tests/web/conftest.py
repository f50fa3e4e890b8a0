"""A real browser for tests of the page: Debian's chromium, driven by Playwright; one for each test worker.

A test gets pages that used a real login link. None of them may have had an error: none on its console, none in a
script, nothing refused by the Content-Security-Policy, no request to another host.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from bench import Bench
from visitor import FLAGS, PageAt, Visits, link_to


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of this worker."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs the Debian package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visits(browser: Browser) -> Iterator[Visits]:
    """Pages that must not have logged an error when the test is over."""
    own = Visits(browser)
    yield own
    own.close()
    assert own.faults == []


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One queue on four pretend GPUs for all tests of a module, so its tests leave nothing behind that hurts others."""
    own = Bench(tmp_path_factory.mktemp("queue"))
    own.start()
    yield own
    own.close()


@pytest.fixture
def page_at(queue: Bench, visits: Visits) -> PageAt:
    """Open a path of the module's queue in a fresh browser session."""
    return lambda path="/", **how: visits.enter(link_to(queue), path, **how)
