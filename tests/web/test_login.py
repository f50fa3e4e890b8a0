"""Login: the link, the one stream of many tabs, a daemon that stops and comes back."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Request, expect

import ssh_server
from bench import Bench
from visitor import Visits, link_to

#: More than a browser has connections to one host: with a stream each, the seventh tab would hang.
TABS = 10


def test_the_link_works_once_and_leaves_no_trace(queue: Bench, visits: Visits) -> None:
    # Filters are offered where there is something to filter.
    queue.add(["true"], hold=True)
    link = link_to(queue)
    page = visits.enter(link, "/jobs")
    expect(page).to_have_url(link.split("#")[0] + "jobs")
    # What a filter writes into the address must not bring the code back.
    page.get_by_role("group", name="State").get_by_role("button", name="Done").click()
    expect(page).to_have_url(link.split("#")[0] + "jobs?state=done")
    code = link.split("code=")[1]
    assert code not in page.evaluate("() => JSON.stringify([history.state, document.cookie, {...localStorage}])")


def test_a_second_tab_needs_no_link(queue: Bench, visits: Visits) -> None:
    link = link_to(queue)
    first = visits.enter(link, "/jobs")
    second = first.context.new_page()
    second.goto(link.split("#")[0] + "gpus")
    expect(second.get_by_role("status").get_by_text("live", exact=True)).to_be_visible()


def test_ten_tabs_are_live_at_once(queue: Bench, visits: Visits) -> None:
    """With a stream for each, the seventh would hang: a browser has six connections to one host."""
    link = link_to(queue)
    first = visits.enter(link, "/jobs?name=for-all-tabs")
    tabs = [first] + [first.context.new_page() for _ in range(TABS - 1)]
    for tab in tabs[1:]:
        tab.goto(link.split("#")[0] + "jobs?name=for-all-tabs")
    for tab in tabs:
        expect(tab.get_by_role("status").get_by_text("live", exact=True)).to_be_visible()
    queue.add(["true"], name="for-all-tabs", hold=True)
    for tab in tabs:
        expect(tab.get_by_role("link", name="for-all-tabs").or_(tab.get_by_text("1 new"))).to_be_visible()


#: A browser without shared workers, whose tab can be marked as hidden.
WITHOUT_WORKERS = """() => {
  delete window.SharedWorker;
  let seen = "visible";
  Object.defineProperty(document, "visibilityState", { get: () => seen, configurable: true });
  window.show = (state) => { seen = state; document.dispatchEvent(new Event("visibilitychange")); };
}"""


def is_stream(request: Request) -> bool:
    """Return whether a request is for the event stream."""
    return "/v1/events" in request.url


def test_without_shared_workers_a_tab_listens_only_while_it_is_visible(queue: Bench, visits: Visits) -> None:
    context = visits.context()
    context.add_init_script(f"({WITHOUT_WORKERS})()")
    page = visits.enter(link_to(queue), "/jobs?name=alone*", context)
    live = page.get_by_role("status").get_by_text("live", exact=True)
    expect(live).to_be_visible()
    assert page.evaluate("() => typeof SharedWorker") == "undefined"
    queue.add(["true"], name="alone-1", hold=True)
    expect(page.get_by_role("link", name="alone-1").or_(page.get_by_text("1 new")).first).to_be_visible()
    # A hidden tab releases its connection, for a browser has only six of them.
    with page.expect_event("requestfailed", is_stream):
        page.evaluate("() => show('hidden')")
    queue.add(["true"], name="alone-2", hold=True)
    # Events of the meantime are not missed.
    with page.expect_request(is_stream):
        page.evaluate("() => show('visible')")
    expect(page.get_by_role("link", name="alone-2").or_(page.get_by_text(re.compile("[12] new"))).first).to_be_visible()
    # The tab itself keeps the token.
    page.reload()
    expect(page.get_by_role("link", name="alone-2")).to_be_visible()
    expect(live).to_be_visible()


def test_a_daemon_that_comes_back_is_followed_again(queue: Bench, visits: Visits) -> None:
    job_id = queue.add(["true"], name="patient", hold=True)
    page = visits.enter(link_to(queue), "/jobs?name=patient")
    live = page.get_by_role("status").get_by_text("live", exact=True)
    expect(live).to_be_visible()
    # Live means the stream only: the list is a separate request, which must not meet a daemon that is gone.
    expect(page.get_by_role("link", name="patient")).to_be_visible()
    visits.may_be_away = True
    queue.stop()
    expect(page.get_by_role("alert").get_by_text("This page shows the last known state.")).to_be_visible()
    expect(page.locator("main.stale").get_by_role("link", name="patient")).to_be_visible()
    queue.start()
    expect(live).to_be_visible()
    expect(page.locator("main.stale")).to_have_count(0)
    queue.cancel(job_id)
    expect(page.get_by_role("gridcell").get_by_text("cancelled")).to_be_visible()


def test_without_a_link_the_page_shows_what_to_type(queue: Bench, visits: Visits) -> None:
    page = visits.context().new_page()
    page.goto(link_to(queue).split("#")[0])
    expect(page.get_by_text("dibs web").first).to_be_visible()


@ssh_server.is_needed
def test_through_ssh_the_printed_command_and_link_work(queue: Bench, visits: Visits, tmp_path: Path) -> None:
    with ssh_server.tunnel(queue, tmp_path / "ssh") as told:
        page = visits.enter(told["link"], "/jobs?name=through-ssh")
        expect(page.get_by_role("status").get_by_text("live", exact=True)).to_be_visible()
        queue.add(["true"], name="through-ssh", hold=True)
        expect(page.get_by_role("link", name="through-ssh").or_(page.get_by_text("1 new"))).to_be_visible()
        # The tunnel ends with the test: errors of the page after that do not count.
        visits.close()
