"""One job in a browser: its log while it grows and at any size, search, links to lines, and actions."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from bench import Bench, wait_for
from visitor import PageAt, complaints

LINES = 200_000
#: Lines in the document at once: those on the screen, and some above and below.
MOST_LINES = 150


def line(page: Page, number: int) -> Locator:
    """Return a line of the log by its number."""
    return page.locator(".log-line", has=page.get_by_role("link", name=str(number), exact=True))


def shown(job_id: int, query: str = "") -> str:
    """Return the path of a job."""
    return f"/job/{job_id}{query}"


def test_a_live_log_is_followed_and_pauses_on_scrolling_up(queue: Bench, page_at: PageAt) -> None:
    more, gate = queue.folder / "more", queue.folder / "end"
    until = "while [ ! -e %s ]; do sleep 0.05; done"
    job_id = queue.add(f"seq 1 300; {until % more}; seq 301 310; {until % gate}", gpus=0)
    page = page_at(shown(job_id))
    expect(line(page, 300)).to_be_in_viewport()
    expect(page.get_by_text("following")).to_be_visible()
    page.get_by_label("Log", exact=True).hover()
    page.mouse.wheel(0, -1000)
    expect(page.get_by_role("button", name="↓ follow")).to_be_visible()
    more.touch()
    expect(page.get_by_role("button", name="↓ follow (10 new)")).to_be_visible()
    expect(line(page, 310)).to_have_count(0)
    page.get_by_role("button", name="↓ follow").click()
    expect(line(page, 310)).to_be_in_viewport()
    gate.touch()
    expect(page.get_by_text("done", exact=True).first).to_be_visible()


@pytest.fixture(scope="module")
def long_log(queue: Bench) -> int:
    """A finished job with 200,000 lines."""
    job_id = queue.add(
        f"seq 1 {LINES} | sed 's/^/step /'; echo 'Traceback (most recent call last):' >&2", gpus=0, name="long"
    )
    queue.until(job_id)
    return job_id


def test_a_long_log_is_shown_at_once_and_searched_completely(long_log: int, page_at: PageAt) -> None:
    page = page_at(shown(long_log))
    expect(page.get_by_text("step 200000")).to_be_in_viewport()
    expect(page.get_by_text(re.compile(r"^200.001 lines$"))).to_be_visible()
    assert page.locator(".log-line").count() < MOST_LINES
    page.keyboard.press("f")
    page.keyboard.type("step 1234")
    expect(page.get_by_text("1/111", exact=True)).to_be_visible()
    # All lines around the match are kept.
    expect(line(page, 1234)).to_be_in_viewport()
    expect(line(page, 1235)).to_be_in_viewport()
    page.keyboard.press("Shift+Enter")
    expect(page.get_by_text("111/111", exact=True)).to_be_visible()
    expect(line(page, 123499)).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_text("1/111", exact=True)).to_be_visible()
    page.get_by_role("button", name="Only matching lines").click()
    expect(line(page, 1235)).to_have_count(0)
    expect(line(page, 12340)).to_be_in_viewport()
    page.get_by_role("button", name="Only matching lines").click()
    page.get_by_role("button", name="First traceback").click()
    expect(line(page, LINES + 1)).to_be_in_viewport()


def test_a_link_to_lines_opens_there(long_log: int, page_at: PageAt) -> None:
    page = page_at("/jobs")
    base = page.url.split("/jobs")[0]
    page.goto(base + shown(long_log, "#L99999"))
    expect(line(page, 99_999)).to_be_in_viewport()
    expect(line(page, 99_999)).to_have_class(re.compile("is-linked"))
    expect(line(page, 99_999)).to_contain_text("step 99999")
    line(page, 100_002).get_by_role("link").click(modifiers=["Shift"])
    expect(page).to_have_url(re.compile("#L99999-L100002$"))
    expect(page.locator(".log-line.is-linked")).to_have_count(4)


TERMINAL = r"""printf '\033[31mred\033[0m and \033[1;38;2;10;200;30mgreen\033[0m\n'
printf '  0%%|   |\r 50%%|#  |\r100%%|###|\n'; printf '<img src=x onerror=alert(1)>\n'"""


def test_colours_and_progress_are_shown_as_in_a_terminal(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(TERMINAL, gpus=0, name="<b>bold</b>")
    queue.until(job_id)
    page = page_at(shown(job_id))
    expect(line(page, 1)).to_have_text("1red and green")
    ink = page.get_by_text("red", exact=True).evaluate("span => getComputedStyle(span).color")
    assert ink != line(page, 3).evaluate("row => getComputedStyle(row).color")
    expect(line(page, 2)).to_have_text("2100%|###|")
    expect(line(page, 3)).to_have_text("3<img src=x onerror=alert(1)>")
    expect(page.get_by_role("heading", name="<b>bold</b>")).to_be_visible()


def test_a_cancel_can_be_undone_and_is_sent_when_the_page_is_left(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.long_job(gpus=0)
    page = page_at(shown(job_id))
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_enabled()
    assert queue.job(job_id)["state"] == "running"
    page.keyboard.press("c")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_be_visible()
    page.goto("about:blank")
    wait_for(lambda: queue.job(job_id)["state"], lambda state: state == "cancelled")


def test_a_job_is_resubmitted_with_changes(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add("exit 3", gpus=0, name="again")
    queue.until(job_id)
    page = page_at(shown(job_id))
    page.get_by_role("button", name="Retry with changes").click()
    command = page.get_by_role("dialog").get_by_role("textbox", name="Command")
    expect(command).to_have_value("exit 3")
    command.fill("echo mended")
    page.get_by_role("button", name="Submit job").click()
    expect(page.get_by_text("mended", exact=True)).to_be_visible()
    assert [job["command"] for job in queue.jobs("name:again")] == ["exit 3", "echo mended"]


def test_each_attempt_has_its_own_log_and_row(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add('echo "attempt $DIBS_ATTEMPT"; exit 1', gpus=0)
    queue.until(job_id)
    page = page_at(shown(job_id))
    expect(line(page, 1)).to_have_text("1attempt 1")
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(line(page, 1)).to_have_text("1attempt 2")
    page.get_by_label("Attempt").select_option("1")
    expect(line(page, 1)).to_have_text("1attempt 1")
    page.get_by_role("link", name="Attempts (2)").click()
    expect(page.get_by_role("table").get_by_text("exit code 1")).to_have_count(2)
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_role("cell", name="retry requested")).to_be_visible()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_tab_is_accessible(queue: Bench, page_at: PageAt, colours: str) -> None:
    report = 'for n in 3 2 1; do echo "{\\"loss\\": $n}" >> "$DIBS_REPORT"; done'
    job_id = queue.add(f"{TERMINAL}; {report}; exit 1", gpus=1, name="seen", env={"LR": "1"})
    queue.until(job_id)
    page = page_at(shown(job_id), color_scheme=colours)
    expect(line(page, 3)).to_be_visible()
    assert complaints(page) == []
    for key, sight in (("2", "loss"), ("3", "LR=1"), ("4", "How it ended"), ("5", "failed: exit code 1")):
        page.keyboard.press(key)
        expect(page.get_by_text(sight).first).to_be_visible()
        assert complaints(page) == []


FAILS = (
    "for n in $(seq 200); do echo line $n; done; python3 -c 'raise ValueError(\"no such data\")'; "
    "for n in $(seq 200); do echo bye; done; exit 1"
)


def test_a_failed_job_opens_at_its_traceback_with_the_reason_on_top(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(FAILS, gpus=0, name="broken")
    queue.until(job_id)
    page = page_at(shown(job_id), viewport={"width": 1440, "height": 900})
    expect(page.get_by_role("note", name="Last line")).to_be_visible()
    expect(page.get_by_text("exit code 1").first).to_be_visible()
    expect(page.get_by_text("Traceback (most recent call last)")).to_be_in_viewport()
    expect(page.locator(".log-line.is-trace").first).to_contain_text("Traceback (most recent call last)")
    expect(page.locator(".log-line.is-cause")).to_have_text(re.compile("ValueError: no such data"))
    assert complaints(page) == []
    expect(line(page, 1)).to_have_count(0)


def test_metrics_stand_beside_the_log_over_steps_or_time(queue: Bench, page_at: PageAt) -> None:
    line_of = """printf '{"at": "%s", "step": %s, "loss": 0.%s}\\n' "$(date -u +%FT%T.%3NZ)" $((n * 100)) $n"""
    job_id = queue.add(f'for n in 1 2 3; do {line_of} >> "$DIBS_REPORT"; done', gpus=0)
    assert queue.until(job_id)["state"] == "done"
    page = page_at(shown(job_id), viewport={"width": 1440, "height": 900})
    chart = page.get_by_role("img", name="loss over steps, last 0.3")
    expect(chart).to_be_visible()
    expect(page.get_by_role("region", name="Log")).to_be_visible()
    page.get_by_role("button", name="Log scale").click()
    page.get_by_label("Smoothing").select_option("light")
    page.get_by_role("button", name="time", exact=True).click()
    expect(page.get_by_role("img", name="loss over time, last 0.3")).to_be_visible()
    assert re.search("x=time", page.url)
    assert complaints(page) == []
    # On a narrow screen it has the tab for itself.
    page.set_viewport_size({"width": 900, "height": 900})
    expect(page.get_by_role("img", name="loss over time, last 0.3")).to_have_count(0)


def test_a_running_job_is_duplicated(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.long_job(name="going", gpus=0)
    page = page_at(shown(job_id))
    expect(page.get_by_role("button", name="Retry with changes")).to_have_count(0)
    page.get_by_role("button", name="Duplicate").click()
    expect(page.get_by_role("dialog", name="New job").get_by_label("Name")).to_have_value("going")
    queue.cancel(job_id, grace_s=0)


def test_jobs_are_compared(queue: Bench, page_at: PageAt) -> None:
    ids = [queue.add(f"echo output {n}; : --lr 0.{n}", gpus=0, name="compared", tags=["c"]) for n in (1, 2)]
    for job_id in ids:
        queue.until(job_id)
    page = page_at("/jobs?name=compared")
    for job_id in ids:
        page.locator(f"#row-{job_id} .check").click()
    page.get_by_role("link", name="Compare", exact=True).click()
    table = page.get_by_role("table", name="What differs")
    expect(table.get_by_role("row", name="lr 0.1 0.2")).to_be_visible()
    expect(table.get_by_role("row", name="Tags")).to_have_count(0)
    page.get_by_role("button", name="Show equal values").click()
    expect(table.get_by_role("row", name="Tags")).to_have_count(1)
    for n, job_id in enumerate(ids, 1):
        expect(page.get_by_role("region", name=f"End of the log of job {job_id}")).to_contain_text(f"output {n}")
    assert complaints(page) == []
