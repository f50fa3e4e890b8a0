"""The pages of GPUs and of settings."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from bench import Bench, wait_for
from visitor import PageAt, Visits, complaints, link_to


def row_of(page: Page, index: int) -> Locator:
    """Return the row of a GPU in the table, not in the legend of a chart."""
    return page.get_by_role("table", name="GPUs", exact=True).get_by_role("row", name=f"GPU {index}")


def test_a_gpu_is_drained_and_returned(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/gpus")
    row = row_of(page, 3)
    row.get_by_role("button", name="drain").click()
    page.get_by_label("Reason").fill("new fan")
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(row).to_contain_text(re.compile("drained by .*: new fan"))
    assert wait_for(lambda: 3 not in queue.free_devices())
    row.get_by_role("button", name="Undrain").click()
    expect(row).not_to_contain_text("drained")
    assert wait_for(lambda: 3 in queue.free_devices())


def test_a_drain_is_undone(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/gpu/2")
    page.get_by_role("button", name="drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.get_by_text("drained", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="drain")).to_be_visible()
    assert wait_for(lambda: 2 in queue.free_devices())


def test_the_holder_of_a_gpu_is_shown_with_a_link_to_the_job(queue: Bench, page_at: PageAt) -> None:
    job = queue.long_job(gpus=1, gpu_ids=["1"])
    page = page_at("/gpus")
    expect(row_of(page, 1).get_by_role("link", name=f"#{job}")).to_be_visible()
    row_of(page, 1).get_by_role("link", name="GPU 1").click()
    expect(page.get_by_role("table", name="Jobs on GPU 1")).to_contain_text(f"#{job}")
    expect(page.get_by_role("list", name="In short")).to_contain_text("Waiting 0 nobody waits for it")
    queue.cancel(job)


def test_settings_and_the_doctor_are_shown(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/settings")
    expect(page.get_by_role("table", name="Checks").locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("table", name="Settings").get_by_text("max_jobs_per_gpu", exact=True)).to_be_visible()
    page.get_by_role("button", name="Dark", exact=True).click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"


#: A browser whose notifications are recorded, and whose tab can be marked as hidden.
NOTICED = """() => {
  window.told = [];
  window.Notification = class {
    static permission = "default";
    static async requestPermission() { return (this.permission = window.answer ?? "granted"); }
    constructor(title) { window.told.push(title); }
    close() {}
  };
  let seen = "visible";
  Object.defineProperty(document, "visibilityState", { get: () => seen, configurable: true });
  window.show = (state) => { seen = state; document.dispatchEvent(new Event("visibilitychange")); };
}"""


def test_the_browser_shows_notifications_if_enabled(queue: Bench, visits: Visits) -> None:
    context = visits.context()
    context.add_init_script(f"({NOTICED})()")
    page = visits.enter(link_to(queue), "/settings", context)
    expect(page.get_by_role("status").get_by_text("live", exact=True)).to_be_visible()
    box = page.get_by_label("Notify me when a job finishes")
    expect(box).not_to_be_checked()
    page.evaluate("() => { window.answer = 'denied'; }")
    box.click()
    expect(page.get_by_text("Notifications are blocked in the browser settings for this site.")).to_be_visible()
    expect(box).not_to_be_checked()
    page.evaluate("() => { window.answer = 'granted'; }")
    box.click()
    expect(box).to_be_checked()
    page.evaluate("() => show('hidden')")
    failed = queue.add("exit 3", gpus=0)
    page.wait_for_function("() => window.told.length > 0")
    assert page.evaluate("() => window.told") == [f"Job {failed}: failed"]
    # The tab says so too.
    expect(page).to_have_title(re.compile(r"^\(1 failed\) "))
    assert page.evaluate("() => document.getElementById('icon').href").endswith("/static/icon-failed.svg")
    page.evaluate("() => show('visible')")
    expect(page).to_have_title(re.compile("^Settings"))
    assert not page.evaluate("() => document.getElementById('icon').href").endswith("/static/icon-failed.svg")


def test_everyone_on_the_machine_is_shown_with_leases_and_tickets(queue: Bench, page_at: PageAt) -> None:
    running = queue.long_job(gpus=4, time_limit_s=7200, name="held")
    waiting = queue.add("true", gpus=2)
    page = page_at("/people")
    people = page.get_by_role("table", name="People").locator("tbody tr")
    expect(people).to_have_count(1)
    expect(people).to_contain_text(re.compile("you.*4 GPUs.*2 GPUs"))
    expect(page.get_by_role("img", name=re.compile(": 4 GPUs$"))).to_be_visible()
    leases = page.get_by_role("table", name="GPUs in use").locator("tbody tr")
    expect(leases).to_have_count(4)
    expect(leases.first.get_by_role("link", name=f"#{running}")).to_be_visible()
    expect(leases.first).to_contain_text(re.compile(r"\d\d:\d\d.*\d\d:\d\d"))
    tickets = page.get_by_role("table", name="Waiting on this machine").locator("tbody tr")
    expect(tickets.first).to_contain_text("2 GPUs")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert complaints(page) == []
    queue.cancel(waiting)
    queue.cancel(running, grace_s=0)
    expect(page.get_by_text("Nobody has a GPU or waits for one.")).to_be_visible()


def test_the_day_of_each_gpu_is_a_strip_with_its_jobs(queue: Bench, page_at: PageAt) -> None:
    job = queue.long_job(gpus=1, name="striped")
    page = page_at("/gpus")
    strips = page.get_by_role("img", name=re.compile("Use, memory and jobs of each GPU"))
    expect(strips).to_be_visible()
    index = queue.job(job)["gpu_indices"][0]
    box = strips.bounding_box()
    assert box is not None
    # The job has just begun: a pixel at the right end; the strip ends at the next five minutes.
    for x in range(1, 12):
        page.mouse.move(box["x"] + box["width"] - x, box["y"] + index * 52 + 30)
    expect(page.locator(".strips .card")).to_contain_text(f"GPU {index}")
    queue.cancel(job, grace_s=0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("path", "table"), [("/gpus", "GPUs"), ("/gpu/0", "Jobs on GPU 0"), ("/settings", "Settings")])
def test_the_pages_are_accessible(queue: Bench, page_at: PageAt, path: str, table: str, scheme: str) -> None:
    page = page_at(path, color_scheme=scheme)
    expect(page.get_by_role("table", name=table, exact=True)).to_be_visible()
    assert complaints(page) == []
