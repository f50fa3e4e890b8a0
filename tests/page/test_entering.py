"""Coming in: the link, the one stream of many tabs, a daemon that goes and comes back."""

from __future__ import annotations

from playwright.sync_api import expect

from bench import Bench
from visiting import Visits, link_to

#: More than a browser has connections to one host: with a stream each, the seventh tab would hang.
TABS = 10


def test_the_link_lets_in_once_and_leaves_no_trace(queue: Bench, visits: Visits) -> None:
    link = link_to(queue)
    page = visits.enter(link, "/jobs")
    expect(page).to_have_url(link.split("#")[0] + "jobs")
    code = link.split("code=")[1]
    assert code not in page.evaluate("() => JSON.stringify([history.state, document.cookie, {...localStorage}])")


def test_without_a_link_the_page_says_what_to_type(queue: Bench, visits: Visits) -> None:
    page = visits.context().new_page()
    page.goto(link_to(queue).split("#")[0])
    expect(page.get_by_text("dibs web").first).to_be_visible()
