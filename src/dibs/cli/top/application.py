"""The application: widgets, keys and the mouse. What they show and do is decided in the other modules."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar, Protocol

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from dibs.cli import screen
from dibs.cli.top import actions, frame, gpu_lines, job_rows, modals, palette, snapshot, timeline_lines
from dibs.cli.top.actions import Request
from dibs.cli.top.lines import Line, Marks
from dibs.cli.top.snapshot import Snapshot
from dibs.cli.top.widgets import JobTable, LogPane
from dibs.client.answers import Job
from dibs.errors import DibsError, UserError
from dibs.model import selectors

#: Seconds between two updates of times, and between two readings of the open log.
TICK_S = 1.0
LOG_EVERY_S = 0.5
#: The exit code after TERM, as a shell would name it.
TERMINATED = 128 + signal.SIGTERM
JOBS, TIMELINE, MACHINE = "jobs", "timeline", "machine"


class Source(Protocol):
    """Where snapshots come from and requests go to."""

    snapshot: Snapshot

    def start(self, tell: Callable[[Snapshot], None]) -> None:
        """Begin to tell of changes, from another thread."""

    def stop(self) -> None:
        """End."""

    def look(self, words: Sequence[str] | None = None, span: str | None = None) -> None:
        """Ask again, from now on for these jobs and this span."""

    def act(self, request: Request) -> str:
        """Apply a verb to a job; return the result."""

    def submit(self, text: str) -> str:
        """Submit the words after `dibs add`; return the receipt."""

    def change(self, job_id: int, text: str) -> str:
        """Apply the options of `dibs edit`; return the result."""


class TopApp(App[None]):
    """The full-screen view of the queue and the machine."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; }
    #gpus, #timeline, #people { height: auto; }
    #jobs { height: 1fr; scrollbar-size: 1 1; }
    #detail { height: 2; color: $text-muted; }
    #log { border-top: solid $primary; scrollbar-size: 1 1; }
    #prompt { height: 1; border: none; padding: 0; }
    .dialog { width: 70; max-width: 100%; height: auto; padding: 1 2; background: $panel; border: solid $primary; }
    .dialog Horizontal { height: 1; margin-top: 1; }
    .dialog Button { margin-right: 2; }
    Question, Help { align: center middle; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "act('cancel')", "cancel"),
        Binding("r", "act('retry')", "retry"),
        Binding("h", "act('hold')", "hold"),
        Binding("u", "act('move_up')", "up"),
        Binding("e", "edit", "edit"),
        Binding("n", "new", "new"),
        Binding("slash", "search", "search", key_display="/"),
        Binding("l,enter", "log", "log", key_display="l"),
        Binding("tab", "next_view", "view", key_display="tab", priority=True),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q,ctrl+c", "quit", "quit", key_display="q"),
        Binding("1", "view('jobs')", show=False),
        Binding("2", "view('timeline')", show=False),
        Binding("3", "view('machine')", show=False),
        Binding("j", "choose(1)", show=False),
        Binding("k", "choose(-1)", show=False),
        Binding("g", "edge(False)", show=False),
        Binding("G", "edge(True)", show=False),
        Binding("plus,equals_sign", "zoom(1)", show=False),
        Binding("minus", "zoom(-1)", show=False),
        Binding("escape", "leave", show=False),
    ]

    def __init__(self, source: Source, marks: Marks, now: Callable[[], datetime] = screen.now) -> None:
        super().__init__()
        self.source, self.marks, self.now = source, marks, now
        self.shown = source.snapshot
        self.view, self.search, self.span = JOBS, "", timeline_lines.USUAL
        #: What the open prompt is for, and what happens to its text.
        self._take: Callable[[str], None] | None = None

    class News(Message):
        """A new snapshot."""

        def __init__(self, snapshot: Snapshot) -> None:
            super().__init__()
            self.snapshot = snapshot

    class Done(Message):
        """What became of a request."""

        def __init__(self, text: str, is_error: bool) -> None:
            super().__init__()
            self.text, self.is_error = text, is_error

    # -- the screen --------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="gpus")
        yield Static(id="timeline")
        yield JobTable()
        yield Static(id="people")
        yield Static(id="detail")
        yield LogPane()
        yield Input(id="prompt", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#prompt").display = self.log_pane.display = False
        self.jobs.focus()
        self.draw()
        # Leave the terminal as it was.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: self.exit(return_code=TERMINATED))
        self.source.start(self._hear)
        self.set_interval(TICK_S, self.draw)
        self.set_interval(LOG_EVERY_S, self.log_pane.read)

    def _hear(self, new: Snapshot) -> None:
        """Pass a snapshot on from another thread; a direct call would wait for an application that may be ending."""
        self.post_message(self.News(new))

    def on_unmount(self) -> None:
        self.source.stop()

    def on_resize(self) -> None:
        self.jobs.forget()
        self.draw()

    @property
    def jobs(self) -> JobTable:
        """Return the table of jobs."""
        return self.query_one(JobTable)

    @property
    def log_pane(self) -> LogPane:
        """Return the pane of the log."""
        return self.query_one(LogPane)

    @property
    def chosen(self) -> Job:
        """Return the job under the cursor; raise UserError if there is none."""
        job = self._under_cursor()
        if job is None:
            raise UserError("no job is selected.", "n submits one.")
        return job

    def _under_cursor(self) -> Job | None:
        chosen = self.jobs.chosen
        return None if chosen is None else self.shown.job(chosen)

    def on_top_app_news(self, news: News) -> None:
        """Show a new snapshot."""
        self.shown = news.snapshot
        self.draw()

    def on_top_app_done(self, done: Done) -> None:
        """Show the result of a request."""
        self._say(done.text, is_error=done.is_error)

    def draw(self) -> None:
        """Bring every part of the screen up to date."""
        try:
            self._draw_parts()
        except NoMatches:
            # The screen is being taken down.
            return

    def _draw_parts(self) -> None:
        width, now, marks = self.size.width, self.now(), self.marks
        gpus = gpu_lines.gpu_lines(self.shown, width, now, marks)
        log = self.log_pane
        parts = frame.heights(self.size.height, len(gpus), is_log_open=bool(log.display))
        self._show("#head", [job_rows.head(self.shown, self.search, width, now, marks)])
        self._show("#gpus", frame.cut(gpus, parts.gpus, marks))
        log.styles.height = parts.log
        is_timeline = self.view == TIMELINE
        timeline = timeline_lines.timeline_lines(self.shown.timeline, self.span, width, now, marks)
        is_beside = bool(parts.timeline) and self.view == JOBS
        self._show(
            "#timeline", frame.padded(timeline, parts.timeline) if is_beside else timeline if is_timeline else []
        )
        self._show("#people", gpu_lines.people_lines(self.shown, width, now, marks) if self.view == MACHINE else [])
        self.jobs.display = self.query_one("#detail").display = self.view != MACHINE
        self.jobs.fill(job_rows.rows(self.shown, self._local_search(), now), width)
        self._show_detail()

    @on(DataTable.RowHighlighted)
    def _show_detail(self) -> None:
        job = self._under_cursor()
        self.query_one("#detail", Static).update(Content(job_rows.detail(job, self.shown, self.search)))

    def _show(self, name: str, found: list[Line]) -> None:
        part = self.query_one(name, Static)
        part.display = bool(found)
        part.update(Content("\n").join(Content.assemble(*palette.styled(line)) for line in found))

    def _local_search(self) -> str:
        """Return the words to look for in the listed jobs; a selector was sent to the daemon instead."""
        return "" if _is_selector(self.search) else self.search

    # -- keys --------------------------------------------------------------------------------------------------------

    def action_choose(self, step: int) -> None:
        """Move the cursor."""
        self.jobs.move_cursor(row=self.jobs.cursor_row + step)

    def action_edge(self, is_last: bool) -> None:
        """Move the cursor to the first or last job."""
        self.jobs.move_cursor(row=max(self.jobs.row_count - 1, 0) if is_last else 0)

    def action_view(self, name: str) -> None:
        """Show another view; the key of the open one returns to the jobs."""
        self.view = JOBS if name == self.view else name
        self.draw()

    def action_next_view(self) -> None:
        """Show the next view; in a dialog go to its next button."""
        if isinstance(self.screen, ModalScreen):
            self.screen.focus_next()
            return
        views = (JOBS, TIMELINE, MACHINE)
        self.action_view(views[(views.index(self.view) + 1) % len(views)])

    def action_zoom(self, step: int) -> None:
        """Change the span of the timeline."""
        spans = [*timeline_lines.SPANS]
        self.span = spans[min(max(spans.index(self.span) + step, 0), len(spans) - 1)]
        self.source.look(span=self.span)
        self.draw()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(modals.Help())

    def action_leave(self) -> None:
        """Close what is open: the log, a view, the search."""
        if self.log_pane.display:
            self.action_log()
        elif self.view != JOBS:
            self.action_view(JOBS)
        elif self.search:
            self._search("")

    def action_act(self, name: str) -> None:
        """Apply a verb to the chosen job, after a question if it needs one."""
        try:
            listed = snapshot.ordered(self.shown)
            job = self.chosen
            request = actions.move_up(job, listed) if name == "move_up" else getattr(actions, name)(job)
        except UserError as error:
            self._say(error.line(), is_error=True)
            return
        if request.question:
            self.push_screen(modals.Question(request.question), lambda yes: self._send(request) if yes else None)
        else:
            self._send(request)

    def _send(self, request: Request) -> None:
        self._work(lambda: self.source.act(request))

    def action_new(self) -> None:
        """Ask for the words after `dibs add`."""
        self._ask("dibs add ", "-g 2 -t 4h python train.py", lambda text: self._work(lambda: self.source.submit(text)))

    def action_edit(self) -> None:
        """Ask for the options of `dibs edit`."""
        try:
            job = self.chosen["id"]
        except UserError as error:
            self._say(error.line(), is_error=True)
            return
        self._ask(
            f"dibs edit {job} ", "--priority 10 -t 4h", lambda text: self._work(lambda: self.source.change(job, text))
        )

    def action_search(self) -> None:
        """Ask for words or a selector."""
        self._ask("/", "words, or a selector such as failed", self._search)

    # -- the prompt --------------------------------------------------------------------------------------------------

    def _ask(self, label: str, example: str, take: Callable[[str], None]) -> None:
        prompt = self.query_one("#prompt", Input)
        prompt.value, prompt.placeholder = "", f"{label}{example}"
        prompt.display, self._take = True, take
        prompt.focus()

    @on(Input.Submitted, "#prompt")
    def on_prompt(self, event: Input.Submitted) -> None:
        """Take the text of the prompt."""
        take, text = self._take, event.value.strip()
        self._close_prompt()
        if take is not None:
            take(text)

    def on_key(self, event: object) -> None:
        """Close the prompt with Esc, which an input does not handle."""
        if getattr(event, "key", "") == "escape" and self.query_one("#prompt").display:
            self._close_prompt()
            event.stop()  # type: ignore[attr-defined]
            event.prevent_default()  # type: ignore[attr-defined]

    def _close_prompt(self) -> None:
        self.query_one("#prompt").display, self._take = False, None
        self.jobs.focus()

    def _search(self, text: str) -> None:
        self.search = text
        self.source.look(words=text.split() if _is_selector(text) else ())
        self.draw()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _work(self, send: Callable[[], str]) -> None:
        """Send a request in another thread, and show the result."""

        def run() -> None:
            try:
                text, is_error = send(), False
            except DibsError as error:
                text, is_error = error.line(), True
            self.source.look()
            self.post_message(self.Done(text, is_error))

        threading.Thread(target=run, daemon=True, name="top-request").start()

    def _say(self, text: str, *, is_error: bool = False) -> None:
        self.notify(screen.clean(text), severity="error" if is_error else "information", markup=False)

    # -- the log -----------------------------------------------------------------------------------------------------

    @on(DataTable.RowSelected)
    def action_log(self) -> None:
        """Open the log of the chosen job, or close it."""
        if self.log_pane.display:
            self.log_pane.end()
        else:
            self.log_pane.display = True
            self._follow()
        self.draw()

    @on(DataTable.RowHighlighted)
    def _follow(self) -> None:
        """Show the log of the chosen job, if the pane is open."""
        job = self._under_cursor()
        if self.log_pane.display and job is not None:
            self.log_pane.follow(job["id"], job["log"])


def _is_selector(text: str) -> bool:
    """Tell whether a search is written as selectors, which the daemon understands."""
    try:
        selectors.parse(text.split())
    except UserError:
        return False
    return bool(text.strip())
