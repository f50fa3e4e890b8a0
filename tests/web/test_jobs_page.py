"""The table of jobs in a browser: filters in the address, stable rows, actions, columns, files."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bench import Bench, wait_for
from visitor import PageAt, complaints


def test_a_filter_is_in_the_address_and_survives_a_reload(queue: Bench, page_at: PageAt) -> None:
    queue.add_many([{"name": "vit-a"}, {"name": "vit-b"}, {"name": "bert"}], command="true", gpus=0, tags=["kept"])
    page = page_at("/jobs")
    # The list is requested by a page that already listens to keys.
    expect(page.get_by_role("link", name="bert")).to_be_visible()
    page.keyboard.press("f")
    page.keyboard.type('tag:kept name:vit* cmd:"true"')
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 jobs", exact=True)).to_be_visible()
    page.get_by_role("button", name="submitted").click()
    expect(page).to_have_url(re.compile("tag=kept.*sort=-submitted"))
    page.reload()
    expect(page.get_by_text("2 jobs", exact=True)).to_be_visible()
    expect(page.locator("#filter")).to_have_value("name:vit* tag:kept cmd:true")
    expect(page.get_by_role("columnheader", name="submitted")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Remove name:vit*").click()
    expect(page.get_by_text("3 jobs", exact=True)).to_be_visible()
    page.locator("#filter").fill("colour:red")
    expect(page.get_by_text("there is no filter colour:")).to_be_visible()


def first_rows(page: Page) -> list[str]:
    """Return the ids of the rows in the document, in order."""
    return page.locator(".grid-rows .grid-row").evaluate_all("rows => rows.map((row) => row.id)")


def test_new_jobs_are_announced_and_rows_change_in_place(queue: Bench, page_at: PageAt) -> None:
    gate = queue.folder / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    first, last = queue.add_many([{"name": "one"}, {"name": "two"}], command=waits, gpus=0, project="still")
    queue.until(last, "started")
    page = page_at("/jobs?project=still")
    expect(page.locator(f"#row-{last}")).to_contain_text("running")
    before = first_rows(page)
    queue.add_many([{}, {}, {}], command="true", gpus=0, project="still")
    expect(page.get_by_role("button", name="3 new")).to_be_visible()
    assert first_rows(page) == before == [f"row-{last}", f"row-{first}"]
    gate.touch()
    for job_id in (first, last):
        expect(page.locator(f"#row-{job_id}")).to_contain_text("done")
    assert first_rows(page) == before
    page.get_by_role("button", name="3 new").click()
    expect(page.get_by_text("5 jobs", exact=True)).to_be_visible()
    assert len(first_rows(page)) == 5


def test_jobs_are_selected_held_and_released_by_undo(queue: Bench, page_at: PageAt) -> None:
    blocker = queue.long_job(gpus=4)
    held = queue.add_many([{} for _ in range(4)], command="true", gpus=4, project="hold")
    page = page_at("/jobs?project=hold")
    expect(page.get_by_text("4 jobs", exact=True)).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.get_by_text("3 jobs selected")).to_be_visible()
    page.locator(f"#row-{held[0]} .check").click()
    page.locator(f"#row-{held[1]} .check").click()
    page.locator(f"#row-{held[0]} .check").click()
    expect(page.get_by_text("2 jobs selected")).to_be_visible()
    page.get_by_role("button", name="Hold", exact=True).click()
    page.get_by_role("button", name="Hold 2 jobs").click()
    undo = page.get_by_role("button", name="Undo")
    # With the focus on it the message stays, however long the rest takes.
    undo.focus()
    expect(page.get_by_text("Held 2 jobs.")).to_be_visible()
    for job_id in held[2:]:
        expect(page.locator(f"#row-{job_id}")).to_contain_text("held")
    undo.press("Enter")
    wait_for(lambda: {queue.job(job_id)["state"] for job_id in held}, lambda states: states == {"queued"})
    queue.cancel(blocker, *held, grace_s=0)


def test_columns_are_remembered_and_jobs_exported(queue: Bench, page_at: PageAt, tmp_path: Path) -> None:
    job_id = queue.add('echo "a, b"', gpus=0, name="saved", project="files", priority=7)
    queue.until(job_id)
    page = page_at("/jobs?project=files")
    page.get_by_text("Columns").click()
    page.get_by_label("Priority").check()
    expect(page.get_by_role("gridcell", name="7", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("gridcell", name="7", exact=True)).to_be_visible()
    page.get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "jobs.csv")
    (row,) = csv.DictReader((tmp_path / "jobs.csv").read_bytes().decode().splitlines())
    assert (row["id"], row["state"], row["command"]) == (str(job_id), "done", 'echo "a, b"')


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_table_is_accessible(queue: Bench, page_at: PageAt, colours: str) -> None:
    job_id = queue.add("exit 1", gpus=0, name="seen", project=colours)
    queue.until(job_id)
    page = page_at(f"/jobs?project={colours}", color_scheme=colours)
    page.locator(f"#row-{job_id} .check").click()
    expect(page.get_by_text("1 job selected")).to_be_visible()
    assert complaints(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_role("link", name="seen")).to_be_visible()
    assert complaints(page) == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_sweeps_and_batches_are_one_row_that_opens(queue: Bench, page_at: PageAt) -> None:
    done = queue.cli("sweep", "true {x}", "--name", "grouped", "-g", "0", "-p", "x=1,2,3")
    assert done.returncode == 0, done.stderr
    queue.wait_all()
    page = page_at("/jobs")
    row = page.locator(".group-row", has_text="grouped")
    expect(row).to_contain_text("3 jobs")
    runs = [job["id"] for job in queue.jobs("sweep:grouped")]
    expect(page.locator(f"#row-{runs[0]}")).to_have_count(0)
    row.get_by_role("button", name="Jobs of grouped").click()
    expect(page.locator(f"#row-{runs[0]}")).to_be_visible()
    # On a phone the row has its name beside its box.
    page.set_viewport_size({"width": 390, "height": 844})
    expect(row.get_by_text("grouped", exact=True)).to_be_visible()
    box, name = row.locator(".check").bounding_box(), row.get_by_text("grouped", exact=True).bounding_box()
    assert box is not None
    assert name is not None
    assert box["x"] < name["x"] < 200
    page.set_viewport_size({"width": 1280, "height": 720})
    row.locator(".check").click()
    expect(page.get_by_text("3 jobs selected")).to_be_visible()
    assert complaints(page) == []
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Group sweeps and batches").click()
    expect(row).to_have_count(0)
    page.reload()
    expect(page.locator(f"#row-{runs[0]}")).to_be_visible()
    expect(row).to_have_count(0)


def test_the_filter_is_completed_by_keyboard(queue: Bench, page_at: PageAt) -> None:
    queue.until(queue.add("false", gpus=0, name="sad"))
    page = page_at("/jobs")
    box = page.get_by_label("Filter")
    box.click()
    box.press_sequentially("sta")
    expect(page.get_by_role("option", name="state:")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    box.press_sequentially("fai")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("state=failed"))
    expect(box).to_have_value(re.compile("^state:failed"))
    # A state that a button stands for has no chip beside it; this one has.
    expect(page.get_by_role("button", name="Remove state:failed")).to_be_visible()
    page.get_by_role("group", name="State").get_by_role("button", name="Failed").click()
    expect(page).to_have_url(re.compile("state=bad"))
    expect(page.get_by_role("button", name=re.compile("^Remove"))).to_have_count(0)


def test_a_view_is_saved_with_its_filter_and_columns(queue: Bench, page_at: PageAt) -> None:
    queue.until(queue.add("true", gpus=0, name="viewed", priority=3))
    page = page_at("/jobs?name=viewed&sort=name")
    page.get_by_text("Columns").click()
    page.get_by_label("Priority").check()
    page.keyboard.press("Escape")
    page.get_by_text("Views").click()
    page.get_by_role("button", name="Save this view…").click()
    page.get_by_role("dialog", name="Save this view").get_by_label("Name").fill("mine")
    page.keyboard.press("Enter")
    page.goto("/".join(page.url.split("/")[:3]) + "/jobs")
    page.get_by_text("Views").click()
    page.get_by_role("button", name="mine", exact=True).click()
    expect(page).to_have_url(re.compile(r"name=viewed&sort=name$"))
    expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()
