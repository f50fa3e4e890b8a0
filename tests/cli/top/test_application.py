"""The application with Textual's own pilot: keys, the mouse, modals and the prompt, without a daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Log, Static

from dibs.cli.top import lines, modals
from dibs.cli.top.application import TopApp
from top_source import NOW, RecordedSource, gpu, holder, job, snapshot
from waits import PATIENCE_S

JOBS = (job(1, log="", name="vit"), job(2, "queued"), job(3, "queued"), job(4, "failed", cause="exit", exit_code=1))


def drive(
    source: RecordedSource, act: Callable[[TopApp, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)
) -> None:
    """Run the application on a pretend terminal while `act` uses it."""

    async def run() -> None:
        app = TopApp(source, lines.UNICODE, now=lambda: NOW)
        async with app.run_test(size=size) as pilot:
            await act(app, pilot)

    asyncio.run(run())
    assert source.is_stopped


async def until(pilot: Pilot[None], what: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await pilot.pause(0.01)


@pytest.fixture
def source() -> RecordedSource:
    """A machine with two GPUs and four jobs."""
    devices = [gpu(0, "leased", holders=[holder(job="1")]), gpu(1)]
    return RecordedSource(snapshot(*JOBS, gpus=devices))


def text(app: TopApp, name: str) -> str:
    """Return the text of a part of the screen."""
    return str(app.query_one(name, Static).content)


def listed(app: TopApp) -> list[int]:
    """Return the jobs in the table."""
    return [row.id for row in app.jobs.rows_shown]


def test_everything_is_on_the_first_screen(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        assert listed(app) == [1, 2, 3, 4]
        assert text(app, "#head").startswith("dibs · box  1 running, 2 queued")
        assert "job 1 vit 30m00s" in text(app, "#gpus")
        assert text(app, "#detail") == "job 1: train.py 1"
        assert not app.query_one("#timeline").display

    drive(source, act)


def test_j_and_k_choose_and_cancel_asks_first(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("j", "j", "k", "c")
        assert isinstance(app.screen, modals.Question)
        await pilot.press("n")
        assert source.requests == []
        await pilot.press("c", "y")
        await until(pilot, lambda: source.requests)
        assert [(one.verb, one.job) for one in source.requests] == [("cancel", 2)]

    drive(source, act)


def test_the_buttons_of_a_question_can_be_clicked_and_enter_says_no(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("c", "enter")
        assert not isinstance(app.screen, modals.Question)
        assert source.requests == []
        await pilot.press("c")
        await pilot.click("#yes")
        await until(pilot, lambda: source.requests)

    drive(source, act)


def test_retry_hold_and_move_are_sent_for_the_chosen_job(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("G", "r", "k", "h", "u", "g", "u")
        await until(pilot, lambda: len(source.requests) == 3)
        assert sorted((one.verb, one.job) for one in source.requests) == [("hold", 3), ("move", 3), ("retry", 4)]

    drive(source, act)


def test_new_and_edit_take_a_line_and_escape_closes_the_prompt(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("n")
        assert app.query_one("#prompt", Input).has_focus
        await pilot.press("c", "q", "escape")
        assert not app.query_one("#prompt").display
        assert source.texts == []
        await pilot.press("n", *"true", "enter")
        await pilot.press("j", "e", *"-t 1h".replace(" ", "_"), "enter")
        await until(pilot, lambda: len(source.texts) == 2)
        assert source.texts == ["add true", "edit 2 -t_1h"]

    drive(source, act)


def test_a_refusal_is_shown_and_changes_nothing(source: RecordedSource) -> None:
    source.refusal = "command not found: x[b]"

    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("n", "x", "enter")
        await until(pilot, lambda: app._notifications)
        assert [note.message for note in app._notifications] == ["command not found: x[b]"]
        await pilot.press("G", "c")
        await until(pilot, lambda: len(app._notifications) == 2)
        assert source.requests == []

    drive(source, act)


def test_words_search_here_and_selectors_are_sent_to_the_daemon(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"vit", "enter")
        assert (listed(app), source.looks[-1]) == ([1], ((), None))
        await pilot.press("escape")
        assert listed(app) == [1, 2, 3, 4]
        await pilot.press("slash", *"failed", "enter")
        assert (listed(app), source.looks[-1]) == ([1, 2, 3, 4], (("failed",), None))

    drive(source, act)


def test_the_views_change_with_tab_and_numbers(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        assert "nobody waits for a GPU" in text(app, "#people")
        assert not app.jobs.display
        await pilot.press("tab", "tab")
        assert (app.view, app.jobs.display) == ("timeline", True)
        assert app.query_one("#timeline").display
        await pilot.press("minus")
        assert source.looks[-1] == (None, "1h")
        await pilot.press("escape")
        assert app.view == "jobs"

    drive(source, act)


def test_the_timeline_is_there_on_a_tall_terminal(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.query_one("#timeline").display
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not app.query_one("#timeline").display)
        assert listed(app) == [1, 2, 3, 4]

    drive(source, act, (120, 40))


def test_the_log_follows_the_chosen_job(source: RecordedSource, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("hello\n")
    (tmp_path / "two").write_text("other\n")
    first, second, *rest = JOBS
    jobs = (first | {"log": str(tmp_path / "one")}, second | {"log": str(tmp_path / "two")}, *rest)
    source.snapshot = snapshot(*jobs)

    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("l")
        log = app.query_one("#log", Log)
        assert (log.display, next(iter(log.lines))) == (True, "hello")
        with (tmp_path / "one").open("a") as file:
            file.write("more\n")
        await until(pilot, lambda: "more" in [*log.lines])
        await pilot.press("j")
        await until(pilot, lambda: [*log.lines][:1] == ["other"])
        await pilot.press("escape")
        assert not log.display

    drive(source, act)


def test_news_change_the_screen_and_keep_the_chosen_job(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("j", "j")
        assert source.tell is not None
        source.tell(snapshot(job(9), *JOBS))
        await until(pilot, lambda: listed(app) == [1, 9, 2, 3, 4])
        assert app.chosen["id"] == 3
        source.tell(replace(app.shown, away="the daemon has ended"))
        await until(pilot, lambda: "the daemon has ended" in text(app, "#head"))

    drive(source, act)


def test_a_click_chooses_a_row(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.click(DataTable, offset=(5, 3))
        await until(pilot, lambda: app.chosen["id"] == 3)

    drive(source, act)


def test_help_opens_and_closes(source: RecordedSource) -> None:
    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, modals.Help)
        await pilot.press("question_mark")
        assert not isinstance(app.screen, modals.Help)

    drive(source, act)


def test_an_empty_queue_says_how_to_fill_it() -> None:
    source = RecordedSource(snapshot())

    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("c", "l", "e")
        await until(pilot, lambda: app._notifications)
        assert {note.message for note in app._notifications} == {"no job is selected. n submits one."}

    drive(source, act)


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    evil = job(1, name="[red]\x1b[2J[/x]", command="[@click=app.bell]x[/]")
    source = RecordedSource(snapshot(evil, gpus=[gpu(0, "leased", holders=[holder("[b]x[/nope]")])]))

    async def act(app: TopApp, pilot: Pilot[None]) -> None:
        assert app.jobs.rows_shown[0].cells[1] == "[red]\\e[2J[/x]"
        assert "[b]x[/nope]" in text(app, "#gpus")
        await pilot.press("c")
        assert isinstance(app.screen, modals.Question)

    drive(source, act)
