"""Reservations on the page: made in a dialog, listed for everybody, shown on the timeline, cancelled."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from bench import Bench
from visitor import PageAt, complaints


def test_a_reservation_is_made_shown_and_cancelled(queue: Bench, page_at: PageAt) -> None:
    # The overview of a queue without jobs has no timeline.
    queue.until(queue.add("true", gpus=0))
    page = page_at("/gpus")
    expect(page.get_by_text("No reservations.")).to_be_visible()
    page.get_by_role("button", name="Reserve GPUs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("GPUs", exact=True)).to_be_focused()
    dialog.get_by_label("GPU ids").fill("1, 2")
    dialog.get_by_label("Lasts").fill("soon")
    dialog.get_by_role("button", name="Reserve").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Lasts expected a time")
    dialog.get_by_label("Lasts").fill("3h")
    dialog.get_by_label("Name").fill("<b>course</b>")
    assert complaints(page) == []
    dialog.get_by_role("button", name="Reserve").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    row = page.get_by_role("table", name="Reservations").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("<b>course</b>")
    expect(row).to_contain_text(re.compile(r"planned.*1, 2.*3h00m", re.S))
    (made,) = queue.client.get("/v1/reservations")["reservations"]
    assert (made["gpus"], made["name"]) == ([1, 2], "<b>course</b>")
    assert complaints(page) == []

    # On the overview it is a block, which the table beside the picture tells in words.
    overview = page_at("/")
    overview.get_by_role("button", name="As a table").click()
    expect(overview.get_by_role("list", name="Reserved")).to_contain_text(f"GPUs 1, 2 reserved for {made['user']}")

    people = page_at("/people")
    listed = people.get_by_role("table", name="Reservations").locator("tbody tr")
    expect(listed).to_have_count(1)
    listed.get_by_role("button", name="Cancel").click()
    expect(people.get_by_role("dialog")).to_contain_text("GPUs 1, 2 will be available to all users again")
    people.get_by_role("dialog").get_by_role("button", name="Cancel reservation").click()
    expect(people.get_by_text("No reservations.")).to_be_visible()
    assert queue.client.get("/v1/reservations") == {"reservations": []}
