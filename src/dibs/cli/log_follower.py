"""Follow a job to its end: print its output, handle signals, and survive a restart of the daemon."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dibs.cli import screen
from dibs.cli.log_output import Tail
from dibs.client import job_state
from dibs.client.answers import Job, WholeJob
from dibs.client.connection import Client
from dibs.client.job_waits import Absence
from dibs.errors import NoDaemon
from dibs.foreground.signals import Signals

#: Seconds between checks of a growing file.
LOOK_EVERY_S = 0.1
#: Seconds of one long poll.
POLL_FOR_S = 30
#: Seconds of one long poll of a job with retries: a new attempt may begin, and its output must be shown.
SHORT_POLL_FOR_S = 1


class WaitingNotes:
    """Says on a terminal why a job waits, once per reason; of a held job everywhere, because it may wait forever."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, job: Job) -> None:
        """Say why the job waits, unless that was the last note."""
        text = f"job {job['id']} waiting: {job['reason']}" if job["state"] in job_state.WAITING else ""
        if job["state"] == "held":
            text += f"; `dibs unhold {job['id']}` releases it"
        if text and text != self._last and (job["state"] == "held" or sys.stderr.isatty()):
            screen.say_if_possible(text)
        self._last = text


@dataclass
class Follower:
    """Follows one job. Calls `on_signal` for each signal and `on_news` for each state, between two steps."""

    queue: Client
    signals: Signals
    on_signal: Callable[[int], None] = lambda number: None
    on_news: Callable[[Job], None] = lambda job: None
    tails: Sequence[Tail] = ()

    def to_the_end(self, job: WholeJob) -> WholeJob:
        """Print the output of the current attempt until it has ended; return the job at that time."""
        attempt = job["attempt"]
        while not job_state.is_finished(job) and job["attempt"] == attempt:
            self.on_news(job)
            asked_at = time.monotonic()
            poll_for_s = SHORT_POLL_FOR_S if job["retries"] else POLL_FOR_S
            job = self.ask(job["id"], "started" if job["state"] in job_state.WAITING else "finished", poll_for_s)
            if time.monotonic() - asked_at < LOOK_EVERY_S and not job_state.is_finished(job):
                # A daemon that is about to stop answers at once: do not ask it hundreds of times.
                self._look(None)
        self.on_news(job)
        while [tail for tail in self.tails if tail.pump()]:
            # A terminal may be far behind: the user can interrupt before all is shown.
            self._heed()
        for tail in self.tails:
            tail.drain()
        return job

    def to_the_last_end(self, job: WholeJob) -> tuple[WholeJob, int]:
        """Print the output of this attempt and of automatic retries; return the job and its last attempt.

        The first tail is the log, which is a new file for each attempt.
        """
        attempt = job["attempt"]
        job = self.to_the_end(job)
        while job["retries"] and job["attempt"] > attempt:
            attempt += 1
            self.tails[0].turn_to(job_state.log_path(job, attempt))
            job = self.to_the_end(job) if job["attempt"] == attempt else job
            self.tails[0].drain()
        return job, attempt

    def ask(self, job_id: int, until: str = "", poll_for_s: float = POLL_FOR_S) -> WholeJob:
        """Return the job once it has started or finished, or as it is now; survive an absent daemon."""
        absence = Absence(self.queue)
        while True:
            if absence.is_over():
                try:
                    return self._ask_once(job_id, until, poll_for_s)
                except NoDaemon as error:
                    absence.record_failure(error)
            self._look(None)

    def _ask_once(self, job_id: int, until: str, poll_for_s: float) -> WholeJob:
        query = [("until", until), ("wait_s", str(poll_for_s))] if until else []
        pending = self.queue.begin_get(f"/v1/jobs/{job_id}", query)
        try:
            while not self._look(pending.fileno()):
                pass
            job: WholeJob = pending.finish()
            return job
        finally:
            pending.close()

    def _look(self, answer: int | None) -> bool:
        """Print new output, then wait briefly for an answer or a signal; return whether the answer is there."""
        has_more = [tail for tail in self.tails if tail.pump()]
        wanted = [self.signals.fileno(), *([] if answer is None else [answer])]
        ready, _, _ = select.select(wanted, [], [], 0 if has_more else LOOK_EVERY_S)
        self._heed()
        return answer is not None and answer in ready

    def _heed(self) -> None:
        for number in self.signals.new():
            self.on_signal(number)
