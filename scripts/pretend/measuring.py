"""`scripts/measure-page`: what the page costs, in a real browser: bytes, time to the first row, updates, memory.

Times are medians of several loads, and CPU time where that can be had: on a busy machine read ratios.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, expect, sync_playwright

from bench import Bench, wait_for
from dibs import core, places
from pretend import crowd
from visiting import FLAGS, Visits, heap_bytes, link_to

WEB = Path(__file__).resolve().parents[2] / "src" / "dibs" / "web"
#: Bytes on the wire for the first load, at most.
MOST_BYTES = 60_000
LOADS = 5
FEW, MANY = 100, 100_000
#: Jobs on the timeline, and how often it is drawn anew.
SHOWN, UPDATES = 500, 50
#: An hour of one event a second: jobs that are held and let go, again and again.
EVENTS, AT_ONCE = 3600, 300

#: Notes when the first row of the table is in the document, before anybody could ask.
FIRST_ROW = """
new MutationObserver((_, watch) => {
  if (document.querySelector(".grid-body [role=row] a")) { window.firstRow = performance.now(); watch.disconnect(); }
}).observe(document, { childList: true, subtree: true });
"""


@contextlib.contextmanager
def queue(count: int) -> Iterator[Bench]:
    """Keep a queue with so many finished jobs."""
    with tempfile.TemporaryDirectory(prefix="dibs-measure-") as name:
        folder = Path(name)
        places.prepare(folder / "home")
        crowd.write(folder / "home", count, core.now_ms(), name)
        own = Bench(folder)
        own.start()
        try:
            yield own
        finally:
            own.close()


def first_load(browser: Browser, own: Bench) -> dict[str, int]:
    """Return the bytes on the wire of a first visit: by the tab, and by the worker that it starts."""
    page = browser.new_context().new_page()
    session = page.context.new_cdp_session(page)
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}
    session.on("Network.requestWillBeSent", lambda event: names.update({event["requestId"]: event["request"]["url"]}))
    session.on("Network.loadingFinished", lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}))
    session.send("Network.enable")
    page.goto(link_to(own))
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible(timeout=60_000)
    page.wait_for_timeout(1000)
    by_name = {names[key].split("/", 3)[3].split("?")[0]: int(size) for key, size in sizes.items()}
    files = {name: size for name, size in by_name.items() if not name.startswith("v1/")}
    page.context.close()
    return {
        "files": sum(files.values()),
        "answers": sum(by_name.values()) - sum(files.values()),
        "worker": sum(_zipped(name) for name in _modules("stream.worker.js") if f"static/{name}" not in files),
    }


def _modules(name: str) -> set[str]:
    """Return a module of the page and all that it imports. Nothing tells of what a shared worker loads."""
    text = (WEB / name).read_text()
    found = {name}
    for other in re.findall(r'^(?:import|export)[^;]*?from "\./([^"]+)"', text, re.MULTILINE):
        found |= _modules(other)
    return found


def _zipped(name: str) -> int:
    return len(gzip.compress((WEB / name).read_bytes()))


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


def _task_s(session: CDPSession) -> float:
    metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


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
    before = _task_s(session)
    canvas.evaluate(draw)
    return (_task_s(session) - before) * 1000 / UPDATES


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
    page.wait_for_timeout(3000)
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
            bytes_of = first_load(browser, own)
            few_ms = first_row_ms(browser, own)
        whole = bytes_of["files"] + bytes_of["worker"]
        print(f"first load: {whole} bytes on the wire (limit {MOST_BYTES}), and {bytes_of['answers']} of answers")
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
    return int(whole > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
