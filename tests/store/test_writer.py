"""The database: what was written can be read, and impossible rows are refused."""

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import build
from dibs.errors import Bug, MachineError, NotFound, UserError
from dibs.model import lifecycle, ranks, selectors
from dibs.model.jobs import BAD, Job, JobId, Outcome, Request, State
from dibs.scheduling.views import Active, WaitingJob
from dibs.store import copies, database, rows, writer
from dibs.store.writer import SETTLE_AFTER, BatchTally, EventRow, PastAttempt, Reader, Store

REQUESTS = (
    Request(0),
    Request(1),
    Request(2, prefer=build.ids(3, 1)),
    Request(2, gpu_ids=build.ids(0, 2)),
    Request(1, gpu_type="a100"),
    Request(1, cpus=2, mem=2**35, limit_s=90.5),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "dibs.db"


@pytest.fixture
def store(path):
    with contextlib.closing(Store.open(path)) as opened:
        yield opened


def submit(store, *many, now=build.NOW):
    with store.batch():
        return store.submit(many or [build.spec()], now)


def record(store, job_id, *events):
    with store.batch():
        for event in events:
            store.record(store.job(job_id), event)
    return store.job(job_id)


def run(store, job_id, **end):
    """Run a job to its end."""
    ended = lifecycle.Ended(3, **(end or {"exit_code": 0}))
    return record(store, job_id, lifecycle.Placed(1, build.ids(0)), lifecycle.Started(2, 77), ended)


def ids_of(store, *words, now=build.NOW):
    return store.select_ids(selectors.parse(words), now)


def raw(path, *statements):
    """Change a database without the store."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def everything_in(folder):
    """Return all files below a folder with their contents."""
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# -- against a plain dictionary -----------------------------------------------------------------------------------

#: Selectors, and the jobs they match: the job, its age in milliseconds, how many are newer.
SELECTORS = (
    ("all", lambda job, age, newer: True),
    ("2", lambda job, age, newer: job.id == 2),
    ("1,3 5-6", lambda job, age, newer: job.id in (1, 3, 5, 6)),
    ("@", lambda job, age, newer: newer == 0),
    ("@~2", lambda job, age, newer: newer == 2),
    ("queued", lambda job, age, newer: job.state is State.QUEUED),
    ("bad", lambda job, age, newer: job.outcome in BAD),
    ("finished", lambda job, age, newer: job.is_finished),
    ("unfinished", lambda job, age, newer: not job.is_finished),
    ("name:a*", lambda job, age, newer: job.spec.name.startswith("a")),
    ("name:a", lambda job, age, newer: job.spec.name == "a"),
    ("project:p?", lambda job, age, newer: job.spec.project == "p1"),
    ("tag:y", lambda job, age, newer: "y" in job.spec.tags),
    ("since:3s", lambda job, age, newer: age <= 3000),
    ("1-4+unfinished", lambda job, age, newer: job.id <= 4 and not job.is_finished),
    ("name:*b+bad done", lambda job, age, newer: job.word == "done" or (job.spec.name == "ab" and job.outcome in BAD)),
)


def some_spec(number):
    """Return one of many job specs."""
    dice = build.Dice(number.to_bytes(8, "big"))
    return build.spec(
        dice.one(["true", "echo 'ä' | cat", "x" * 3000]),
        argv=dice.one([None, ("echo", "", "a b", "ä")]),
        request=dice.one(REQUESTS),
        name=dice.one(["a", "ab", "c"]),
        project=dice.one(["default", "p1"]),
        priority=dice.number(-1, 1),
        tags=dice.one([(), ("x", "y")]),
        env=dice.one([(), (("LR", "0.1"), ("S", "'\"\\"))]),
        begin_at=dice.one([None, None, build.NOW]),
        retries=dice.one([0, 2]),
        visible=dice.one([None, "uuid", "index"]),
        output=dice.one([None, "{id}.txt"]),
        umask=dice.one([0, 0o077]),
    )


class Oops(Exception):
    """An error raised on purpose."""


class StoreComparedWithDictionary(RuleBasedStateMachine):
    """Everything that happens to the store happens to a dictionary too, and both must agree."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="dibs-store-"))
        self.path = self.folder / "0.db"
        self.now = build.NOW
        self.jobs: dict[JobId, Job] = {}
        self.events: dict[JobId, list[EventRow]] = {}
        self.attempts: dict[JobId, list[PastAttempt]] = {}
        self.store = Store.open(self.path)
        self.reader = Reader.open(self.path)

    def teardown(self):
        self.reader.close()
        self.store.close()
        shutil.rmtree(self.folder)

    # -- events

    def _submit(self, numbers):
        many = [some_spec(number) for number in numbers]
        first = len(self.jobs) + 1
        given = self.store.submit(many, self.now)
        assert given == list(range(first, first + len(many)))
        for job_id, asked in zip(given, many, strict=True):
            self.jobs[job_id] = Job(job_id, asked, self.now, rank=ranks.rank_of_id(job_id))
            self.events[job_id] = [EventRow(self.now, "Submitted", "")]
            self.attempts[job_id] = []

    def _record(self, number):
        job = self.jobs[JobId(number % len(self.jobs) + 1)]
        event = build.event(job, number // 7, self.now)
        assert self.store.record(job, event) == lifecycle.advance(job, event)
        self._happened(job, event)

    def _happened(self, job, event):
        moved = self.jobs[job.id] = lifecycle.advance(job, event)
        self.events[job.id].append(EventRow(self.now, type(event).__name__, moved.remark or ""))
        if moved.is_finished:
            past = PastAttempt(
                *(moved.attempt, moved.outcome.value, moved.cause, moved.exit_code, moved.signal),
                *(moved.allocation, moved.started_at, moved.finished_at),
            )
            # A job that was given up before it started and is retried is still at its first attempt.
            self.attempts[job.id][moved.attempt - 1 :] = [past]
        if isinstance(event, lifecycle.Evicted):
            began = job.started_at if event.started_at is None else event.started_at
            past = PastAttempt(
                *(job.attempt, "evicted", None, event.exit_code, event.signal), *(job.allocation, began, event.at)
            )
            self.attempts[job.id][job.attempt - 1 :] = [past]

    @contextlib.contextmanager
    def _undone(self):
        """Expect the changes inside to be undone."""
        kept = self.jobs, self.events, self.attempts
        self.jobs = dict(self.jobs)
        self.events = {job_id: list(events) for job_id, events in self.events.items()}
        self.attempts = {job_id: list(attempts) for job_id, attempts in self.attempts.items()}
        with contextlib.suppress(Oops):
            yield
        self.jobs, self.events, self.attempts = kept

    @initialize(numbers=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3))
    def begin(self, numbers):
        self.jobs_are_submitted(numbers)

    @rule(numbers=st.lists(st.integers(0, 2**64 - 1), max_size=3))
    def jobs_are_submitted(self, numbers):
        self.now += 1000
        with self.store.batch():
            self._submit(numbers)

    @rule(numbers=st.lists(build.NUMBERS, min_size=1, max_size=6))
    def things_happen_to_jobs(self, numbers):
        self.now += 1000
        with self.store.batch():
            for number in numbers:
                self._record(number)

    @rule(before=build.NUMBERS, lost=build.NUMBERS, after=build.NUMBERS)
    def a_step_fails_inside_a_batch(self, before, lost, after):
        with self.store.batch():
            self._record(before)
            with self._undone(), self.store.step():
                self._submit([lost])
                self._record(lost)
                raise Oops
            self._record(after)

    @rule(number=build.NUMBERS)
    def a_whole_batch_fails(self, number):
        with self._undone(), self.store.batch():
            self._record(number)
            with self.store.step():
                self._submit([number])
            raise Oops

    @rule()
    def the_store_is_closed_and_opened(self):
        self.reader.close()
        self.store.close()
        self.store, self.reader = Store.open(self.path), Reader.open(self.path)

    @rule()
    def the_machine_loses_power(self):
        """Continue with the files as they are on disk, closed by nobody."""
        new = self.folder / f"{int(self.path.stem) + 1}.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", f"{new}{suffix}")
        self.path = new
        self.the_store_is_closed_and_opened()

    @rule(selector=st.sampled_from(SELECTORS))
    def selectors_are_evaluated(self, selector):
        chosen, meant = self._meant(selector)
        assert self.reader.select(chosen, self.now) == meant
        assert self.reader.select(chosen, self.now, most=2) == meant[:2]
        assert self.reader.select_ids(chosen, self.now) == [job.id for job in meant]
        assert self.reader.tally(chosen, self.now) == Counter(job.word for job in meant)

    def _meant(self, selector, state=None):
        words, means = selector
        found = [job for job in self.jobs.values() if means(job, self.now - job.submitted_at, len(self.jobs) - job.id)]
        return selectors.parse(words.split()), [job for job in found if state is None or job.state is state]

    @rule(selector=st.sampled_from(SELECTORS))
    def many_are_cancelled_at_once(self, selector):
        self.now += 1000
        chosen, meant = self._meant(selector)
        waiting = [job for job in meant if job.is_waiting]
        with self.store.batch():
            assert self.store.cancel_waiting(chosen, self.now).named == [job.id for job in waiting]
        for job in waiting:
            self._happened(job, lifecycle.CancelAsked(self.now))

    @rule(selector=st.sampled_from(SELECTORS))
    def many_are_held_at_once(self, selector):
        self.now += 1000
        chosen, queued = self._meant(selector, State.QUEUED)
        with self.store.batch():
            assert self.store.hold(chosen, self.now) == [job.id for job in queued]
        for job in queued:
            self._happened(job, lifecycle.HoldAsked(self.now))

    @rule(selector=st.sampled_from(SELECTORS))
    def many_are_unheld_at_once(self, selector):
        self.now += 1000
        chosen, held = self._meant(selector, State.HELD)
        with self.store.batch():
            assert self.store.unhold(chosen, self.now)[0] == [job.id for job in held]
        for job in held:
            self._happened(job, lifecycle.UnholdAsked(self.now))

    @rule(selector=st.sampled_from(SELECTORS), also_done=st.booleans())
    def many_are_retried_at_once(self, selector, also_done):
        self.now += 1000
        chosen, finished = self._meant(selector, State.FINISHED)
        outcomes = [outcome for outcome in Outcome if also_done or outcome is not Outcome.DONE]
        ended_so = [job for job in finished if job.outcome in outcomes]
        with self.store.batch():
            assert self.store.retry(chosen, outcomes, self.now).named == [job.id for job in ended_so]
        for job in ended_so:
            self._happened(job, lifecycle.RetryAsked(self.now))

    @rule(number=build.NUMBERS, where=st.sampled_from(["first", "last", "before", "after"]))
    def one_is_moved(self, number, where):
        """It is where it was put, and the order of all others is unchanged."""
        waiting = [job for job in self.jobs.values() if job.is_waiting]
        job = waiting[number % len(waiting)] if waiting else None
        line = [other for other in waiting if job is not None and other.spec.priority == job.spec.priority]
        line = sorted((other for other in line if other != job), key=lambda other: (other.rank, other.id))
        if job is None or not line:
            return
        other = line[number // 7 % len(line)]
        with self.store.batch():
            self.store.move(job, where, other if where in ("before", "after") else None)
        moved = self.jobs[job.id] = self.store.job(job.id)
        spot = {"first": 0, "last": len(line), "before": line.index(other), "after": line.index(other) + 1}[where]
        expected = [one.id for one in (*line[:spot], moved, *line[spot:])]
        assert [one.id for one in sorted([*line, moved], key=lambda one: (one.rank, one.id))] == expected

    # -- invariants

    @invariant()
    def the_cache_equals_the_database(self):
        for job_id in self.jobs:
            assert self.store.job(job_id) == Reader.job(self.store, job_id)

    @invariant()
    def every_job_is_as_it_should_be(self):
        assert [self.reader.job(job_id) for job_id in self.jobs] == list(self.jobs.values())
        assert self.reader.last_id() == len(self.jobs)

    @invariant()
    def everything_that_happened_is_told(self):
        assert {job_id: self.reader.events(job_id) for job_id in self.jobs} == self.events

    @invariant()
    def every_finished_attempt_is_kept(self):
        assert {job_id: self.reader.attempts(job_id) for job_id in self.jobs} == self.attempts

    @invariant()
    def the_kept_counts_equal_a_recount(self):
        counted = Counter(job.word for job in self.jobs.values())
        assert self.reader.counts() == {word: counted[word] for word in selectors.STATE_WORDS}

    @invariant()
    def the_lines_are_as_long_as_jobs_wait_in_them(self):
        kept = self.reader.connection.execute(
            "SELECT queued, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable, "
            "engine "
            "FROM requests JOIN lines ON request = requests.id"
        )
        # Counters are equal even if one of them has a zero and the other nothing.
        lengths: Counter[Request] = Counter()
        for queued, *request in kept:
            lengths[rows.request_of(request)] += queued
        assert lengths == Counter(j.spec.request for j in self.jobs.values() if j.state is State.QUEUED)

    @invariant()
    def those_under_way_are_known_with_their_devices(self):
        active = [job for job in self.jobs.values() if job.is_active]
        assert self.reader.active() == active
        assert self.reader.active_devices() == [
            Active(
                j.id,
                j.allocation,
                j.spec.request.cpus,
                j.spec.request.mem,
                j.spec.time_limit_s,
                j.started_at,
                evicted_by=j.evicted_by,
                leaves_at=j.leaves_at,
                project=j.spec.project,
            )
            for j in active
        ]

    @invariant()
    def the_head_of_each_line_is_served_by_priority_and_age(self):
        queue = sorted(
            (job for job in self.jobs.values() if job.state is State.QUEUED),
            key=lambda job: (-job.spec.priority, job.rank, job.id),
        )
        lines: dict[object, list[Job]] = {}
        for job in queue:
            lines.setdefault((job.spec.request, job.spec.project), []).append(job)
        expected = {
            WaitingJob(job.id, job.spec.request, job.spec.priority, rank=job.rank, project=job.spec.project)
            for line in lines.values()
            for job in line[:2]
        }
        found = self.reader.head(2)
        assert len(found) == len(expected)
        assert set(found) == expected

    @invariant()
    def the_overview_shows_the_unfinished_and_the_latest_finished(self):
        unfinished = [job for job in self.jobs.values() if not job.is_finished][:3]
        finished = sorted(
            (job for job in self.jobs.values() if job.is_finished), key=lambda job: (job.finished_at, job.id)
        )[-2:]
        assert self.reader.overview(3, 2) == sorted([*unfinished, *finished], key=lambda job: job.id)


StoreComparedWithDictionary.TestCase.settings = settings(
    max_examples=settings.default.max_examples // 3, stateful_step_count=15
)
TestStoreComparedWithDictionary = StoreComparedWithDictionary.TestCase


# -- jobs ---------------------------------------------------------------------------------------------------------


def test_ids_start_at_one_and_are_consecutive(store):
    assert submit(store, *[build.spec()] * 3) == [1, 2, 3]


def test_the_id_of_a_deleted_job_is_never_reused(store, path):
    submit(store, *[build.spec()] * 3)
    store.close()
    raw(path, "DELETE FROM jobs WHERE id >= 2")
    with contextlib.closing(Store.open(path)) as again:
        assert submit(again) == [4]


def test_a_deleted_job_is_no_longer_counted(store, path):
    submit(store, *[build.spec()] * 3)
    raw(path, "DELETE FROM jobs WHERE id = 2")
    assert store.counts()["queued"] == 2
    assert [job.id for job in store.head(9)] == [1, 3]


def test_the_error_about_an_unknown_job_names_the_newest(store):
    submit(store, *[build.spec()] * 2)
    for unknown in (0, -1, 3, 2**63, -(2**70)):
        with pytest.raises(NotFound, match=rf"there is no job {unknown} \(the newest is 2\)"):
            store.job(unknown)


def test_before_the_first_job_the_error_says_so(store):
    with pytest.raises(NotFound, match="there is no job 1: no job yet"):
        store.job(1)


def test_an_impossible_event_changes_nothing(store):
    submit(store)
    with pytest.raises(Bug, match="Resumed cannot happen"), store.batch():
        store.record(store.job(1), lifecycle.Resumed(1))
    assert store.job(1).state is State.QUEUED
    assert len(store.events(1)) == 1


def test_an_event_for_an_outdated_job_is_a_bug_and_changes_nothing(store):
    submit(store)
    stale = store.job(1)
    held = record(store, 1, lifecycle.HoldAsked(5))
    with pytest.raises(Bug, match="job 1 is no longer queued"), store.batch():
        store.record(stale, lifecycle.Placed(6, build.ids(0)))
    assert store.job(1) == held


def test_an_event_is_stored_with_its_detail(store):
    submit(store)
    with store.batch():
        store.record(store.job(1), lifecycle.Placed(8, build.ids(0)), "FAKE-0")
        store.note(1, 9, "Stuck", "could not be killed: 77")
    assert store.events(1)[1:] == [EventRow(8, "Placed", "FAKE-0"), EventRow(9, "Stuck", "could not be killed: 77")]


def test_each_attempt_of_a_retried_job_keeps_its_result(store):
    submit(store)
    run(store, 1, exit_code=3)
    record(store, 1, lifecycle.RetryAsked(4))
    run(store, 1, exit_code=0)
    assert [(past.attempt, past.outcome) for past in store.attempts(1)] == [(1, "failed"), (2, "done")]


def test_an_environment_is_stored_once_per_content(store):
    with store.batch():
        first, same, other = (store.keep_environ(blob) for blob in (b"A=1", b"A=1", b"A=2\0B=\xff"))
    assert first == same != other
    assert (store.environ(first), store.environ(other), store.environ(None)) == (b"A=1", b"A=2\0B=\xff", b"")


def test_a_fact_has_the_value_set_last(store):
    assert store.fact("paused") is None
    for value in ("yes", "no"):
        with store.batch():
            store.set_fact("paused", value)
    assert store.fact("paused") == "no"


# -- selectors ----------------------------------------------------------------------------------------------------


def test_thousands_of_ids_can_be_selected_at_once(store):
    submit(store, *[build.spec()] * 6000)
    odd = [str(n) for n in range(1, 6000, 2)]
    assert ids_of(store, *odd) == ids_of(store, ",".join(odd)) == [int(word) for word in odd]


def test_the_maximum_number_of_selectors_can_be_evaluated(store):
    submit(store, build.spec(name="x"))
    words = [f"name:x{'*' * n}" for n in range(selectors.MOST_PARTS)]
    assert ids_of(store, *words) == ids_of(store, "+".join(words)) == [1]


def test_a_selector_cannot_inject_sql(store):
    submit(store, build.spec(name="x"))
    assert ids_of(store, "name:' OR 1=1 --", "project:x') OR ('1", "tag:?", "name:{where}", "name::most") == []


def test_without_a_selector_no_job_is_selected(store):
    submit(store)
    assert ids_of(store) == []


def test_a_relative_selector_beyond_the_oldest_job_matches_nothing(store):
    submit(store)
    assert ids_of(store, "@~999999999999999999") == []


def test_an_unknown_sweep_is_an_error(store):
    with pytest.raises(UserError, match='there is no sweep "lr"'):
        ids_of(store, "sweep:lr")


# -- transactions -------------------------------------------------------------------------------------------------


def test_a_reader_sees_no_part_of_an_uncommitted_batch(store, path):
    with contextlib.closing(Reader.open(path)) as reader:
        with store.batch():
            store.submit([build.spec()], 1)
            assert reader.last_id() == 0
        assert reader.last_id() == 1


def test_a_reader_cannot_write(store, path):
    with contextlib.closing(Reader.open(path)) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.connection.execute("DELETE FROM jobs")


def test_a_batch_after_a_failed_one_is_committed(store):
    with contextlib.suppress(Oops), store.batch():
        store.submit([build.spec("first")], 1)
        raise Oops
    assert submit(store, build.spec("second")) == [1]
    assert store.job(1).spec.command == "second"


# -- impossible rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "state = 'sleeping'",
        "state = 'finished'",
        "state = 'finished', outcome = 'done', exit_code = 0",
        "state = 'finished', finished_at = 9",
        "outcome = 'cancelled', finished_at = 9",
        "finished_at = 9",
        "state = 'running'",
        "state = 'starting', start = 0",
        "allocation = '[\"FAKE-0\"]'",
        "pid = 77",
        "started_at = 9",
        "state = 'finished', finished_at = 9, outcome = 'done'",
        "state = 'finished', finished_at = 9, outcome = 'done', exit_code = 1",
        "state = 'finished', finished_at = 9, outcome = 'done', exit_code = 0, cause = 'exit'",
        "state = 'finished', finished_at = 9, outcome = 'failed', exit_code = 1",
        "state = 'finished', finished_at = 9, outcome = 'lost'",
        "state = 'finished', finished_at = 9, outcome = 'timeout'",
        "state = 'finished', finished_at = 9, outcome = 'won'",
        "state = 'finished', finished_at = 9, outcome = 'failed', cause = 'boredom'",
        "attempt = 0",
        "start = -1",
        "dead_starts = -1",
        "retries = -1",
        "is_ready = 2",
        "batch = 999",
        "visible = 'name'",
        "argv = 'echo'",
        "env = ''",
        "tags = 'x'",
        "priority = 'high'",
        "priority = 0.5",
        "name = NULL",
        "request = 999",
        "environ = 999",
    ],
)
def test_an_impossible_row_is_refused_by_the_schema(store, change):
    submit(store)
    before = store.job(1)
    with pytest.raises(sqlite3.IntegrityError), store.batch():
        store.connection.execute(f"UPDATE jobs SET {change} WHERE id = 1")
    assert store.job(1) == before


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO requests VALUES (NULL, -1, '[]', '[]', '', 0, 0, 0.0, 0, 0, 'no', 'local')",
        "INSERT INTO requests VALUES (NULL, 1, '0', '[]', '', 0, 0, 0.0, 0, 0, 'no', 'local')",
        "INSERT INTO requests VALUES (NULL, 1, '[]', '[]', '', 0, 0, 0.0, -1, 0, 'no', 'local')",
        "INSERT INTO requests VALUES (NULL, 1, '[]', '[]', '', 0, 0, 0.0, 0, 2, 'no', 'local')",
        "INSERT INTO requests SELECT NULL, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, "
        "evictable, engine FROM requests",
        "INSERT INTO requests VALUES (NULL, 1, '[]', '[]', '', 0, 0, 0.0, 0, 0, 'maybe', 'local')",
        "UPDATE jobs SET leaves_at = 1",
        "UPDATE lines SET queued = -1",
        "INSERT INTO batches (at_once) VALUES (0)",
        "INSERT INTO dependencies VALUES (999, 1, 'done')",
        "INSERT INTO dependencies VALUES (1, 1, 'maybe')",
        "UPDATE counts SET n = -1",
        "INSERT INTO attempts (job, attempt, outcome, allocation, finished_at) VALUES (999, 1, 'done', '[]', 1)",
    ],
)
def test_the_other_tables_refuse_impossible_rows_too(store, statement):
    submit(store)
    with pytest.raises(sqlite3.IntegrityError), store.batch():
        store.connection.execute(statement)


def test_events_can_never_be_altered(store):
    submit(store)
    with pytest.raises(sqlite3.IntegrityError, match="an event is never altered"), store.batch():
        store.connection.execute("UPDATE events SET detail = 'it was somebody else'")
    assert store.events(1) == [EventRow(build.NOW, "Submitted", "")]


# -- the file -----------------------------------------------------------------------------------------------------


def refused(path, error=MachineError):
    """Open a file that must be refused in one line and left unchanged, with no new file beside it; return the line."""
    before = everything_in(path.parent)
    with pytest.raises(error) as caught:
        Store.open(path)
    assert everything_in(path.parent) == before
    line = caught.value.line()
    assert str(path) in line
    assert "\n" not in line
    return line


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Return the bytes of a database with some jobs, closed properly."""
    path = tmp_path_factory.mktemp("sound") / "dibs.db"
    with contextlib.closing(Store.open(path)) as store:
        submit(store, *[build.spec("x" * 200)] * 300)
    return path.read_bytes()


def test_the_files_are_private(path):
    before = os.umask(0)
    try:
        with contextlib.closing(Store.open(path)) as store:
            submit(store)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"dibs.db": 0o600, "dibs.db-wal": 0o600, "dibs.db-shm": 0o600}


def test_a_commit_returns_only_when_it_is_on_disk(store):
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_schema_is_not_trusted(store):
    assert store.connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
    assert store.connection.execute("PRAGMA cell_size_check").fetchone() == (1,)


def test_an_unsynced_commit_is_kept_and_the_next_one_is_synced_again(store, path):
    with store.batch(is_synced=False):
        assert store.connection.execute("PRAGMA synchronous").fetchone() == (1,)
        store.submit([build.spec()], build.NOW)
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    with contextlib.closing(Reader.open(path)) as reader:
        assert reader.job(JobId(1)).word == "queued"
    with contextlib.suppress(Oops), store.batch(is_synced=False):
        raise Oops
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)


def log_of(path):
    return path.with_name("dibs.db-wal")


def test_the_wal_is_allocated_before_the_first_commit_and_keeps_its_size(store, path):
    assert log_of(path).stat().st_size == database.LOG_BYTES
    for _ in range(8 * SETTLE_AFTER):
        submit(store)
        store.settle()
    assert log_of(path).stat().st_size == database.LOG_BYTES
    submit(store)
    with contextlib.closing(Reader.open(path)) as reader:
        assert reader.counts()["queued"] == 8 * SETTLE_AFTER + 1


def test_the_wal_is_not_checkpointed_after_few_commits(store, path):
    before = path.read_bytes()
    submit(store)
    store.settle()
    assert path.read_bytes() == before


def test_commits_of_a_killed_writer_are_recovered_from_a_preallocated_wal(store, path, tmp_path):
    submit(store, build.spec("kept"))
    (tmp_path / "copy").mkdir()
    for name in ("dibs.db", "dibs.db-wal"):
        (tmp_path / "copy" / name).write_bytes((path.parent / name).read_bytes())
    with contextlib.closing(Store.open(tmp_path / "copy" / "dibs.db")) as again:
        assert again.job(JobId(1)).spec.command == "kept"
        assert submit(again) == [2]


@pytest.mark.parametrize("zeros", [32, 4096, database.LOG_BYTES])
def test_a_preallocated_wal_of_zeros_is_empty(path, sound, zeros):
    path.write_bytes(sound)
    log_of(path).write_bytes(bytes(zeros))
    with contextlib.closing(Store.open(path)) as store:
        assert store.counts()["queued"] == 300


def test_a_database_that_cannot_be_guarded_is_closed_again(path, monkeypatch):
    opened = []

    def fail(connection, path):
        opened.append(connection)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(writer, "Custody", fail)
    with pytest.raises(OSError, match="Too many open files"):
        Store.open(path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_truncated_file_is_detected_beside_a_preallocated_wal(path, sound):
    path.write_bytes(sound[:-100])
    log_of(path).write_bytes(bytes(database.LOG_BYTES))
    with pytest.raises(MachineError, match="ends in the middle of a page"):
        Store.open(path)
    assert path.read_bytes() == sound[:-100]


def test_without_disk_space_the_wal_is_not_preallocated(path):
    script = f"""
import pathlib, resource, signal
from dibs.store import database
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2 ** 20, resource.RLIM_INFINITY))
connection, _ = database.open_writer(pathlib.Path({str(path)!r}))
assert pathlib.Path({str(log_of(path))!r}).stat().st_size < 2 ** 20
assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_edited_active_job_is_read_from_the_database(store):
    submit(store)
    job = record(store, JobId(1), lifecycle.Placed(1, build.ids(0)))
    with store.batch():
        store.edit(job, build.spec(limit_s=90.0), 2, "limit")
        assert store.job(JobId(1)).spec.time_limit_s == 90.0
    assert store.job(JobId(1)).spec.time_limit_s == 90.0


def test_a_step_that_is_rolled_back_is_rolled_back_in_the_cache_too(store):
    submit(store)
    with store.batch():
        with contextlib.suppress(Oops), store.step():
            store.record(store.job(JobId(1)), lifecycle.Placed(1, build.ids(0)))
            raise Oops
        assert store.job(JobId(1)).word == "queued"


def test_a_step_on_a_full_disk_raises_the_disk_error(store):
    """SQLite rolls back the whole batch then; an error about the missing savepoint would hide the cause."""
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"), store.batch(), store.step():
        store.keep_script(b"x" * 10_000_000)
    store.connection.execute("PRAGMA max_page_count = 1000000")
    submit(store)
    assert store.job(JobId(1)).word == "queued"


def test_a_job_finished_and_deleted_in_one_batch_is_not_found(store):
    submit(store)
    with store.batch():
        for event in (lifecycle.Placed(1, build.ids(0)), lifecycle.Ended(2, exit_code=0)):
            store.record(store.job(JobId(1)), event)
        assert store.job(JobId(1)).word == "done"
        assert store.forget([JobId(1)], with_checkpoints=False) == [1]
        with pytest.raises(NotFound):
            store.job(JobId(1))


@pytest.mark.parametrize("name", ["a b?c#d%41.db", "ä.db"])
def test_any_file_name_works(tmp_path, name):
    with contextlib.closing(Store.open(tmp_path / name)) as store:
        submit(store)
        with contextlib.closing(Reader.open(tmp_path / name)) as reader:
            assert reader.last_id() == 1


def test_the_file_of_the_first_release_is_upgraded_with_its_batches(path):
    path.touch(0o600)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(database.read_sql("001_schema.sql"))
        old.executescript(
            f"""
            PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;
            INSERT INTO requests VALUES (1, 0, '[]', '[]', '', 0, 0, 0);
            INSERT INTO batches (id, bad) VALUES (1, 1);
            INSERT INTO jobs (command, cwd, request, name, project, priority, env, umask, tags, batch, submitted_at,
                state, outcome, cause, exit_code, finished_at)
            VALUES ('a', '/', 1, '', 'p', 0, '[]', 0, '[]', 1, 1, 'finished', 'done', NULL, 0, 2),
                ('b', '/', 1, '', 'p', 0, '[]', 0, '[]', 1, 1, 'finished', 'failed', 'exit', 1, 2),
                ('c', '/', 1, '', 'p', 0, '[]', 0, '[]', 1, 1, 'queued', NULL, NULL, NULL, NULL),
                ('d', '/', 1, '', 'p', 0, '[]', 0, '[]', 0, 1, 'queued', NULL, NULL, NULL, NULL);
            """
        )
    with contextlib.closing(Store.open(path)) as store:
        assert store.batch_tally(1) == BatchTally(size=3, finished=2, done=1, bad=1)
        assert (store.job(JobId(4)).spec.no_wait, store.job(JobId(4)).spec.notify) == (False, None)
        run(store, JobId(3))
        assert store.batch_tally(1) == BatchTally(size=3, finished=3, done=2, bad=1)
        record(store, JobId(3), lifecycle.RetryAsked(4))
        assert store.batch_tally(1) == BatchTally(size=3, finished=2, done=1, bad=1)


def test_the_file_of_a_newer_dibs_is_refused_and_unchanged(store, path):
    store.close()
    raw(path, "PRAGMA user_version = 99")
    assert "was written by a newer dibs (schema 99" in refused(path, UserError)


def test_a_job_of_the_first_schema_survives_the_upgrade(path):
    job = (
        "INSERT INTO jobs (command, cwd, request, name, project, priority, env, umask, tags, submitted_at)"
        " VALUES ('old', '/', 1, 'old', 'default', 0, '[]', 18, '[]', 0);"
    )
    captured = "INSERT INTO environs VALUES (7, x'00', x'00'); UPDATE jobs SET environ = 7, cwd = '/mine' WHERE id = 2;"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(database.read_sql("001_schema.sql"))
        connection.executescript("INSERT INTO requests VALUES (1, 1, '[]', '[]', '', 0, 0, 0);" + job + job + captured)
        connection.executescript(f"PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;")
    with contextlib.closing(Store.open(path)) as store:
        old = store.job(JobId(1)).spec
        assert (old.command, old.script, old.index, old.warn, old.metrics) == ("old", None, None, None, ())
        assert (old.comment, old.environ_from) == (None, "")
        assert store.folders(9) == [("/mine", 2)]
        assert store.connection.execute("PRAGMA user_version").fetchone() == (len(database.MIGRATIONS),)


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE t (x)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"],
    ids=["with tables", "with a version", "of another program"],
)
def test_the_database_of_another_program_is_refused_and_unchanged(path, statement):
    raw(path, statement)
    assert "is not a database of dibs" in refused(path, UserError)


def test_the_file_of_an_older_dibs_is_upgraded_after_a_backup(path):
    first = database.read_sql(database.MIGRATIONS[0])
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(f"{first} PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;")
    with contextlib.closing(Store.open(path)) as store:
        assert submit(store) == [1]
        assert store.runtimes(b"anything") == []
    assert [copy.name for copy in copies.numbered(path)] == ["dibs.db.1"]


def test_an_empty_file_becomes_a_database(path):
    path.touch(0o600)
    with contextlib.closing(Store.open(path)) as store:
        assert submit(store) == [1]


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 4096, b"hello", b"garbage " * 4096, b"SQLite format 3\0" * 256])
def test_a_file_of_garbage_is_refused_and_unchanged(path, garbage):
    path.write_bytes(garbage)
    assert "is damaged" in refused(path)


@pytest.mark.parametrize("kept", [1, 16, 99, 100, 512, 4095, 4096, 4097, 40_960, 0.5, -4096, -100, -1])
def test_a_truncated_file_is_refused_and_unchanged(path, sound, kept):
    path.write_bytes(sound[: int(len(sound) * kept) if isinstance(kept, float) else kept])
    assert "is damaged" in refused(path)


@pytest.mark.parametrize("page", [1, 5, 20])
def test_a_file_with_a_broken_page_is_refused_and_unchanged(path, sound, page):
    path.write_bytes(sound[: page * 4096] + b"\xff" * 4096 + sound[(page + 1) * 4096 :])
    assert "is damaged" in refused(path)


@pytest.fixture
def used(path):
    """Return a database that was last used in the boot that is called `this`."""
    with contextlib.closing(Store.open(path)) as store, store.batch():
        store.set_fact("boot", "this")
        store.submit([build.spec("x" * 200)] * 300, build.NOW)
    return path


def is_checked_first(path, boot="this", small_bytes=0):
    connection, is_checked = database.open_writer(path, boot, small_bytes)
    connection.close()
    return is_checked


def test_a_large_file_last_used_in_this_boot_is_checked_later(used):
    assert not is_checked_first(used)


def test_every_other_file_is_checked_first(used, tmp_path):
    assert is_checked_first(used, boot="another")
    assert is_checked_first(used, boot=None)
    assert is_checked_first(used, small_bytes=2**20)
    assert is_checked_first(tmp_path / "new.db")
    assert not is_checked_first(used)


def test_the_later_check_of_a_sound_file_reports_nothing(used):
    check = database.Check(used)
    check.run()
    check.stop()
    assert not is_checked_first(used)


def test_after_the_later_check_found_damage_the_file_is_checked_before_use(used):
    whole = used.read_bytes()
    used.write_bytes(whole[: 20 * 4096] + b"\xff" * 4096 + whole[21 * 4096 :])
    assert not is_checked_first(used)
    with pytest.raises(MachineError, match="is damaged"):
        database.Check(used).run()
    with pytest.raises(MachineError, match="is damaged"):
        is_checked_first(used)
    used.write_bytes(whole)
    assert is_checked_first(used)
    assert not is_checked_first(used)


def test_an_interrupted_check_reports_nothing(used):
    """Whatever it would have reported: it was interrupted halfway."""
    check = database.Check(used)
    check._connection.set_progress_handler(lambda: (check.stop(), 1)[1], 1)
    check.run()
    assert not is_checked_first(used)


def test_the_error_about_a_damaged_file_says_how_to_restore_it(path):
    path.write_bytes(b"garbage " * 1000)
    assert "dibs doctor --repair" in refused(path)


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path):
    folder = tmp_path / "dibs.db"
    folder.mkdir()
    assert f"{folder} cannot be opened (unable to open database file)" in refused(folder)


def test_a_sound_file_is_opened(path, sound):
    path.write_bytes(sound)
    with contextlib.closing(Store.open(path)) as store:
        assert store.counts()["queued"] == 300


# -- a million jobs -----------------------------------------------------------------------------------------------

EVERY_TURN = (
    "due",
    "next_begin",
    "lines",
    "head_of_line",
    "active_devices",
    "waiting_engines",
    "active_on",
    "job",
    "dependants",
    "outcomes",
    "counts",
)
#: The queries of a move, and of the cleanup every half minute.
OFTEN = (
    "first_rank",
    "last_rank",
    "rank_before",
    "rank_after",
    "is_outranked",
    "finished_first",
    "finished_before",
    "count_finished_before",
)
FORECASTS = ("to_begin", "first_dependants", "batch_room", "runtimes", "add_runtime")


@pytest.mark.parametrize("name", EVERY_TURN + OFTEN + FORECASTS)
def test_no_query_of_a_turn_or_a_forecast_scans_all_jobs(store, name):
    names = (
        "since",
        "now",
        "request",
        "batch",
        "group",
        "project",
        "most",
        "id",
        "job",
        "took_ms",
        "likeness",
        "priority",
        "rank",
        "moment",
        "event",
        "engine",
    )
    values = dict.fromkeys(names, 1)
    steps = [row[3] for row in store.connection.execute(f"EXPLAIN QUERY PLAN {store.queries[name]}", values)]
    assert [step for step in steps if step in ("SCAN jobs", "SCAN dependencies", "SCAN runtimes")] == []
    assert not [step for step in steps if "TEMP B-TREE" in step and name in FORECASTS]


@pytest.mark.parametrize("word", ["running", "queued", "unfinished"])
def test_selectors_of_few_jobs_do_not_scan_finished_ones(store, word):
    where, values = store.where(selectors.parse([word]), build.NOW)
    query = store.queries["selected_words"].replace("{where}", where)
    steps = [row[3] for row in store.connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert any(step.startswith("SCAN jobs USING INDEX jobs_") for step in steps), steps


# -- older databases ----------------------------------------------------------------------------------------------


def test_a_new_database_equals_one_that_was_upgraded_from_the_first_version(path, tmp_path):
    def content(file):
        with contextlib.closing(database.open_writer(file)[0]) as connection:
            objects = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
            tables = [name for kind, name, *_ in objects if kind == "table"]
            rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
            pragmas = ("user_version", "application_id", "journal_mode", "page_size")
            return sorted(objects, key=str), rows, [connection.execute(f"PRAGMA {name}").fetchone() for name in pragmas]

    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(database.read_sql("001_schema.sql"))
        old.executescript(f"PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;")
    assert content(tmp_path / "new.db") == content(path)


def test_a_database_of_the_first_version_keeps_its_order(path):
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(database.read_sql("001_schema.sql"))
        old.executescript(f"PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;")
        old.execute("INSERT INTO requests VALUES (1, 1, '[]', '[]', '', 0, 0, 0.0)")
        for _ in range(3):
            old.execute(
                "INSERT INTO jobs (command, cwd, request, name, project, priority, env, umask, tags, submitted_at) "
                "VALUES ('true', '/', 1, '', 'default', 0, '[]', 0, '[]', 0)"
            )
        old.commit()
    with contextlib.closing(Store.open(path)) as store:
        assert [store.job(JobId(n)).rank for n in (1, 2, 3)] == [ranks.rank_of_id(n) for n in (1, 2, 3)]
        with store.batch():
            store.move(store.job(JobId(3)), "first")
        (new,) = submit(store)
        assert [waiting.id for waiting in sorted(store.head(9), key=lambda waiting: waiting.place)] == [3, 1, 2, new]
    assert len(list((path.parent / "backups").iterdir())) == 1
