"""A queue and an engine in which nothing runs, for tests of what verbs decide: every verb is a separate turn."""

from __future__ import annotations

import build
from dibs.engines.job_files import JobFiles
from dibs.engines.local import Local
from dibs.engines.runner_pool import Runners
from dibs.jobqueue import control, turns
from dibs.jobqueue.validation import Submission
from dibs.model import lifecycle, selectors
from dibs.scheduling.views import Policy
from dibs.store.writer import Store
from dibs.system.settings import Settings

TABLES = ("jobs", "events", "attempts", "requests", "environs", "facts")


def nothing_is_started(fd, then):
    raise AssertionError("a verb started a process; that comes after the commit")


class Desk:
    """A queue and an engine in which nothing runs; every verb is a separate turn."""

    def __init__(self, folder, inventory):
        self.store = Store.open(folder / "dibs.db")
        runners = Runners(str(folder / "launcher.log"), nothing_is_started, nothing_is_started)
        self.files = JobFiles(folder, folder)
        self.settings = Settings(grace=30.0)
        self.engine = Local(self.files, self.settings, str(folder), folder / "notify.sock", runners)
        self.inventory = inventory
        self.now = build.NOW
        self.turn = self.new_turn()

    def new_turn(self):
        """Return an empty turn."""
        return turns.Turn(self.store, self.engine, self.files, self.settings, self.inventory, Policy(4), self.now)

    def do(self, verb, *words, **more):
        """Apply a verb to the selected jobs."""
        self.turn = self.new_turn()
        with self.store.batch():
            return verb(self.turn, selectors.parse(words), **more)

    def submit(self, *submissions):
        self.turn = self.new_turn()
        with self.store.batch():
            return control.submit(self.turn, submissions)

    def job(self, *events, **spec):
        """Submit a job and record events for it."""
        (job_id,) = self.submit(Submission(build.spec(**spec))).ids
        with self.store.batch():
            for event in events:
                self.store.record(self.store.job(job_id), event)
        return job_id

    def requests(self, *submissions):
        return [self.store.job(job_id).spec.request for job_id in self.submit(*submissions).ids]

    def rows(self):
        """Count the rows of every table."""
        return {table: self.store.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


PLACED = lifecycle.Placed(1, build.ids(0))
RUNNING = (PLACED, lifecycle.Started(2, 77))
DONE = (*RUNNING, lifecycle.Ended(3, exit_code=0))
FAILED = (*RUNNING, lifecycle.Ended(3, exit_code=1))
