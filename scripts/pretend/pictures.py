"""`scripts/screenshots`: every page of the demo at three widths, light and dark; the best of them for the documents."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from dibs.client import connection
from pretend import __main__ as demo
from pretend import day
from visitor import FLAGS

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
#: Pixels: a desk, a small laptop, a phone.
SIZES = {1440: 1000, 1024: 768, 390: 844}
SCHEMES = ("light", "dark")
#: The pictures that the documents show: page, width, colours.
BEST = (
    ("overview", 1440, "light"),
    ("overview", 1440, "dark"),
    ("overview", 390, "dark"),
    ("jobs", 1440, "light"),
    ("job", 1440, "dark"),
    ("failed", 1440, "light"),
    ("compare", 1440, "light"),
    ("sweep", 1440, "light"),
    ("sweep", 1440, "dark"),
    ("gpus", 1440, "dark"),
    ("usage", 1440, "light"),
    ("submit", 1440, "light"),
)
#: Bytes of a picture, at most: they are in every clone.
MOST_BYTES = 150_000
#: 64 colours are enough for a page; without this a picture has 250 kB.
SHRINK = ("pngquant", "--force", "--speed", "1", "--strip", "64")
#: What the submit dialog shows: a sweep of three values.
DRAFT = {
    "Command": "python train.py --lr {lr} --seed {seed}",
    "Values of lr": "1e-3, 3e-4, 1e-4",
    "Values of seed": "0, 1",
}


def paths(ids: dict[str, int], sweeps: dict[str, int]) -> dict[str, str]:
    """Return the pages to be taken, by the name of their picture. Settings show paths of the machine, so not those."""
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/job/{ids['diffusion-202']}",
        "failed": f"/job/{ids['vit-lr-8']}",
        "compare": f"/compare?jobs={','.join(str(ids[f'seeds-{n}']) for n in (0, 5, 10))}",
        "sweeps": "/sweeps",
        "sweep": f"/sweep/{sweeps[day.RUN.name]}",
        "gpus": "/gpus",
        "gpu": "/gpu/6",
        "people": "/people",
        "usage": "/usage?by=sweep",
        "submit": "/jobs",
    }


def enter(folder: Path, browser: Browser, scheme: str, width: int) -> Page:
    """Come in through the link, as anybody would."""
    told = subprocess.run([*demo.DIBS, "web", "--json"], env=demo.environ(folder), capture_output=True, check=True)
    size = {"width": width, "height": SIZES[width]}
    page = browser.new_context(color_scheme=scheme, viewport=size).new_page()  # type: ignore[arg-type]
    page.goto(json.loads(told.stdout)["link"])
    expect(page.get_by_role("navigation").first).to_be_visible(timeout=60_000)
    return page


def take(page: Page, kind: str, path: str, file: Path, *, is_whole: bool = False) -> int:
    """Take one picture and make it small; return its bytes."""
    address = "/".join(page.url.split("/")[:3])
    page.goto(address + path)
    expect(page.locator("main:not([aria-busy])")).to_be_visible(timeout=60_000)
    if kind == "submit":
        page.keyboard.press("n")
        for label, text in DRAFT.items():
            page.get_by_role("dialog").get_by_label(label, exact=True).fill(text)
        expect(page.get_by_text(re.compile("^It would start"))).to_be_visible(timeout=60_000)
    # Charts are drawn when their answers are there; no element tells of that, and a picture may be late.
    page.wait_for_timeout(1800)
    page.screenshot(path=file, full_page=is_whole)
    subprocess.run([*SHRINK, "--output", file, "--", file], check=True)
    return file.stat().st_size


@contextlib.contextmanager
def started(folder: Path | None) -> Iterator[tuple[Path, dict[str, int]]]:
    """Yield a demo and the ids of its jobs by name: the one that is there, or one that ends with the pictures."""
    if folder is not None:
        jobs = connection.Client(folder / "home", demo.environ(folder)).get("/v1/jobs", [("limit", "1000")])["jobs"]
        yield folder, {job["name"]: int(job["id"]) for job in jobs}
        return
    with tempfile.TemporaryDirectory(prefix="dibs-pictures-") as name:
        own = Path(name) / "demo"
        ids = demo.start(own)
        try:
            yield own, ids
        finally:
            demo.stop(own)


def main(words: list[str]) -> int:
    """Make the pictures of the documents; with --all every page at every width, or those that are named."""
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="only these pages")
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="every page, width and theme, into this folder")
    parser.add_argument("--demo", metavar="FOLDER", type=Path, help="a demo that is there already")
    parser.add_argument("--width", type=int, choices=SIZES, action="append", help="only this width")
    parser.add_argument("--scheme", choices=SCHEMES, action="append", help="only these colours")
    parser.add_argument("--whole", action="store_true", help="the whole page, not one screen of it")
    args = parser.parse_args(words)
    for program, package in (("chromium", "chromium"), ("pngquant", "pngquant")):
        if shutil.which(program) is None:
            print(f"scripts/screenshots: expected {program}; on Debian: apt install {package}", file=sys.stderr)
            return 1
    folder = args.all or PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    too_large = []
    with started(args.demo) as (own, ids), sync_playwright() as playwright:
        found = connection.Client(own / "home", demo.environ(own)).get("/v1/sweeps")["sweeps"]
        pages = paths(ids, {sweep["name"]: int(sweep["id"]) for sweep in found})
        wanted = BEST if args.all is None else [(kind, w, s) for s in SCHEMES for w in SIZES for kind in pages]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        for scheme in args.scheme or SCHEMES:
            for width in args.width or SIZES:
                kinds = [kind for kind, w, s in wanted if (w, s) == (width, scheme)]
                kinds = [kind for kind in kinds if not args.names or kind in args.names]
                page = enter(own, browser, scheme, width) if kinds else None
                for kind in kinds:
                    assert page is not None
                    file = folder / f"{kind}-{width}-{scheme}.png"
                    size = take(page, kind, pages[kind], file, is_whole=args.whole)
                    print(f"{file.name}  {size / 1000:.0f} kB", flush=True)
                    too_large += [file.name] if size > MOST_BYTES and args.all is None else []
                if page is not None:
                    page.context.close()
        browser.close()
    if too_large:
        print(f"scripts/screenshots: over {MOST_BYTES} bytes: {', '.join(too_large)}", file=sys.stderr)
    return bool(too_large)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
