"""Actions available on every page: submit a job or a sweep, cancel and undo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from bench import Bench, wait_for
from visitor import PageAt, Visits, link_to


def state(queue: Bench, job_id: int) -> str:
    """Return the state of a job."""
    return str(queue.job(job_id)["state"])


def test_a_job_is_submitted_by_keyboard_only(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/jobs")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New job")
    expect(dialog.get_by_label("Command")).to_be_focused()
    page.keyboard.type("echo from the page")
    expect(dialog.get_by_text(re.compile(r"It would start now, on GPU \d"))).to_be_visible()
    dialog.get_by_label("GPUs").fill("0")
    dialog.get_by_label("Name").fill("typed")
    expect(dialog.get_by_text("It would start now")).to_be_visible()
    expect(dialog.get_by_text("dibs add", exact=False).first).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/job/\d+$"))
    job = queue.until(int(page.url.rsplit("/", 1)[1]))
    assert (job["name"], job["state"]) == ("typed", "done")
    assert queue.log(job["id"]) == "from the page\n"


def test_the_dialog_offers_environments_names_one_and_remembers_it(queue: Bench, page_at: PageAt) -> None:
    folders = [queue.folder / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        assert queue.cli("add", "-g", "0", "-C", str(folder), "true", environ={"MARK": folder.name}).returncode == 0
    first, second = (each["job"] for each in reversed(queue.client.get("/v1/environments")["environments"][:2]))
    page = page_at("/jobs")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New job")
    dialog.get_by_label("Command").fill("echo $MARK")
    dialog.get_by_label("GPUs").fill("0")
    dialog.get_by_label("Working folder").fill(str(folders[1]))
    expect(dialog.get_by_text(f"now: that of job {second}")).to_be_visible()
    offered = dialog.locator("datalist option").evaluate_all("options => options.map((one) => one.value)")
    assert offered[:2] == [str(folders[1]), str(folders[0])]
    dialog.get_by_label("Environment").select_option(str(first))
    expect(dialog.get_by_text(f"now: that of job {first}")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/job/\d+$"))
    job = queue.until(int(page.url.rsplit("/", 1)[1]))
    assert (job["environment"], job["cwd"], queue.log(job["id"])) == (f"job {first}", str(folders[1]), "first\n")
    page.keyboard.press("n")
    expect(dialog.get_by_label("Environment")).to_have_value(str(first))
    expect(dialog.get_by_label("Working folder")).to_have_value(str(folders[1]))


def test_placeholders_are_counted_and_become_a_sweep(queue: Bench, page_at: PageAt) -> None:
    page = page_at("/jobs")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New job")
    dialog.get_by_label("Command").fill("echo {lr}")
    dialog.get_by_label("Values of lr").fill("0.1, 0.01, 0.001")
    dialog.get_by_label("GPUs").fill("0")
    dialog.get_by_label("Name").fill("swept")
    dialog.get_by_role("button", name="Submit 3 jobs").click()
    expect(page).to_have_url(re.compile(r"/sweep/\d+$"))
    assert len(queue.jobs("sweep:swept")) == 3


def test_a_cancel_is_undone_and_then_confirmed(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(["true"], name="doubtful", hold=True)
    page = page_at("/jobs?name=doubtful")
    expect(page.get_by_role("link", name="doubtful")).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("c")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_have_count(0)
    assert state(queue, job_id) == "held"
    page.keyboard.press("c")
    # When the message disappears, the time for Undo is over.
    page.get_by_role("button", name="Dismiss").click()
    wait_for(lambda: state(queue, job_id), lambda word: word == "cancelled")


def test_leaving_the_page_sends_pending_actions(queue: Bench, page_at: PageAt) -> None:
    job_id = queue.add(["true"], name="left-behind", hold=True)
    page = page_at("/jobs?name=left-behind")
    expect(page.get_by_role("link", name="left-behind")).to_be_visible()
    page.get_by_role("grid").focus()
    page.keyboard.press("c")
    expect(page.get_by_text(f"Cancelling job {job_id}.")).to_be_visible()
    page.goto("about:blank")
    wait_for(lambda: state(queue, job_id), lambda word: word == "cancelled")


def test_the_dialog_shows_first_commands_recent_ones_and_rare_options(queue: Bench, page_at: PageAt) -> None:
    queue.until(queue.add("echo from before", gpus=0))
    page = page_at("/")
    page.get_by_role("button", name="New job").click()
    dialog = page.get_by_role("dialog", name="New job")
    dialog.get_by_role("button", name="echo from before").click()
    expect(dialog.get_by_label("Command")).to_have_value("echo from before")
    dialog.get_by_label("Command").fill("echo {lr}")
    dialog.get_by_label("Values of lr").fill("1, 2, 3, 4, 5")
    expect(dialog.get_by_text("5 jobs", exact=True)).to_be_visible()
    expect(dialog.locator(".preview code")).to_have_text(["echo 1", "echo 2", "echo 3"])
    expect(dialog.get_by_text("… and 2 more")).to_be_visible()
    dialog.get_by_label("Command").fill("true")
    dialog.get_by_text("More options").click()
    dialog.get_by_label("GPU memory").fill("lots")
    expect(dialog.get_by_text("GPU memory expected a size such as 18G or 512M")).to_be_visible()
    dialog.get_by_label("GPU memory").fill("2G")
    dialog.get_by_label("GPU ids").fill("1")
    dialog.get_by_label("Retries").fill("2")
    dialog.get_by_label("Tags").fill("a, b")
    expect(dialog.get_by_text("It would start now, on GPU 1")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/job/\d+$"))
    job = queue.until(int(page.url.rsplit("/", 1)[1]))
    assert (job["vram"], job["retries"], job["tags"]) == (2 * 1024**3, 2, ["a", "b"])
    assert job["request"]["gpu_ids"] == ["FAKE-1"]
    assert job["gpu_indices"] == [1]


def test_on_a_phone_submit_cancel_retry_and_log_are_two_taps_away(queue: Bench, page_at: PageAt) -> None:
    failed = queue.add("echo seen; exit 1", gpus=0, name="tapped")
    queue.until(failed)
    waiting = queue.add("true", name="unwanted", hold=True)
    page = page_at("/", viewport={"width": 390, "height": 844})
    page.get_by_role("button", name=f"Retry job {failed}").click()
    wait_for(lambda: queue.job(failed)["attempt"], lambda attempt: attempt == 2)
    page.get_by_role("button", name=f"Cancel job {waiting}").click()
    expect(page.get_by_text(f"Cancelling job {waiting}.")).to_be_visible()
    queue.until(failed)
    page.get_by_role("table", name="Recent failures").get_by_role("link", name=f"#{failed}").click()
    expect(page.get_by_role("region", name="Log")).to_contain_text("seen")
    page.get_by_role("button", name="New job").click()
    page.get_by_role("dialog", name="New job").get_by_label("Command").fill("true")
    page.get_by_role("dialog", name="New job").get_by_role("button", name="Submit job").click()
    expect(page).to_have_url(re.compile(r"/job/\d+$"))


@pytest.fixture
def presets(tmp_path: Path) -> Iterator[Bench]:
    """A queue whose settings have a preset. Its pages are closed first, because the test asks for it first."""
    settings = tmp_path / "presets.toml"
    settings.write_text('[presets.pair]\ngpus = 2\ntag = "paper"\n')
    own = Bench(tmp_path, DIBS_CONFIG=str(settings))
    own.start()
    yield own
    own.close()


def test_a_submission_starts_from_a_preset_or_a_job(presets: Bench, visits: Visits) -> None:
    presets.until(presets.add("echo one", gpus=0, name="model", tags=["old"]))
    page = visits.enter(link_to(presets), "/")
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Start from").select_option("preset:pair")
    expect(dialog.get_by_label("GPUs")).to_have_value("2")
    expect(dialog.get_by_text("--gpus=2 --tag=paper: applies to fields that you leave empty")).to_be_visible()
    dialog.get_by_label("Command").fill("true")
    expect(dialog.get_by_text("dibs add --preset pair -g 2 -- true")).to_be_visible()
    dialog.get_by_role("button", name="Submit job").click()
    expect(page).to_have_url(re.compile("/job/2$"))
    job = presets.until(2)
    assert (job["gpus"], job["tags"]) == (2, ["paper"])
    page.keyboard.press("n")
    dialog.get_by_label("Start from").select_option("job:1")
    expect(dialog.get_by_label("Command")).to_have_value("echo one")
    expect(dialog.get_by_label("Name")).to_have_value("model")
    expect(dialog.get_by_label("Tags")).to_have_value("old")
