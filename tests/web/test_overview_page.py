"""The overview: what it shows of a queue, and its actions."""

from __future__ import annotations

import errno
import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from bench import Bench, wait_for
from fakes.faults.broken_calls import BrokenCalls
from visitor import Visits, complaints, link_to

FAILS = "echo epoch 1; echo 'ValueError: no such data' >&2; exit 3"


def line_of(bench: Bench) -> list[int]:
    """Return the waiting jobs in the order in which they are served."""
    return [one["id"] for one in bench.client.get("/v1/queue/line")["line"]]


def shown(page: Page) -> list[str]:
    """Return the numbers of the jobs in the queue as the page shows it."""
    return page.get_by_role("table", name="Queue").locator("tbody .number").filter(has_text="#").all_inner_texts()


def test_an_empty_queue_shows_the_first_command(bench: Bench, visits: Visits) -> None:
    bench.start()
    page = visits.enter(link_to(bench))
    expect(page.get_by_text("dibs add -g 1 python train.py", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="GPUs")).to_be_visible()
    expect(page.get_by_role("list", name="In short")).to_contain_text("GPUs free 4 of 4 jobs start at once")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert complaints(page) == []


def test_every_page_of_an_empty_queue_says_what_to_type(bench: Bench, visits: Visits) -> None:
    bench.start()
    page = visits.enter(link_to(bench))
    address = "/".join(page.url.split("/")[:3])
    commands = {
        "/": ("dibs add -g 1 python train.py", "dibs follow @"),
        "/jobs": ("dibs add -g 1 python train.py", "dibs add --file commands.txt"),
        "/sweeps": ("dibs report loss=0.3 step=10",),
        "/gpu/2": ("dibs add --gpu-ids 2 python train.py",),
        "/usage": ("dibs add -g 1 'python train.py'",),
    }
    for path, shown_commands in commands.items():
        page.goto(address + path)
        for command in shown_commands:
            expect(page.get_by_text(command, exact=True)).to_be_visible()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert complaints(page) == [], path
    page.goto(f"{address}/people")
    expect(page.get_by_text("Nobody has a GPU or waits for one.")).to_be_visible()
    expect(page.get_by_role("img", name="free: 4 GPUs")).to_be_visible()


def test_a_card_names_the_reservation_that_has_begun(bench: Bench, visits: Visits) -> None:
    bench.start()
    begin = datetime.now(UTC) - timedelta(seconds=1)
    bench.client.post("/v1/reservations", {"gpu_ids": ["1"], "from": begin.isoformat(), "for_s": 7200})
    page = visits.enter(link_to(bench))
    cards = page.locator(".gpus > li")
    expect(cards.nth(1)).to_contain_text(re.compile(r"reserved for you until (\w+ )?\d\d:\d\d"))
    expect(cards.nth(0)).not_to_contain_text("reserved")
    expect(page.get_by_role("list", name="In short")).to_contain_text("GPUs free 3 of 4")
    running = bench.long_job(gpu_ids=["1"])
    expect(cards.nth(1)).to_contain_text(re.compile(rf"#{running} .*reserved for you until (\w+ )?\d\d:\d\d"))
    assert complaints(page) == []


def test_running_waiting_and_failed_jobs_are_shown(bench: Bench, visits: Visits) -> None:
    bench.start()
    bad = bench.add(FAILS, gpus=0, name="broken")
    bench.until(bad)
    running = bench.long_job(gpus=4, time_limit_s=3600)
    first, second, third = (bench.add("true", name=f"waits-{n}") for n in range(3))
    page = visits.enter(link_to(bench))

    expect(page.get_by_role("list", name="In short")).to_contain_text("Running 1 on 4 GPUs")
    expect(page.get_by_role("list", name="In short")).to_contain_text("Queued 3")
    expect(page.get_by_role("list", name="In short")).to_contain_text("Failed in 24 h 1")
    expect(page.locator(".gpus").get_by_role("link", name=f"#{running}").first).to_be_visible()
    expect(page.get_by_role("table", name="Timeline")).to_contain_text(f"#{running}")
    expect(page.get_by_role("table", name="Timeline")).to_contain_text(re.compile(r"by .*\d\d:\d\d"))
    failures = page.get_by_role("table", name="Recent failures")
    expect(failures).to_contain_text("ValueError: no such data")
    expect(failures).to_contain_text("exit 3")
    expect(page.get_by_role("button", name=f"Cancel job {third}")).to_be_visible()
    assert shown(page) == [f"#{first}", f"#{second}", f"#{third}"]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert complaints(page) == []

    page.get_by_role("button", name=f"Move job {third} up").click()
    assert wait_for(lambda: line_of(bench) == [first, third, second])
    page.get_by_role("button", name="Undo").click()
    assert wait_for(lambda: line_of(bench) == [first, second, third])

    page.get_by_role("button", name=f"Hold job {second}").click()
    expect(page.get_by_role("button", name=f"Release job {second}")).to_be_visible()
    assert bench.job(second)["state"] == "held"
    page.keyboard.press("u")
    expect(page.get_by_role("button", name=f"Hold job {second}")).to_be_visible()

    page.get_by_role("button", name=f"Retry job {bad}").click()
    assert wait_for(lambda: bench.job(bad)["attempt"] == 2)

    page.locator("summary", has=page.locator(".icon-more")).click()
    page.get_by_role("button", name="Pause queue").click()
    dialog = page.get_by_role("dialog", name="Pause the queue?")
    expect(dialog).to_contain_text(
        re.compile("queued jobs will not start until you resume the queue. .* running jobs? continues?. Other users")
    )
    assert not bench.client.get("/v1/queue")["paused"]
    dialog.get_by_role("button", name="Pause queue").click()
    expect(page.get_by_text("The queue is paused: running jobs continue, nothing new starts.").first).to_be_visible()
    assert bench.client.get("/v1/queue")["paused"]
    page.get_by_role("button", name="Resume", exact=True).click()
    assert wait_for(lambda: not bench.client.get("/v1/queue")["paused"])


def test_every_page_offers_a_new_job_search_and_help(bench: Bench, visits: Visits) -> None:
    bench.start()
    page = visits.enter(link_to(bench))
    for path in ("/", "/jobs", "/sweeps", "/gpus", "/usage", "/settings"):
        page.goto("/".join(page.url.split("/")[:3]) + path)
        page.get_by_role("button", name="New job").click()
        page.get_by_role("dialog", name="New job").get_by_role("button", name="Close").click()
        expect(page.get_by_role("button", name="Search (Ctrl K)")).to_be_visible()
        expect(page.get_by_role("button", name="Keyboard shortcuts (?)")).to_be_visible()
    expect(page.locator("header .host")).to_have_text(re.compile(r"^dibs · \S+"))


def test_gpu_cards_have_one_height_and_the_edge_of_their_state(bench: Bench, visits: Visits) -> None:
    bench.start()
    running = bench.long_job(gpus=1, time_limit_s=3600)
    bench.client.post(
        "/v1/gpus/3/drain", {"reason": "a reason that is much longer than the room that a card has for it"}
    )
    page = visits.enter(link_to(bench), viewport={"width": 1024, "height": 800})
    expect(page.locator(".gpu.is-mine").get_by_role("link", name=f"#{running}")).to_be_visible()
    expect(page.locator(".gpu.is-mine").get_by_role("img", name=re.compile("of 1h00m$"))).to_be_visible()
    expect(page.locator(".gpu.is-drained")).to_have_count(1)
    expect(page.locator(".gpu.is-free")).to_have_count(2)
    boxes = page.locator(".gpus > li").evaluate_all("all => all.map((one) => one.getBoundingClientRect().toJSON())")
    assert len({round(box["height"]) for box in boxes}) == 1
    assert len({round(box["top"]) for box in boxes}) in (1, 2)


def test_keys_lead_everywhere(bench: Bench, visits: Visits) -> None:
    bench.start()
    job = bench.add("true", name="needle", gpus=0)
    page = visits.enter(link_to(bench))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_contain_text("Go to Jobs")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="Jobs", exact=True)).to_have_attribute("aria-current", "page")
    page.keyboard.press("Control+k")
    # The page of jobs has a combobox of its own, as soon as it is loaded.
    page.get_by_role("dialog").get_by_role("combobox").fill("needle")
    expect(page.get_by_role("option", name=f"#{job} needle")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/job/{job}")


def test_a_gpu_whose_lease_file_is_broken_says_so_on_its_card(bench: Bench, visits: Visits) -> None:
    gate = bench.leases / ".dibs-gate-FAKE-1"
    gate.mkdir()
    bench.start()
    page = visits.enter(link_to(bench))
    expect(page.get_by_text(re.compile(f"cannot use {re.escape(str(gate))}: .*owner: "))).to_be_visible()


def test_starts_that_the_machine_refuses_are_explained(bench: Bench, visits: Visits) -> None:
    calls = BrokenCalls(bench.folder)
    bench.start(**calls.environ)
    calls.fail("link", errno.EIO)
    job = bench.add("true", gpus=0)
    page = visits.enter(link_to(bench))
    paused = page.get_by_text(re.compile("starts are paused: Input/output error")).first
    expect(paused).to_be_visible(timeout=60_000)
    calls.work()
    assert bench.until(job)["state"] == "done"
    expect(page.get_by_text("starts are paused")).to_have_count(0, timeout=60_000)
