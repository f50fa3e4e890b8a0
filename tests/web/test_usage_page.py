"""The page of usage: GPU-hours by user, project, sweep, group and day, waiting times, CSV; and an unused queue."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from playwright.sync_api import expect

from bench import Bench, wait_for
from visitor import PageAt, complaints


def test_gpu_hours_are_summed_and_exported(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/usage")
    expect(page.get_by_text("No job had a GPU on these days")).to_be_visible()
    expect(page.get_by_role("button", name="CSV")).to_have_count(0)
    assert complaints(page) == []
    queue.until(queue.add("true", name="short", project="vision", gpus=2))
    swept = queue.cli("sweep", "echo {lr}", "--name", "rates", "-P", "speech", "-g", "1", "-p", "lr=1,2")
    assert swept.returncode == 0, swept.stderr
    queue.wait_all()
    page.reload()
    table = page.get_by_role("table", name="GPU-hours")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_text("median wait of 3 jobs")).to_be_visible()
    expect(page.get_by_role("table", name="Longest waits").get_by_text("short")).to_be_visible()
    page.get_by_role("button", name="Sweep", exact=True).click()
    expect(table.get_by_text("speech/rates")).to_be_visible()
    expect(table.get_by_text("vision, without a sweep")).to_be_visible()
    page.get_by_role("button", name="28 days").click()
    expect(page).to_have_url(re.compile(r"/usage\?by=sweep&days=28$"))
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").click()
    with Path(coming.value.path()).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert {(row["project"], row["sweep"]) for row in found} == {("vision", ""), ("speech", "rates")}
    assert all(float(row["gpu_hours"]) >= 0 for row in found)
    for by in ("group", "day"):
        page.get_by_role("button", name=by.capitalize(), exact=True).click()
        expect(table.get_by_role("columnheader").first).to_have_text(by.capitalize())
        expect(table.locator("tbody tr")).to_have_count(1)
    assert [table.get_by_role("columnheader", name=name).count() for name in ("Held", "Used", "Wasted", "Waited")] == [
        1
    ] * 4
    assert complaints(page) == []


def test_users_are_summed_and_exported(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.long_job(gpus=1)
    page = page_at("/usage?by=user")
    table = page.get_by_role("table", name="GPU-hours")
    user = queue.job(job_id)["user"]
    # Somebody who holds a GPU has used it for some time, which the page reads anew every minute.
    wait_for(lambda: any(day["user"] == user for day in queue.client.get("/v1/usage")["people"]))
    page.reload()
    expect(table.locator("tbody tr").first).to_contain_text(f"{user} you")
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").click()
    assert coming.value.suggested_filename == "usage-by-user.csv"
    with Path(coming.value.path()).open(newline="") as file:
        assert user in {row["user"] for row in csv.DictReader(file)}
    queue.cancel(job_id, grace_s=0)
    queue.until(job_id)
