"""What holds on every page: it is accessible, nothing that came from a job is executed, keys lead everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bench import Bench, wait_for
from fakes.nvml import world
from visitor import PageAt, Visits, complaints, link_to

ROUTES = Path(__file__).parents[2] / "src" / "dibs" / "web" / "routes.js"

#: Each would set `window.hurt`, or become an extra element, if any page treated text as more than text.
PAYLOADS = (
    "<script>window.hurt=1</script>",
    "<img src=/static/none onerror=window.hurt=1>",
    '"><svg onload=window.hurt=1>',
    "'-window.hurt=1-'",
    "javascript:window.hurt=1",
    "${window.hurt=1}{{constructor.constructor('window.hurt=1')()}}",
    "\x1b]8;;javascript:window.hurt=1\x07here\x1b]8;;\x07",
    "‮gnp.exe",
)
SWEEP = "<img onerror=window.hurt=1>"
#: In a name of the fake driver a blank is written as "_", and a name has 95 characters at most.
GPU_NAME = "<img_src=/static/none_onerror=window.hurt=1>"
#: A log with all of them, and the results of colours and of a progress bar.
COMPARE = "/compare?jobs=1,2"
LOG, LOG_TEXT = "/job/1?tab=log", "red <b>bold</b>"
#: A hostile text that each page must show.
SHOWN = {
    LOG: LOG_TEXT,
    "/": PAYLOADS[1],
    "/jobs": PAYLOADS[1],
    "/compare": "Choose two to eight jobs",
    COMPARE: PAYLOADS[0],
    "/job/1": PAYLOADS[0],
    "/sweeps": SWEEP,
    "/sweep/1": SWEEP,
    "/gpus": GPU_NAME.replace("_", " "),
    "/gpu/0": GPU_NAME.replace("_", " "),
    "/people": "Everyone on this machine",
    "/usage": PAYLOADS[1],
    "/settings": GPU_NAME.replace("_", " "),
}


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Bench]:
    """A queue in which every user-defined text is hostile: jobs, logs, a sweep, the names of GPUs."""
    folder = tmp_path_factory.mktemp("hostile")
    nvml = world.World(library, folder / "state.txt")
    nvml.is_now(*(f"gpu {index} name={GPU_NAME} total=85899345920" for index in range(2)))
    own = Bench(folder, "", **nvml.environ)
    own.start()
    (folder / "log.txt").write_text("\n".join(PAYLOADS) + "\n\x1b[31m" + LOG_TEXT + "\x1b[0m\n50%\r100%\n")
    ended = [
        own.add(["sh", "-c", "cat log.txt; exit 3", text], name=text, project=text, tags=[text], gpus=0)
        for text in PAYLOADS
    ]
    for job_id in ended:
        own.until(job_id)
    own.long_job(name=PAYLOADS[1], project=PAYLOADS[1], gpus=1)
    own.add(["sleep", "1000"], name=PAYLOADS[2], gpus=2)
    sweep = own.client.post("/v1/sweeps", {"name": SWEEP, "command": "echo {x}", "metric": "<b>"})
    points = [{"index": n, "params": {"<x>": text}, "command": "true"} for n, text in enumerate(PAYLOADS)]
    own.client.post(f"/v1/sweeps/{sweep['id']}/points", {"points": points, "defaults": {"cwd": str(folder), "gpus": 0}})
    own.client.post("/v1/gpus/1/drain", {"reason": PAYLOADS[0]})
    wait_for(
        lambda: own.client.get("/v1/jobs", [("select", "sweep:*")])["jobs"],
        lambda jobs: all(j["finished_at"] for j in jobs),
    )
    yield own
    own.close()


def paths() -> list[str]:
    """Return every path of the page that has content, from its own table of routes."""
    found = re.findall(r'path: "([^"]+)"', ROUTES.read_text())
    return [path.replace("{id}", "0" if path.startswith("/gpu/") else "1") for path in found]


def go(page: Page, path: str) -> None:
    """Go to a path, and wait until the hostile text of that page is visible: otherwise the test proves nothing."""
    page.goto("/".join(page.url.split("/")[:3]) + path)
    expect(page.locator("main:not([aria-busy])").get_by_text(SHOWN[path]).locator("visible=true").first).to_be_visible()


def test_every_page_is_visited() -> None:
    assert {*paths(), LOG, COMPARE} == set(SHOWN)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_texts_stay_text_and_axe_finds_no_violation(scheme: str, queue: Bench, visits: Visits) -> None:
    """One visit for both: each costs a second, and hostile text must be readable too."""
    page = visits.enter(link_to(queue), color_scheme=scheme)
    for path in (*paths(), LOG, COMPARE):
        go(page, path)
        assert complaints(page) == [], path
        assert page.evaluate("() => window.hurt") is None, path
        assert page.locator("main img, main script, main iframe, main [onerror], main [onload]").count() == 0, path
        assert page.locator("main a[href^='javascript']").count() == 0, path


def test_on_a_phone_nothing_is_wider_than_the_screen(page_at: PageAt) -> None:
    page = page_at("/", viewport={"width": 390, "height": 800})
    for path in paths():
        go(page, path)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), path


def test_no_page_is_longer_than_ten_screens_of_a_phone(page_at: PageAt) -> None:
    page = page_at("/", viewport={"width": 390, "height": 844})
    for path in (*paths(), LOG, COMPARE):
        go(page, path)
        assert page.evaluate("() => document.documentElement.scrollHeight") <= 10 * 844, path


def test_keys_lead_to_every_page_and_are_listed(page_at: PageAt) -> None:
    page = page_at("/")
    for path, keys in re.findall(r'path: "([^"]+)".*key: "([^"]+)"', ROUTES.read_text()):
        for key in keys.split(" "):
            page.keyboard.press(key)
        expect(page).to_have_url(re.compile(re.escape(path) + r"(\?.*)?$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
