"""Keeps a snapshot up to date: listens to the daemon's events, and asks again only after one.

One thread listens, another asks. If the daemon ends, both wait until one answers again; they never start one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from dibs.cli.top import snapshot, timeline_lines
from dibs.cli.top.snapshot import Snapshot
from dibs.client import queries
from dibs.client.connection import Client
from dibs.client.event_stream import EventStream
from dibs.errors import DibsError
from dibs.system import users

#: Least seconds between two rounds of questions: a burst of events is one round.
GATHER_S = 0.5
#: Seconds between two attempts to reach a daemon that is away.
RETRY_S = 1.0
#: Waiting jobs of one submission that are listed; the rest is counted.
PER_GROUP = 40
#: Expected starts to ask for.
STARTS = 60

Tell = Callable[[Snapshot], None]


class Feed:
    """The source of snapshots; `tell` gets each new one, in another thread."""

    def __init__(self, client: Client, first: Snapshot) -> None:
        self.client = client
        self.snapshot = first
        self._tell: Tell = lambda snapshot: None
        #: Selectors of the jobs to list; none: unfinished and latest.
        self._words: tuple[str, ...] = ()
        self._span = timeline_lines.USUAL
        self._news = threading.Event()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._stream: EventStream | None = None

    def start(self, tell: Tell) -> None:
        """Begin to listen and to ask."""
        self._tell = tell
        for work in (self._listen, self._ask):
            threading.Thread(target=work, daemon=True, name=f"top-{work.__name__}").start()

    def stop(self) -> None:
        """End both threads."""
        self._end.set()
        self._news.set()
        if self._stream is not None:
            self._stream.close()

    def look(self, words: Sequence[str] | None = None, span: str | None = None) -> None:
        """Ask again now, from now on for these jobs and this span of the timeline."""
        self._words = self._words if words is None else tuple(words)
        self._span = span or self._span
        self._news.set()

    def _listen(self) -> None:
        while not self._end.is_set():
            try:
                self._stream = EventStream(self.client)
                for message in self._stream.messages():
                    if message.event == "gpus":
                        self._change(gpus=message.data, away="")
                    elif message.event == "hello":
                        self._change(host=message.data["host"], user=message.data["user"], away="")
                        self._news.set()
                    else:
                        self._news.set()
                self._leave("the daemon has ended; waiting for it")
            except DibsError as error:
                self._leave(f"{error.message.rstrip('.')}; waiting for it")
            self._end.wait(RETRY_S)

    def _leave(self, why: str) -> None:
        if not self._end.is_set():
            self._change(away=why)

    def _ask(self) -> None:
        while True:
            self._news.wait()
            if self._end.is_set():
                return
            self._news.clear()
            try:
                self._read()
            except DibsError as error:
                self._leave(f"{error.message.rstrip('.')}; waiting for it")
            self._end.wait(GATHER_S)

    def _read(self) -> None:
        jobs = queries.overview(self.client, self._words, PER_GROUP)
        starts = queries.starts(self.client, STARTS) if jobs["counts"].get("queued") else {}
        timeline = self.client.get("/v1/timeline", [("since", self._span)])
        # A list without a search has all that are active.
        active = snapshot.active_jobs(jobs, self.snapshot.active if self._words else {})
        self._change(jobs=jobs, starts=starts, timeline=timeline, active=active)

    def _change(self, **news: object) -> None:
        with self._lock:
            self.snapshot = replace(self.snapshot, **news)  # type: ignore[arg-type]
        if not self._end.is_set():
            self._tell(self.snapshot)


def first(client: Client) -> Snapshot:
    """Return what the first screen needs, with two requests; the first one starts a daemon if none runs."""
    jobs = queries.overview(client, (), PER_GROUP)
    return Snapshot(jobs=jobs, gpus=client.get("/v1/gpus"), user=users.own())
