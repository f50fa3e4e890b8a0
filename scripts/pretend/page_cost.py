"""`scripts/measure-page`: what the page costs, in a real browser: bytes, time to the first row, updates, memory.

Times are medians of several loads, and CPU time where it can be measured: on a busy machine read ratios.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench import Bench, wait_for
from dibs.jobqueue import thread
from dibs.system import paths
from pretend import crowd, sweep_cost
from visitor import FLAGS, Visits, heap_bytes, link_to

WEB = Path(__file__).resolve().parents[2] / "src" / "dibs" / "web"
WORKER = "core/stream.worker.js"
#: Bytes on the wire for the first load, at most: compressed files, and the headers of their answers.
MOST_BYTES = 70_000
LOADS = 5
FEW, MANY = 100, 100_000
#: Jobs on the timeline, and how often it is drawn anew.
SHOWN, UPDATES = 500, 50
#: An hour of one event a second: jobs that are held and released, again and again.
EVENTS, AT_ONCE = 3600, 300

#: Notes when the first row of the table is in the document, before anybody could ask.
FIRST_ROW = """
new MutationObserver((_, watch) => {
  if (document.querySelector(".grid-body [role=row] a")) { window.firstRow = performance.now(); watch.disconnect(); }
}).observe(document, { childList: true, subtree: true });
"""


@contextlib.contextmanager
def queue(count: int) -> Iterator[Bench]:
    """Keep a queue with many finished jobs."""
    with tempfile.TemporaryDirectory(prefix="dibs-measure-") as name:
        folder = Path(name)
        paths.prepare(folder / "home")
        crowd.write(folder / "home", count, thread.now_ms(), name)
        own = Bench(folder)
        own.start()
        try:
            yield own
        finally:
            own.close()


@dataclass(frozen=True)
class Load:
    """What a first visit loads: by file the bytes of the compressed body, and those of the headers before it."""

    bodies: dict[str, int]
    headers: dict[str, int]


def first_load(browser: Browser, own: Bench) -> Load:
    """Measure a first visit: the browser tells which files, and each is then fetched to count its bytes.

    What the browser itself tells of sizes mixes headers and bodies, and is 0 for some files.
    """
    context = browser.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    link = link_to(own)
    page.goto(link)
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible(timeout=60_000)
    page.wait_for_load_state("load")
    context.close()
    paths = {"/" + url.split("/", 3)[3].split("?")[0].split("#")[0] for url in asked}
    # Nothing tells of what a shared worker loads.
    files = {path for path in paths if not path.startswith("/v1/")} | {f"/static/{name}" for name in _modules(WORKER)}
    sizes = {path: _size(link.split("/")[2], path) for path in sorted(files)}
    return Load({path: size[0] for path, size in sizes.items()}, {path: size[1] for path, size in sizes.items()})


def _modules(name: str) -> set[str]:
    """Return a module of the page and all that it imports."""
    found = {name}
    for other in re.findall(r'^(?:import|export)[^;]*?from "(\.[^"]+)"', (WEB / name).read_text(), re.MULTILINE):
        found |= _modules((WEB / name).parent.joinpath(other).resolve().relative_to(WEB).as_posix())
    return found


def _size(host: str, path: str) -> tuple[int, int]:
    """Return the bytes of the body of a file as a browser gets it, and of the headers before it."""
    connection = http.client.HTTPConnection(host)
    try:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise SystemExit(f"scripts/measure-page: expected 200 for {path}, got {answer.status}.")
    head = sum(len(name) + len(value) + len(": \r\n") for name, value in answer.getheaders())
    return len(body), head + len("HTTP/1.1 200 OK\r\n\r\n")


def first_row_ms(browser: Browser, own: Bench) -> float:
    """Return the milliseconds from the address to the first row of the table, as the page sees them."""
    found = []
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(FIRST_ROW)
    page.goto(link_to(own).replace("/#", "/jobs#"))
    for _ in range(LOADS):
        page.wait_for_function("() => window.firstRow", timeout=60_000)
        found.append(float(page.evaluate("() => window.firstRow")))
        page.reload()
    context.close()
    return statistics.median(found)


def timeline_ms(page: Page) -> float:
    """Return the milliseconds of the tab's thread for one new picture of the timeline."""
    canvas = page.get_by_role("img", name=re.compile("What ran"))
    canvas.scroll_into_view_if_needed()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    draw = """async canvas => {
      const { left, top, width } = canvas.getBoundingClientRect();
      for (let n = 0; n < COUNT; n += 1) {
        const at = { clientX: left + width / 2, clientY: top + 20, deltaY: n % 2 ? 40 : -40, cancelable: true };
        canvas.dispatchEvent(new WheelEvent("wheel", at));
        await new Promise(requestAnimationFrame);
      }
    }""".replace("COUNT", str(UPDATES))
    before = sweep_cost.task_s(session)
    canvas.evaluate(draw)
    return (sweep_cost.task_s(session) - before) * 1000 / UPDATES


def hour_of_events(page: Page, own: Bench) -> tuple[int, int]:
    """Return the bytes that the tab keeps before and after an hour of events, which come as fast as they can."""
    held = own.add_many([{"command": "true"}] * AT_ONCE, gpus=0, hold=True)
    shown = page.get_by_text(re.compile("live"))
    expect(shown.first).to_be_visible(timeout=60_000)
    before = heap_bytes(page)
    own.client.post("/v1/queue", {"paused": True})
    for round_ in range(EVENTS // AT_ONCE):
        verb = "hold" if round_ % 2 else "unhold"
        own.client.post("/v1/jobs/actions", {"verb": verb, "select": [f"{held[0]}-{held[-1]}"]})
    last = EVENTS // AT_ONCE % 2
    wait_for(lambda: own.client.get("/v1/jobs")["counts"]["queued" if last else "held"], lambda n: n == AT_ONCE)
    # The tab has heard the last of them: it offers to release what is held.
    expect(page.get_by_role("button", name=re.compile("^Release job")).first).to_be_visible(timeout=60_000)
    return before, heap_bytes(page)


def main() -> int:
    """Measure and print all of it; exits 1 when the first load is too large."""
    program = shutil.which("chromium")
    if program is None:
        print("scripts/measure-page: expected chromium; on Debian: apt install chromium", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        with queue(FEW) as own:
            load = first_load(browser, own)
            few_ms = first_row_ms(browser, own)
        body, head = sum(load.bodies.values()), sum(load.headers.values())
        print(f"first load: {body + head} bytes on the wire (limit {MOST_BYTES})")
        print(f"            {body} in {len(load.bodies)} compressed files, {head} in the headers of their answers")
        for path, size in sorted(load.bodies.items(), key=lambda one: -one[1])[:6]:
            print(f"            {size:6} {path}")
        with queue(1) as own:
            sweep_cost.show(browser, own)
        with queue(MANY) as own:
            many_ms = first_row_ms(browser, own)
        print(f"first row: {few_ms:.0f} ms at {FEW} jobs, {many_ms:.0f} ms at {MANY}; ratio {many_ms / few_ms:.2f}")
        with queue(SHOWN) as own:
            visits = Visits(browser)
            page = visits.enter(link_to(own), "/?range=7d")
            print(f"timeline: {timeline_ms(page):.1f} ms of the tab's thread for an update, {SHOWN} jobs on it")
            before, after = hour_of_events(page, own)
            visits.close()
        print(f"memory: {before / 1e6:.1f} MB of scripts at first, {after / 1e6:.1f} MB after {EVENTS} events")
        browser.close()
    return int(body + head > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
