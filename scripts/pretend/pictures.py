"""`scripts/screenshots`: each page of the demo, light and dark, as small pictures for the documents."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from dibs.client import connection
from pretend import __main__ as demo
from pretend import day
from visitor import FLAGS

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 1400, 1000
#: Bytes of a picture, at most: they are in every clone.
MOST_BYTES = 150_000
#: 64 colours are enough for a page; without this a picture has 250 kB.
SHRINK = ("pngquant", "--force", "--speed", "1", "--strip", "64")


def paths(ids: dict[str, int], sweeps: dict[str, int]) -> dict[str, str]:
    """Return the pages to be taken, by the name of their picture. Settings show paths of the machine, so not those."""
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/job/{ids['diffusion-202']}",
        "sweeps": "/sweeps",
        "sweep": f"/sweep/{sweeps[day.RUN.name]}",
        "gpus": "/gpus",
        "usage": "/usage?by=sweep",
    }


def enter(folder: Path, browser: Browser, scheme: str) -> Page:
    """Come in through the link, as anybody would."""
    told = subprocess.run([*demo.DIBS, "web", "--json"], env=demo.environ(folder), capture_output=True, check=True)
    page = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT}).new_page()  # type: ignore[arg-type]
    page.goto(json.loads(told.stdout)["link"])
    expect(page.get_by_role("navigation").first).to_be_visible(timeout=60_000)
    return page


def take(page: Page, path: str, file: Path) -> int:
    """Take one picture and make it small; return its bytes."""
    address = "/".join(page.url.split("/")[:3])
    page.goto(address + path)
    expect(page.locator("main:not([aria-busy])")).to_be_visible(timeout=60_000)
    # Charts are drawn when their answers are there; no element tells of that, and a picture may be late.
    page.wait_for_timeout(2500)
    page.screenshot(path=file)
    subprocess.run([*SHRINK, "--output", file, "--", file], check=True)
    return file.stat().st_size


def main(words: list[str]) -> int:
    """Make all pictures, or those that are named."""
    for program, package in (("chromium", "chromium"), ("pngquant", "pngquant")):
        if shutil.which(program) is None:
            print(f"scripts/screenshots: expected {program}; on Debian: apt install {package}", file=sys.stderr)
            return 1
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dibs-pictures-") as name, sync_playwright() as playwright:
        folder = Path(name) / "demo"
        ids = demo.start(folder)
        try:
            found = connection.Client(folder / "home", demo.environ(folder)).get("/v1/sweeps")["sweeps"]
            sweeps = {sweep["name"]: int(sweep["id"]) for sweep in found}
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
            too_large = []
            for scheme in ("light", "dark"):
                page = enter(folder, browser, scheme)
                for kind, path in paths(ids, sweeps).items():
                    if words and kind not in words:
                        continue
                    file = PICTURES / f"{kind}-{scheme}.png"
                    size = take(page, path, file)
                    print(f"{file.relative_to(PICTURES.parents[1])}  {size / 1000:.0f} kB")
                    too_large += [file.name] if size > MOST_BYTES else []
            browser.close()
        finally:
            demo.stop(folder)
    if too_large:
        print(f"scripts/screenshots: over {MOST_BYTES} bytes: {', '.join(too_large)}", file=sys.stderr)
    return bool(too_large)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
