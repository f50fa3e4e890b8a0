"""Pages of other sites in a browser that is logged in: they change nothing and learn nothing."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from bench import Bench
from visitor import link_to

#: Everything that a page may try on another one; each returns what it got in a word, and must end by itself.
ATTEMPTS = """async (target) => {
  const job = JSON.stringify({command: "true", cwd: "/", gpus: 0});
  const read = async (path, how) => {
    try {
      const answer = await fetch(target + path, how);
      return `${answer.type} ${answer.status} ${(await answer.text()).length}`;
    } catch { return "refused"; }
  };
  const loaded = (tag, more) => new Promise((done) => {
    const one = {onload: () => done("loaded"), onerror: () => done("refused")};
    document.body.append(Object.assign(document.createElement(tag), one, more));
  });
  const blind = {method: "POST", mode: "no-cors"};
  const json = {"Content-Type": "application/json"};
  const socket = () => new Promise((done) => {
    const made = new WebSocket(target.replace("http", "ws") + "/v1/events");
    made.onopen = () => done("loaded");
    made.onerror = () => done("refused");
  });
  const source = () => new Promise((done) => {
    const made = new EventSource(target + "/v1/events");
    made.onopen = () => { made.close(); done("loaded"); };
    made.onerror = () => { made.close(); done("refused"); };
  });
  return {
    "json": await read("/v1/jobs", {method: "POST", headers: json, body: job}),
    "plain": await read("/v1/jobs", {...blind, headers: {"Content-Type": "text/plain"}, body: job}),
    "form": await read("/v1/queue", {...blind, body: new URLSearchParams({paused: "true"})}),
    "blob": await read("/v1/queue", {...blind, body: new Blob(['{"paused": true}'])}),
    "code": await read("/v1/session", {method: "POST", headers: json, body: '{"code": "x"}'}),
    "jobs": await read("/v1/jobs", {}),
    "with credentials": await read("/v1/jobs", {credentials: "include"}),
    "with a token": await read("/v1/jobs", {headers: {"Authorization": "Bearer x"}}),
    "opaque": await read("/v1/jobs", {mode: "no-cors"}),
    "page": await read("/", {}),
    "file": await read("/static/app.js", {}),
    "stop": await read("/v1/daemon/stop", {...blind, keepalive: true}),
    "beacon": (navigator.sendBeacon(target + "/v1/queue", '{"paused": true}'), "sent"),
    "script": await loaded("script", {src: target + "/v1/jobs"}),
    "module": await loaded("script", {type: "module", src: target + "/static/app.js"}),
    "style": await loaded("link", {rel: "stylesheet", href: target + "/static/app.css"}),
    "image": await loaded("img", {src: target + "/v1/gpus"}),
    "events": await source(),
    "socket": await socket(),
    "worker": await navigator.serviceWorker.register(target + "/static/app.js").then(() => "loaded", () => "refused"),
  };
}"""
#: A form that is sent to another site takes the browser there.
FORM = """(target) => {
  const how = {method: "post", action: target + "/v1/queue", enctype: "text/plain"};
  const form = Object.assign(document.createElement("form"), how);
  form.append(Object.assign(document.createElement("input"), {name: '{"paused": true, "x": "', value: '"}'}));
  document.body.append(form);
  form.submit();
}"""


class SilentSite(http.server.BaseHTTPRequestHandler):
    """A page of another site, and the headers of the requests it got."""

    def do_GET(self) -> None:
        """Answer with an empty page."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title><body>")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def evil() -> Iterator[int]:
    """The port of another site on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SilentSite) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def signed_in(queue: Bench, browser: Browser) -> Iterator[Page]:
    """A tab of the page that is logged in."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(link_to(queue))
    page.get_by_role("navigation").first.wait_for()
    yield page
    context.close()


def origin(page: Page) -> str:
    """Return the scheme, host and port of a tab."""
    where = urlsplit(page.url)
    return f"{where.scheme}://{where.netloc}"


def check_untouched(queue: Bench) -> None:
    """Check that nothing was changed."""
    assert queue.client.get("/v1/queue")["paused"] is False
    assert queue.client.get("/v1/jobs")["jobs"] == []
    assert queue.client.get("/v1/daemon")["running"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.localhost"])
def test_a_page_of_another_site_changes_and_learns_nothing(queue: Bench, signed_in: Page, evil: int, host: str) -> None:
    """Also one on the same host, whose cookies it would share, and on another port."""
    page = signed_in.context.new_page()
    page.goto(f"http://{host}:{evil}/")
    told = page.evaluate(ATTEMPTS, origin(signed_in))
    # Opaque answers cannot be read: no status, no length.
    assert {word for word in told.values() if word not in ("refused", "opaque 0 0", "sent")} == set(), told
    page.evaluate(FORM, origin(signed_in))
    page.wait_for_url(f"{origin(signed_in)}/**")
    assert "the request comes from a page of another site" in page.content()
    check_untouched(queue)


def test_a_page_that_opens_or_frames_ours_has_no_access_to_it(signed_in: Page, evil: int) -> None:
    page = signed_in.context.new_page()
    page.goto(f"http://127.0.0.1:{evil}/")
    with page.context.expect_page() as opening:
        page.evaluate("(target) => { window.kept = window.open(target + '/jobs'); }", origin(signed_in))
    opened = opening.value
    opened.wait_for_load_state()
    assert opened.evaluate("window.opener") is None
    # For the page that opened it, it is closed.
    page.wait_for_function("() => window.kept.closed")
    frame = page.evaluate(
        """(target) => new Promise((done) => {
          const made = document.createElement("iframe");
          made.onload = () => done(made.contentDocument === null ? "nothing" : "something");
          made.src = target + "/";
          document.body.append(made);
        })""",
        origin(signed_in),
    )
    assert frame == "nothing"
    assert page.frames[1].get_by_role("navigation").count() == 0


def test_a_page_under_another_host_name_of_this_machine_is_refused(queue: Bench, signed_in: Page) -> None:
    """As with a name server of an attacker: the same address and port, another name."""
    port = urlsplit(signed_in.url).port
    page = signed_in.context.new_page()
    answer = page.goto(f"http://rebound.localhost:{port}/")
    assert answer is not None
    assert answer.status == 403
    told = page.evaluate("async () => (await fetch('/v1/jobs')).status")
    assert told == 403
    check_untouched(queue)


def test_nothing_is_cached_in_the_browser(signed_in: Page) -> None:
    kept = signed_in.evaluate(
        """async () => [
          (await caches.keys()).length,
          (await navigator.serviceWorker.getRegistrations()).length,
          document.cookie,
          Object.values(localStorage).join(" ").includes("oken"),
        ]"""
    )
    assert kept == [0, 0, "", False]
    assert signed_in.context.cookies() == []
