"""What a large sweep costs on the page: its curves until they are drawn, a move of a brush, a move of the pointer."""

from __future__ import annotations

import json
import math
import random
import statistics
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page

from bench import Bench
from visitor import link_to

#: Moves of the pointer that are measured.
MOVES = 50
#: Loads of the page; times to the picture are their median.
LOADS = 5
#: A sweep as large as one looks at: runs, and points that each has reported.
RUNS, POINTS = 300, 2000
#: Notes when the curves are on the screen: two frames after the last of them was drawn.
LAST_STROKE = """
const stroke = CanvasRenderingContext2D.prototype.stroke;
let isComing = false;
CanvasRenderingContext2D.prototype.stroke = function (...words) {
  stroke.apply(this, words);
  if (isComing || !this.canvas.closest(".curves")) return;
  isComing = true;
  requestAnimationFrame(() => requestAnimationFrame(() => { isComing = false; window.drawnAt ??= performance.now(); }));
};
"""
#: The pointer draws a brush along the last axis; it moves over the curves.
BRUSH = """async canvas => {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const at = (type, y) => {
    const place = { clientX: left + width - 96, clientY: top + y, bubbles: true, pointerId: 1 };
    canvas.dispatchEvent(new PointerEvent(type, place));
  };
  canvas.setPointerCapture = () => {};
  at("pointerdown", height - 20);
  for (let n = 0; n < COUNT; n += 1) {
    at("pointermove", height - 20 - (n / COUNT) * (height - 40));
    await new Promise(requestAnimationFrame);
  }
  at("pointerup", 20);
}"""
HOVER = """async plot => {
  const { left, top, width, height } = plot.getBoundingClientRect();
  for (let n = 0; n < COUNT; n += 1) {
    const place = { clientX: left + 60 + (n / COUNT) * (width - 80), clientY: top + height * 0.8, bubbles: true };
    plot.dispatchEvent(new PointerEvent("pointermove", place));
    await new Promise(requestAnimationFrame);
  }
}"""
#: When the curves were asked for, when they had come, and when they were drawn.
TIMES = """() => {
  const one = performance.getEntriesByType("resource").filter((each) => each.name.includes("/curves")).at(-1);
  return [one.startTime, one.responseEnd, window.drawnAt];
}"""


def show(browser: Browser, own: Bench) -> None:
    """Measure and print it."""
    asked, drawn, brush, hover, points = curves_ms(browser, own, swept(own))
    print(f"curves: {RUNS} runs x {POINTS} points: {points} sent in {asked:.0f} ms, drawn {drawn:.0f} ms after that")
    print(f"        {brush:.1f} ms of the tab's thread for a move of a brush, {hover:.1f} ms for one of the pointer")


def swept(own: Bench) -> int:
    """Run a sweep whose runs each report many points; return its id."""
    files = own.folder / "reports"
    files.mkdir()
    for run in range(RUNS):
        chance = random.Random(run)
        low, speed = chance.uniform(0.2, 1.2), chance.uniform(150, 600)
        values = (low + 5 * math.exp(-step / speed) + chance.gauss(0, 0.03) for step in range(POINTS))
        lines = (json.dumps({"step": step, "loss": round(value, 5)}) + "\n" for step, value in enumerate(values))
        (files / f"{run}.jsonl").write_text("".join(lines))
    sweep = own.client.post(
        "/v1/sweeps", {"name": "wide", "command": "cp {run} {lr} {opt}", "metric": "loss", "goal": "minimize"}
    )
    chance = random.Random(0)
    points = [
        {
            "index": run,
            "params": {
                "lr": 10 ** chance.uniform(-5, -1),
                "wd": chance.random(),
                "opt": chance.choice("abc"),
                "bs": run % 4,
            },
            "command": f'mkdir -p "$(dirname "$DIBS_REPORT")" && cp {files}/{run}.jsonl "$DIBS_REPORT"',
        }
        for run in range(RUNS)
    ]
    own.client.post(f"/v1/sweeps/{sweep['id']}/points", {"points": points, "defaults": {"cwd": str(files), "gpus": 0}})
    own.wait_all(patience_s=300)
    return int(sweep["id"])


def curves_ms(browser: Browser, own: Bench, sweep: int) -> tuple[float, float, float, float, int]:
    """Return the milliseconds until the data came, until the picture, for a move of a brush and of the pointer; and
    the number of points."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.add_init_script(LAST_STROKE)
    page = context.new_page()
    address, code = link_to(own).split("/#")
    page.goto(f"{address}/sweep/{sweep}#{code}")
    times = []
    for _ in range(LOADS):
        page.wait_for_function("() => window.drawnAt > 0", timeout=60_000)
        times.append(page.evaluate(TIMES))
        page.reload()
    page.wait_for_function("() => window.drawnAt > 0", timeout=60_000)
    # The first answer is read from the files, later ones are kept.
    first = times[0][1] - times[0][0]
    drawn = statistics.median(drawn - ended for _, ended, drawn in times)
    query = [("metric", "loss")]
    points = sum(len(each["x"]) for each in own.client.get(f"/v1/sweeps/{sweep}/curves", query)["curves"])
    brush = _moves_ms(page, ".parallel canvas:not(.over)", BRUSH)
    hover = _moves_ms(page, ".curves .plot", HOVER)
    context.close()
    return first, drawn, brush, hover, points


def _moves_ms(page: Page, selector: str, moves: str) -> float:
    """Return the milliseconds of the tab's thread for one move of the pointer."""
    target = page.locator(selector).first
    target.scroll_into_view_if_needed()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = task_s(session)
    target.evaluate(moves.replace("COUNT", str(MOVES)))
    return (task_s(session) - before) * 1000 / MOVES


def task_s(session: CDPSession) -> float:
    metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))
