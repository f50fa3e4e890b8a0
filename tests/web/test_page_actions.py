"""Actions available on every page: submit a job or a sweep, cancel and undo."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from bench import Bench, wait_for
from visitor import PageAt


def state(queue: Bench, job_id: int) -> str:
    """Return the state of a job."""
    return str(queue.job(job_id)["state"])


def test_a_job_is_submitted_by_keyboard_only(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/jobs")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="Submit a job")
    expect(dialog.get_by_label("Command")).to_be_focused()
    page.keyboard.type("echo from the page")
    expect(dialog.get_by_text(re.compile(r"It would start now, on GPU \d"))).to_be_visible()
    dialog.get_by_label("GPUs").fill("0")
    dialog.get_by_label("Name").fill("typed")
    expect(dialog.get_by_text("It would start now")).to_be_visible()
    expect(dialog.get_by_text("dibs add", exact=False).first).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/job/\d+$"))
    job = queue.until(int(page.url.rsplit("/", 1)[1]))
    assert (job["name"], job["state"]) == ("typed", "done")
    assert queue.log(job["id"]) == "from the page\n"


def test_placeholders_are_counted_and_become_a_sweep(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/jobs")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="Submit a job")
    dialog.get_by_label("Command").fill("echo {lr}")
    dialog.get_by_label("Values of lr").fill("0.1, 0.01, 0.001")
    dialog.get_by_label("GPUs").fill("0")
    dialog.get_by_label("Name").fill("swept")
    dialog.get_by_role("button", name="Submit 3 jobs").click()
    expect(page).to_have_url(re.compile(r"/sweep/\d+$"))
    assert len(queue.jobs("sweep:swept")) == 3


def test_a_cancel_is_undone_and_then_confirmed(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(["true"], name="doubtful", hold=True)
    page = page_at("/jobs?name=doubtful")
    expect(page.get_by_role("link", name="doubtful")).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("c")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_have_count(0)
    assert state(queue, job_id) == "held"
    page.keyboard.press("c")
    # When the message disappears, the time for Undo is over.
    page.get_by_role("button", name="Dismiss").click()
    wait_for(lambda: state(queue, job_id), lambda word: word == "cancelled")


def test_leaving_the_page_sends_pending_actions(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(["true"], name="left-behind", hold=True)
    page = page_at("/jobs?name=left-behind")
    expect(page.get_by_role("link", name="left-behind")).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("c")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_be_visible()
    page.goto("about:blank")
    wait_for(lambda: state(queue, job_id), lambda word: word == "cancelled")
