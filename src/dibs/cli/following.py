"""Following a job to its end: its output as it comes, the terminal's signals, and a daemon that may come and go."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dibs.cli import answers
from dibs.cli.answers import Job, WholeJob
from dibs.cli.logs import Tail
from dibs.cli.signals import Signals
from dibs.client import Client
from dibs.errors import MachineError, NoDaemon

#: Seconds between looks at a growing file.
LOOK_EVERY_S = 0.1
#: Seconds of one long poll.
POLL_FOR_S = 30
#: Seconds in which a daemon that went away may come back by itself before it is started again: somebody may just be
#: upgrading it, and an old one started in between would be in the way.
COME_BACK_FOR_S = 3.0
#: Seconds after which we stop trying to reach one.
GIVE_UP_AFTER_S = 60.0


@dataclass
class Follower:
    """Follows one job. Between two steps `on_signal` is called for each signal, `on_news` for each of its states."""

    queue: Client
    signals: Signals
    on_signal: Callable[[int], None] = lambda number: None
    on_news: Callable[[Job], None] = lambda job: None
    tails: Sequence[Tail] = field(default=())

    def to_the_end(self, job: WholeJob) -> WholeJob:
        """Pass on the output of the present attempt until it has ended; return the job as it then stands."""
        attempt = job["attempt"]
        while not answers.is_finished(job) and job["attempt"] == attempt:
            self.on_news(job)
            asked_at = time.monotonic()
            job = self.ask(job["id"], "started" if job["state"] in answers.WAITING else "finished")
            if time.monotonic() - asked_at < LOOK_EVERY_S:
                # A daemon that is about to stop answers at once: do not ask it hundreds of times.
                self._look(None)
        for tail in self.tails:
            tail.drain()
        return job

    def ask(self, job_id: int, until: str = "") -> WholeJob:
        """Return the job as it is once it has started or finished, or as it is now; survive the daemon's absence."""
        lost_at: float | None = None
        while True:
            try:
                if lost_at is None or time.monotonic() - lost_at > COME_BACK_FOR_S or self._is_back():
                    return self._ask_once(job_id, until)
            except NoDaemon as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > GIVE_UP_AFTER_S:
                    text = f"lost touch with the daemon; job {job_id} goes on by itself."
                    raise MachineError(text, error.line()) from error
            self._look(None)

    def _ask_once(self, job_id: int, until: str) -> WholeJob:
        query = [("until", until), ("wait_s", str(POLL_FOR_S))] if until else []
        pending = self.queue.begin_get(f"/v1/jobs/{job_id}", query)
        try:
            while not self._look(pending.fileno()):
                pass
            job: WholeJob = pending.finish()
            return job
        finally:
            pending.close()

    def _is_back(self) -> bool:
        sock = self.queue.connect()
        if sock is not None:
            sock.close()
        return sock is not None

    def _look(self, answer: int | None) -> bool:
        """Pass on new output, then wait a moment for an answer or a signal; tell whether the answer is there."""
        has_more = [tail for tail in self.tails if tail.pump()]
        wanted = [self.signals.fileno(), *([] if answer is None else [answer])]
        ready, _, _ = select.select(wanted, [], [], 0 if has_more else LOOK_EVERY_S)
        for number in self.signals.new():
            self.on_signal(number)
        return answer is not None and answer in ready
