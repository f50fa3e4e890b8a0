"""Pages with nothing to show, or too much for one screen: they say what to do, and offer only what applies."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from bench import Bench
from visitor import PageAt, Visits, complaints, link_to

#: What the browser logs about a page whose subject does not exist.
MISSING = "the server responded with a status of 404"


def test_without_jobs_nothing_is_offered_for_them(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/jobs")
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    for name in ("Group sweeps and batches", "Export", "Columns"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("searchbox")).to_have_count(0)
    # A filter that matches nothing can still be taken back.
    page.goto(page.url + "?state=failed")
    expect(page.get_by_text("No job matches")).to_be_visible()
    expect(page.get_by_role("button", name="Failed", exact=True)).to_be_visible()
    page.goto(page.url.replace("jobs?state=failed", "usage"))
    expect(page.get_by_text("No job had a GPU on these days")).to_be_visible()
    expect(page.get_by_role("button", name="CSV")).to_have_count(0)
    page.goto(page.url.replace("usage", "people"))
    expect(page.get_by_text("Nobody has a GPU or waits for one.")).to_be_visible()
    expect(page.get_by_role("heading", name="GPUs in use")).to_have_count(0)


def test_gpus_have_columns_only_for_what_they_report(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/gpus")
    table = page.get_by_role("table", name="GPUs", exact=True)
    expect(table.get_by_role("columnheader", name="Memory")).to_be_visible()
    for title in ("Temperature", "Power", "Waiting"):
        expect(table.get_by_role("columnheader", name=title)).to_have_count(0)


@pytest.mark.parametrize(
    ("path", "text", "link"),
    [
        ("/job/77", "There is no job 77", "All jobs"),
        ("/sweep/77", "There is no sweep 77", "All sweeps"),
        ("/sweep/nothing", "There is no sweep nothing", "All sweeps"),
        ("/gpu/77", "There is no GPU 77", "All GPUs"),
    ],
)
def test_what_does_not_exist_leads_to_what_does(queue: Bench, visits: Visits, path: str, text: str, link: str) -> None:
    page = visits.enter(link_to(queue), path)
    expect(page.get_by_text(re.compile(f"^{text}"))).to_be_visible()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    assert complaints(page) == []
    page.get_by_role("link", name=link).click()
    expect(
        page.get_by_role("link", name=re.compile("Jobs|Sweeps|GPUs")).and_(page.locator("[aria-current]"))
    ).to_be_visible()
    visits.faults[:] = [fault for fault in visits.faults if MISSING not in fault]


def test_a_log_without_a_line_has_nothing_to_find_or_to_download(queue: Bench, page_at: PageAt) -> None:
    job = queue.add(["sh", "-c", "until [ -e said ]; do sleep 0.02; done; echo said; sleep 1000"], gpus=0)
    page = page_at(f"/job/{job}")
    expect(page.get_by_text("No output yet.")).to_be_visible()
    buttons = [page.get_by_role("button", name=name) for name in ("Wrap", "Times", "Download")]
    for button in buttons:
        expect(button).to_have_count(0)
    (queue.folder / "said").touch()
    expect(page.get_by_role("region", name="Log")).to_contain_text("said")
    for button in buttons:
        expect(button).to_be_visible()
    queue.cancel(job, grace_s=0)


def test_the_search_asks_before_it_pauses_the_queue(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("pause")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Pause the queue?").get_by_role("button", name="Back").click()
    assert queue.client.get("/v1/queue")["paused"] is False


def test_ctrl_a_selects_all_jobs_wherever_the_focus_is(queue: Bench, page_at: PageAt) -> None:
    for _ in range(2):
        queue.until(queue.add("true", gpus=0))
    page = page_at("/jobs")
    expect(page.locator("[role=row] a").first).to_be_visible()
    page.keyboard.press("Control+a")
    expect(page.get_by_text(re.compile(r"\d jobs selected"))).to_be_visible()


def test_a_copy_button_keeps_its_width_on_a_phone(queue: Bench, page_at: PageAt) -> None:
    job = queue.add(["true", "a" * 300], gpus=0)
    page = page_at(f"/job/{job}?tab=details", viewport={"width": 390, "height": 844})
    box = page.get_by_role("button", name="Copy", exact=True).last.bounding_box()
    assert box is not None
    assert box["width"] > box["height"]


def test_the_buttons_of_a_long_dialog_stay_in_sight(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/", viewport={"width": 390, "height": 844})
    page.get_by_role("button", name="New job").click()
    dialog = page.get_by_role("dialog", name="New job")
    dialog.get_by_text("More options").click()
    expect(dialog.get_by_label("Tags")).to_be_attached()
    expect(dialog.get_by_role("button", name="Submit job")).to_be_in_viewport()
    dialog.get_by_label("Variables").fill("A=1")
    expect(dialog.get_by_role("button", name="Submit job")).to_be_in_viewport()
