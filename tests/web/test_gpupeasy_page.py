"""GPUPeasy's page in a real browser: its forms are accepted, its policy blocks nothing of its own, names stay text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from bench import Bench
from peasy import Peasy
from visitor import Visits

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def peasy(tmp_path: Path) -> Iterator[Peasy]:
    bench = Bench(tmp_path)
    own = Peasy(bench, "0")
    yield own
    own.close()
    bench.close()


def test_a_job_is_added_held_released_and_read(peasy: Peasy, visits: Visits) -> None:
    page = visits.context().new_page()
    home = f"http://127.0.0.1:{peasy.page.port}/"
    page.goto(home)
    gate = peasy.out / "gate"
    for number, name in enumerate((EVIL, "second")):
        page.get_by_label("Name").fill(name)
        page.get_by_label("Output file").fill(str(peasy.out / f"page{number}"))
        page.get_by_label("Command").fill(f"sh -c 'echo \"{name}\"; until [ -e {gate} ]; do sleep 0.02; done'")
        page.get_by_role("button", name="add").click()
        expect(page.get_by_role("status")).to_have_text("Job added successfully")
    running, waiting = page.locator("#deviceutilization"), page.locator("#scheduledjobs")
    # Without a reload: the script of the page is allowed too.
    expect(running).to_contain_text("running")
    expect(running).to_contain_text(EVIL)
    waiting.get_by_role("button", name="hold").click()
    expect(waiting.get_by_role("button", name="release")).to_be_visible()
    running.get_by_role("link", name="1").click()
    expect(page.locator("pre")).to_have_text(f"{EVIL}\n")
    expect(page.locator("dl")).to_contain_text("Running")
    gate.touch()
    expect(page.locator("dl")).to_contain_text("Succeeded")
    page.goto(home)
    page.locator("#scheduledjobs").get_by_role("button", name="release").click()
    expect(page.locator("#successfuljobs")).to_contain_text("Successful (2)")


def redraw(page: Page, section: str) -> None:
    """Wait until a section was asked for twice: what the first answer brought has been drawn by then."""
    for _ in range(2):
        with page.expect_response(f"**/{section}"):
            pass


def two_jobs(peasy: Peasy, page: Page) -> Path:
    """Show one job that runs until the file comes that is returned, and one that is held."""
    gate = peasy.out / "gate"
    peasy.core.until(peasy.add("first", ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done"]), "Running")
    number = peasy.add("second", ["true"])
    peasy.core.post(f"/dibs/jobs/{number}/hold", {})
    page.goto(f"http://127.0.0.1:{peasy.page.port}/")
    return gate


def test_a_press_becomes_a_click_though_the_lists_change_meanwhile(peasy: Peasy, visits: Visits) -> None:
    page = visits.context().new_page()
    gate = two_jobs(peasy, page)
    # Nothing is drawn anew before the button is pressed: the first list may still grow by the pid of its job.
    is_kept, kept = True, list[Route]()
    page.route("**/deviceutilization", lambda route: kept.append(route) if is_kept else route.continue_())
    page.locator("#scheduledjobs").get_by_role("button", name="release").hover()
    page.mouse.down()
    # The list above the button loses its only row, so the button would move away from under the mouse.
    gate.touch()
    peasy.core.until(1, "Succeeded")
    is_kept = False
    for route in kept:
        route.continue_()
    redraw(page, "failedjobs")
    page.mouse.up()
    expect(page.locator("#successfuljobs")).to_contain_text("Successful (2)")


def test_a_redraw_keeps_the_rows_that_are_still_there(peasy: Peasy, visits: Visits) -> None:
    page = visits.context().new_page()
    two_jobs(peasy, page)
    waiting = page.locator("#scheduledjobs")
    waiting.get_by_label("priority").fill("7")
    row = waiting.get_by_role("row").filter(has_text="second").element_handle()
    peasy.add("third", ["true"])
    expect(waiting).to_contain_text("third")
    assert row.evaluate("row => row.isConnected && row.contains(document.activeElement)")
    assert waiting.get_by_label("priority").first.input_value() == "7"
