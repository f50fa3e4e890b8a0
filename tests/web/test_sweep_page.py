"""The pages of sweeps: brushes and the table, ranks, seeds, CSV."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bench import Bench, wait_for
from visitor import PageAt, complaints

#: Six parameters times two seeds; at the end the metric is best for a=3, on the way there it was best for a=0.
COMMAND = "echo acc $((20 - {a})).0; echo {kind} acc $((10 - ({a} - 3) * ({a} - 3))).{seed}"
SWEEP = ("sweep", COMMAND, "--name", "depths", "--metric", r"acc=acc (\S+)", "--goal", "max", "-g", "0")
POINTS = ("-p", "a=0,1,2,3,4,5", "-p", "seed=1,2", "-p", "kind=plain")


@pytest.fixture(scope="module", autouse=True)
def swept(queue: Bench) -> Bench:
    """A queue with a finished sweep of twelve runs: always the first one, whichever test a worker runs first."""
    done = queue.cli(*SWEEP, *POINTS)
    assert done.returncode == 0, done.stderr
    queue.wait_all()
    return queue


def rows(page: Page) -> list[str]:
    """Return the text of the table's rows."""
    return page.get_by_role("table", name=re.compile("^Runs")).locator("tbody tr").all_inner_texts()


def more(page: Page) -> None:
    """Open the menu of the sweep."""
    page.locator("main summary").click()


def test_the_list_of_sweeps_links_to_the_sweep(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweeps")
    expect(page.get_by_role("img", name="12 done")).to_be_visible()
    expect(page.get_by_text("acc 10.2")).to_be_visible()
    page.get_by_role("link", name="depths").click()
    expect(page.get_by_role("heading", name="depths")).to_be_visible()


def test_the_best_run_comes_first_with_a_star(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/1")
    expect(page.get_by_role("img", name="best", exact=True)).to_be_visible()
    first, second, *_ = rows(page)
    assert "★" in first
    assert re.search(r"\b3\s+2\s+10\.2", first), first
    assert "10.1" in second
    # Constant parameters are hidden by default.
    expect(page.get_by_role("columnheader", name="kind")).to_have_count(0)
    page.get_by_role("button", name="all columns").click()
    expect(page.get_by_role("columnheader", name="kind")).to_have_count(1)


def test_runs_are_compared_by_their_last_best_or_mean_value(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/1")
    first = page.get_by_role("table", name="Runs").locator("tbody tr").first
    expect(first).to_contain_text(re.compile(r"done3210\.2"))
    page.get_by_role("button", name="best", exact=True).click()
    expect(first).to_contain_text(re.compile(r"done0120"))
    expect(page.get_by_role("columnheader", name="acc (max, best of each run)")).to_be_visible()
    page.get_by_role("button", name="mean", exact=True).click()
    expect(first).to_contain_text(re.compile(r"done2213\.6"))
    # It is in the link.
    page.reload()
    expect(first).to_contain_text(re.compile(r"done2213\.6"))


def test_a_brush_filters_the_table_and_stays_in_the_link(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/1")
    expect(page.locator("tbody tr")).to_have_count(12)
    # What stands above the axes has its height when the answer about curves is there.
    expect(page.get_by_text("No run has reported acc over time")).to_be_visible()
    canvas = page.locator(".parallel canvas:not(.over)")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    # Along the last axis, the metric, from its top to a little below.
    x = box["x"] + box["width"] - 96
    page.mouse.move(x, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(x, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page.get_by_text(re.compile("of 12 within the brushes"))).to_be_visible()
    kept = page.locator("tbody tr").count()
    assert 0 < kept < 12
    assert "brush=acc" in page.url
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(kept)
    page.get_by_role("button", name="clear").click()
    expect(page.locator("tbody tr")).to_have_count(12)


def test_axes_are_brushed_and_moved_by_keyboard(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/1")
    title = page.get_by_role("button", name="a, not brushed")
    title.focus()
    for _ in range(5):
        page.keyboard.press("ArrowUp")
    # A quarter of the way up: the lowest two of six values are filtered out.
    expect(page.locator("tbody tr")).to_have_count(8)
    page.keyboard.press("Delete")
    expect(page.locator("tbody tr")).to_have_count(12)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".parallel .titles button").first).to_have_text("seed")


def test_seeds_are_grouped_with_mean_and_deviation(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/1?seeds=1")
    table = page.get_by_role("table", name="Runs, seeds together")
    expect(table.locator("tbody tr")).to_have_count(6)
    expect(table.locator("tbody tr").first).to_contain_text("10.15 ± 0.07071")


#: A sweep whose runs report a curve each: the loss falls to `a` plus a little of the seed.
REPORTS = (
    "for n in 1 2 3 4 5 6 7 8 9 10; do "
    'printf \'{"step": %s, "loss": %s}\\n\' $n $(({a} * 10 + 40 / n + {seed})) >> $DIBS_REPORT; done'
)


@pytest.fixture(scope="module")
def curved(queue: Bench) -> Bench:
    """A queue with a finished sweep that has curves, and one run of it that failed."""
    done = queue.cli(
        *("sweep", f"mkdir -p $(dirname $DIBS_REPORT); {REPORTS}; [ {{a}}{{seed}} != 52 ]", "--name", "curves"),
        *("--metric", "loss=loss (never)", "--goal", "min", "-g", "0", "-p", "a=1,2,3,4,5", "-p", "seed=1,2"),
    )
    assert done.returncode == 0, done.stderr
    queue.wait_all()
    return queue


def test_curves_of_all_runs_are_drawn_and_lead_to_their_jobs(curved: Bench, page_at: PageAt) -> None:
    """By its name too: that is what a job knows of its sweep."""
    page = page_at("/sweep/curves")
    picture = page.get_by_role("img", name="loss of 10 runs over steps")
    expect(picture).to_be_visible()
    drawn = "canvas => canvas.nextElementSibling.getContext('2d').getImageData(0, 0, 900, 360).data.join()"
    first = wait_for(lambda: picture.evaluate(drawn))
    for name in ("Log scale", "strong", "Mean ± sd over seeds", "time"):
        if name == "strong":
            page.get_by_label("Smoothing").select_option(name)
        else:
            page.get_by_role("button", name=name, exact=True).click()
        if name != "time":
            wait_for(lambda before=first: picture.evaluate(drawn) != before)
            first = picture.evaluate(drawn)
    # Lines without a time have no place on that axis.
    expect(page.get_by_text("No run has reported loss over time")).to_be_visible()
    page.get_by_role("button", name="step", exact=True).click()
    assert "y=log" in page.url
    assert "bands=1" in page.url
    page.goto(page.url.split("?")[0])
    box = picture.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 14, box["y"] + box["height"] / 2)
    expect(page.locator(".plot .card")).to_contain_text(re.compile(r"^#\d+ · step \d+ · loss \d"))
    expect(page.locator("tr.pointed")).to_have_count(1)
    page.mouse.click(box["x"] + box["width"] - 14, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile(r"/job/\d+$"))


def test_importance_best_so_far_and_a_heat_map_are_shown(curved: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/curves")
    expect(page.get_by_role("list", name="Parameter importance")).to_contain_text(re.compile(r"a ↗\s*\d+ %"))
    expect(page.get_by_role("img", name=re.compile("Best loss after each of 9 finished runs"))).to_be_visible()
    page.get_by_role("button", name="Heat map").click()
    heat = page.get_by_role("region", name="Heat map")
    expect(heat.locator("td").filter(has_text="(1)")).to_have_count(9)
    expect(heat.get_by_text("no run")).to_have_count(1)
    assert complaints(page) == []
    page.emulate_media(color_scheme="dark")
    assert complaints(page) == []


def test_finished_runs_are_ranked_apart_from_failed_ones(curved: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/curves")
    expect(page.get_by_role("table", name="Runs").locator("tbody tr")).to_have_count(9)
    expect(page.get_by_role("table", name="Failed and cancelled").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Retry failed (1)")).to_be_visible()


def test_the_table_is_exported_as_csv(swept: Bench, page_at: PageAt) -> None:
    page = page_at("/sweep/1")
    more(page)
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download CSV").click()
    assert coming.value.suggested_filename == "depths.csv"
    with Path(coming.value.path()).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 12
    assert {row["acc"] for row in found if row["a"] == "3"} == {"10.1", "10.2"}


def test_the_best_run_is_repeated_with_new_seeds(queue: Bench, page_at: PageAt) -> None:
    sweep = (
        "sweep",
        "echo acc {lr}; echo {seed} $GREETING",
        "--name",
        "again",
        "--metric",
        r"acc=acc (\S+)",
        "-g",
        "0",
    )
    done = queue.cli(*sweep, "--goal", "max", "-e", "GREETING=hello", "-p", "lr", "0.5", "1.0", "-p", "seed=0,1")
    assert done.returncode == 0, done.stderr
    (own, *_) = [one["id"] for one in queue.client.get("/v1/sweeps", [("name", "again")])["sweeps"]]
    queue.wait_all()
    page = page_at(f"/sweep/{own}")
    expect(page.locator("tbody tr")).to_have_count(4)
    more(page)
    page.get_by_role("button", name="Rerun best × 5 seeds").click()
    expect(page.get_by_text(re.compile("Queued 5 runs like job .*, with seed 2 to 6"))).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(9)
    ended = [job for job in queue.wait_all() if job["sweep"] == "again"][4:]
    # With its spelling, and in the environment of the run.
    assert [job["command"] for job in ended] == [f"echo acc 1.0; echo {seed} $GREETING" for seed in range(2, 7)]
    assert queue.cli("log", str(ended[0]["id"])).stdout.endswith("2 hello\n")


def test_a_grid_is_extended(queue: Bench, page_at: PageAt) -> None:
    done = queue.cli("sweep", "echo {lr} {opt}", "--name", "wider", "-g", "0", "-p", "lr", "0.5", "-p", "opt=sgd,adam")
    assert done.returncode == 0, done.stderr
    (own,) = [one["id"] for one in queue.client.get("/v1/sweeps", [("name", "wider")])["sweeps"]]
    queue.wait_all()
    page = page_at(f"/sweep/{own}")
    # Buttons that do not apply are not there: no seed, nothing failed, nothing left.
    more(page)
    expect(page.get_by_role("button", name="Download CSV")).to_be_visible()
    for name in ("Rerun best", "Retry failed", "Stop the rest"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Extend the grid").click()
    dialog = page.get_by_role("dialog", name="Extend wider")
    expect(dialog.get_by_label("Values of opt")).to_have_value("sgd, adam")
    expect(dialog.get_by_role("button", name="Queue 0 runs")).to_be_disabled()
    assert complaints(page) == []
    dialog.get_by_label("Values of lr").fill("0.5, 0.25")
    expect(dialog.get_by_text("2 new runs of 4")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"Queued 2 runs of sweep {own}.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(4)
    commands = [job["command"] for job in queue.wait_all() if job["sweep"] == "wider"]
    assert commands == ["echo 0.5 sgd", "echo 0.5 adam", "echo 0.25 sgd", "echo 0.25 adam"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/sweeps", "/sweep/1", "/sweep/1?tab=scatter"])
def test_the_pages_are_accessible(swept: Bench, page_at: PageAt, path: str, scheme: str) -> None:
    page = page_at(path, color_scheme=scheme)
    expect(page.locator("tbody tr").first).to_be_visible()
    assert complaints(page) == []


def test_a_random_search_says_so_and_can_be_extended(queue: Bench, page_at: PageAt) -> None:
    words = ("sweep", "echo loss {lr}", "--name", "dice", "-g", "0", "-p", "lr=uniform(0,1)", "--search", "random")
    done = queue.cli(*words, "--trials", "4", "--minimize", "loss", "--metric", r"loss=loss (\S+)")
    assert done.returncode == 0, done.stderr
    queue.wait_all()
    page = page_at("/sweep/dice")
    note = page.get_by_role("note", name="Search")
    expect(note).to_contain_text("Random search for the lowest loss")
    expect(note).to_contain_text(re.compile("4 of 4 trials.*all trials are done"))
    expect(page.get_by_role("button", name="Extend the grid")).to_be_visible()
    assert complaints(page) == []


def test_a_search_says_how_it_stands(queue: Bench, page_at: PageAt) -> None:
    """The daemon adds trials by itself; here it ends at once, because no trial reports the metric."""
    words = ("sweep", "echo {lr}", "--name", "hunt", "-g", "0", "-p", "lr=uniform(0,1)", "-j", "1")
    done = queue.cli(*words, "--search", "tpe", "--trials", "9", "--minimize", "loss")
    if "optuna" in done.stderr.lower():
        pytest.skip("needs Optuna")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: queue.client.get("/v1/sweeps", [("name", "hunt")])["sweeps"][0]["search"]["ended"])
    page = page_at("/sweep/hunt")
    note = page.get_by_role("note", name="Search")
    expect(note).to_contain_text("TPE search for the lowest loss")
    expect(note).to_contain_text(re.compile(r"\d of 9 trials.*ended: .* runs are done and none reported loss"))
    # Points of a search are not those of a grid.
    expect(page.get_by_role("button", name="Extend the grid")).to_have_count(0)
    assert complaints(page) == []
