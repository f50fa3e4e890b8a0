"""The table of all jobs in a browser: one action for many by keyboard only, and 100,000 jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from bench import Bench, wait_for
from dibs.jobqueue import thread
from dibs.system import paths
from pretend import crowd
from visitor import PageAt, Visits, heap_bytes, link_to

MANY = 100_000
#: Rows in the document at once: those on the screen, and some above and below.
MOST_ROWS = 150
#: Bytes of the tab with 100,000 jobs; their rows alone, as JSON, would be over 100 MB.
MOST_HEAP = 30_000_000


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A queue with 100,000 jobs of last week."""
    folder: Path = tmp_path_factory.mktemp("crowded")
    paths.prepare(folder / "home")
    crowd.write(folder / "home", MANY, thread.now_ms(), str(folder))
    own = Bench(folder)
    own.start()
    yield own
    own.close()


def test_of_a_hundred_thousand_jobs_only_a_few_rows_are_rendered(crowded: Bench, visits: Visits) -> None:
    page = visits.enter(link_to(crowded), "/jobs")
    expect(page.get_by_role("link", name=f"#{MANY} render-{MANY - 1}")).to_be_visible()
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", str(MANY + 1))
    grid = page.get_by_role("grid")
    grid.focus()
    page.keyboard.press("End")
    expect(page.get_by_role("link", name="#1 render-0", exact=True)).to_be_visible()
    assert grid.get_by_role("row").count() < MOST_ROWS
    assert heap_bytes(page) < MOST_HEAP


def test_many_failed_jobs_are_retried_by_keyboard_only(queue: Bench, page_at: PageAt) -> None:
    failed = queue.add_many([{"command": "exit 3", "name": f"fails-{n}"} for n in range(5)], gpus=0)
    for job_id in failed:
        queue.until(job_id)
    page = page_at("/jobs?state=failed")
    expect(page.get_by_role("link", name="fails-4")).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("Control+a")
    expect(page.get_by_text("5 jobs selected")).to_be_visible()
    page.keyboard.press("r")
    expect(page.get_by_role("button", name="Retry 5 jobs")).to_be_visible()
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Retry 5 jobs").press("Enter")
    expect(page.get_by_text("Queued again 5 jobs.")).to_be_visible()
    wait_for(lambda: [queue.job(job_id)["attempt"] for job_id in failed], lambda attempts: attempts == [2] * 5)
