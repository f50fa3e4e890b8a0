"""The log of a job in a browser: followed while it grows, and of any length."""

from __future__ import annotations

import os
import re

from playwright.sync_api import expect

from bench import Bench
from visitor import PageAt, heap_bytes

LINES = 200_000
#: Lines in the document at once: those on the screen, and some above and below.
MOST_DRAWN = 200
#: Bytes of the tab; the log alone has over 8 MB.
MOST_HEAP = 25_000_000

WRITE = f"""seq -f 'step %.0f of a long run' {LINES // 2}
echo 'Traceback (most recent call last):'
seq -f 'step %.0f of a long run' {LINES // 2 + 2} {LINES}"""


def test_a_log_is_followed_while_it_grows(queue: Bench, page_at: PageAt) -> None:
    pipe = queue.folder / "pipe"
    os.mkfifo(pipe)
    job_id = queue.add(f"cat {pipe}", gpus=0)
    page = page_at(f"/job/{job_id}?tab=log")
    log = page.get_by_role("region", name="Log")
    expect(log.get_by_text("No output yet.")).to_be_visible()
    with open(pipe, "wb", buffering=0) as feed:
        feed.write(b"first line\n")
        expect(log.get_by_text("first line")).to_be_visible()
        feed.write(b"\x1b[32mgreen\x1b[0m\n10%\r55%\r100% of it\n")
        expect(log.get_by_text("green", exact=True)).to_be_visible()
        expect(log.get_by_text("100% of it")).to_be_visible()
        expect(log.get_by_text("55%")).to_have_count(0)
        expect(page.get_by_text("following")).to_be_visible()
    queue.until(job_id)
    expect(page.locator("main").get_by_text("done", exact=True).first).to_be_visible()
    expect(page.get_by_text("following")).to_have_count(0)


def test_of_a_log_of_200000_lines_only_a_screen_is_rendered(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(WRITE, gpus=0)
    queue.until(job_id)
    page = page_at(f"/job/{job_id}?tab=log")
    log = page.get_by_role("region", name="Log")
    expect(log.get_by_text(f"step {LINES} of a long run", exact=True)).to_be_visible()
    expect(log).to_have_attribute("data-lines", str(LINES))
    page.keyboard.press("t")
    expect(log.get_by_text("Traceback (most recent call last):")).to_be_visible()
    page.keyboard.press("b")
    expect(log.get_by_text("step 1 of a long run", exact=True)).to_be_visible()
    page.get_by_label("Find in the whole log").fill("step 77777 ")
    expect(log.locator(".log-line", has_text="step 77777 of a long run")).to_be_visible()
    assert page.locator(".log-line").count() < MOST_DRAWN
    assert heap_bytes(page) < MOST_HEAP


def test_lines_written_before_the_page_was_open_have_their_times_as_a_range(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add("echo early", gpus=0)
    queue.until(job_id)
    page = page_at(f"/job/{job_id}?tab=log")
    log = page.get_by_role("region", name="Log")
    expect(log.get_by_text("early")).to_be_visible()
    expect(log.locator(".log-time")).to_have_count(0)
    page.get_by_role("button", name="Times").click()
    time = log.locator(".log-time").first
    expect(time).to_have_text(re.compile(r"\d\d:\d\d"))
    expect(time).to_have_attribute("title", re.compile("Written between .* and "))
    expect(page).to_have_url(re.compile("times=1"))
    page.reload()
    expect(log.locator(".log-time").first).to_have_text(re.compile(r"\d\d:\d\d"))
