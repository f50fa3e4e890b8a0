"""The thread of one engine that others operate: it makes all calls, so that nothing else ever waits for a cluster.

It gets work by a queue and returns news to a listener. Calls are few: all starts that came together are one submission,
all that are under way one poll. The files of the starts are read more often and tell most news
(`exchange.record_watch`). An engine that cannot be reached is asked again at growing intervals; meanwhile nothing is
said about any start. While nothing is under way, nothing is asked.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from dibs.engines.exchange.node_watch import Condition, NodeWatch
from dibs.engines.exchange.outbox import Outbox
from dibs.engines.exchange.record_watch import RecordWatch
from dibs.engines.protocol import Engine, Needs, Seen, Unavailable
from dibs.engines.remote_starts import (
    Judged,
    News,
    OutgoingJob,
    Packer,
    StartId,
    Tracked,
    start_id_of,
)
from dibs.model.jobs import Job
from dibs.runner import attempts

log = logging.getLogger("dibs.engines.remote")

#: Seconds for which work is collected before a submission.
COLLECT_S = 0.02
#: Seconds between two polls after many without news; the engine itself says how soon the first ones are.
LATEST_POLL_S = 5.0
SLOWER = 1.3
#: How much longer than a poll the pause after it is, where no job waits for news: polls keep the cluster busy too.
PAUSE_SHARE = 8
#: Seconds until an engine that could not be reached is asked again; the last one repeats.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: Seconds after the grace of a stop until the engine itself is asked to end it.
KILL_AFTER_S = 10.0
#: Seconds to wait for a file operation that usually takes a millisecond.
FILES_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class _Stop:
    """End the thread."""


@dataclass(frozen=True, slots=True)
class _Order:
    """Send an order to a runner."""

    start_id: StartId
    line: str
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class _Drop:
    """Forget a start that was buried, and remove it from the engine."""

    start_id: StartId


@dataclass(frozen=True, slots=True)
class _Look:
    """Read the nodes again."""

    done: Future[None]


_Work = Tracked | _Order | _Drop | _Look | _Stop


@dataclass(eq=False)
class Remote:
    """One engine; `listen` gets news, from its thread."""

    engine: Engine
    packer: Packer
    max_sent: int
    listen: Callable[[Sequence[News]], None]
    _inbox: queue.SimpleQueue[_Work] = field(default_factory=queue.SimpleQueue)
    _tracked: dict[StartId, Tracked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._nodes = NodeWatch()
        self._records = RecordWatch()
        self._poll_s = self.engine.caps.poll_s
        self._failures = 0
        self._outbox = Outbox(self.engine, self.packer, self._tracked, lambda news: self.listen(news))
        #: When to ask the engine, or whether it is back; and when the last answer has cost it enough: by the monotonic
        #: clock.
        self._ask_at = self._rest_until = 0.0
        #: Orders that could not be written yet, and jobs that the engine should end.
        self._late: list[_Order] = []
        self._unwanted: list[str] = []
        self._is_over = False
        self._files = _FileThread(f"{self.engine.name} files")
        self._thread = threading.Thread(target=self._run, name=f"engine {self.engine.name}", daemon=True)

    # -- from the queue thread, and others

    @property
    def name(self) -> str:
        """Return its name in the settings."""
        return self.engine.name

    @property
    def condition(self) -> Condition:
        """Return how the engine was last seen."""
        return self._nodes.condition

    @property
    def is_known(self) -> bool:
        """Tell whether it was reached, or could not be."""
        return self.condition.nodes_at is not None or bool(self.condition.trouble)

    def start_thread(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after the call that it makes; what is under way stays with the engine."""
        self._inbox.put(_Stop())

    def send(self, outgoing: OutgoingJob) -> None:
        """Have a placed job started."""
        self._inbox.put(self.packer.track(outgoing.job, outgoing))

    def adopt(self, job: Job, outgoing: OutgoingJob | None) -> None:
        """Follow a start of an earlier daemon; with a `outgoing` it may not have been submitted."""
        tracked = self.packer.track(job, outgoing)
        tracked.is_doubtful = outgoing is not None
        self._inbox.put(tracked)

    def order(self, job: Job, line: str) -> None:
        """Send an order to the runner of a job."""
        self._inbox.put(_Order(start_id_of(job), line))

    def give_up(self, job: Job) -> bool:
        """Bury a start before its command ran. False: a runner was faster, or its folder does not answer now."""
        folder, start = self.packer.folder(job), job.start
        is_buried = self._files.do(lambda: attempts.give_up(folder, start, is_shared=True))
        if is_buried:
            self._inbox.put(_Drop(start_id_of(job)))
        return is_buried

    def seen(self, job: Job) -> Seen | None:
        """Return what the engine last said about a job's start."""
        tracked = self._tracked.get(start_id_of(job))
        return None if tracked is None else tracked.seen

    def refuse(self, needs: Needs) -> str | None:
        """Return why no node can ever satisfy a request, as far as nodes are known."""
        return self.engine.refuse(needs, self.condition.nodes)

    def look(self) -> Future[None]:
        """Read the nodes again, unless that was done just now; the future completes when that is over."""
        done: Future[None] = Future()
        self._inbox.put(_Look(done))
        return done

    # -- the thread

    def _run(self) -> None:
        with self._errors_told(), self._trouble_told():
            self._read_nodes()
        while not self._is_over:
            late, self._late = self._late, []
            for one in (*late, *self._collect()):
                with self._errors_told():
                    self._take(one)
            if time.monotonic() >= self._due_at():
                with self._errors_told():
                    self._round()

    @contextlib.contextmanager
    def _errors_told(self) -> Iterator[None]:
        """Survive an error of our own: it must not end the thread, and says nothing about any start."""
        try:
            yield
        except Exception:
            log.exception("engine %s", self.name)
            self._nodes.miss("an error of dibs; see daemon.log", is_first=not self._failures)
            self._failures = max(1, self._failures)
            self._ask_at = time.monotonic() + PAUSES_S[-1]

    def _due_at(self) -> float:
        """Return when there is something to do; an engine that cannot be reached is only asked whether it is back."""
        if self._unwanted and not self._failures:
            return 0.0
        return self._ask_at if self._failures else min(self._ask_at, self._outbox.due_at, self._records.due_at)

    def _collect(self) -> list[_Work]:
        """Wait until there is something to do; return what has come."""
        work: list[_Work] = []
        # Without anything under way there is nothing to ask, except whether an engine is back.
        is_idle = not self._tracked and not self._failures and not self.engine.has_chores
        left_s = None if is_idle else max(0.0, self._due_at() - time.monotonic())
        with contextlib.suppress(queue.Empty):
            work.append(self._inbox.get(timeout=left_s))
            if isinstance(work[0], Tracked):
                time.sleep(COLLECT_S)
            while True:
                work.append(self._inbox.get_nowait())
        return work

    def _take(self, one: _Work) -> None:
        if isinstance(one, Tracked):
            if not self._tracked and not self._failures:
                # Nothing was under way, so the last answer is old: not a reason to ask at once.
                self._ask_at = max(self._ask_at, time.monotonic() + self.engine.caps.poll_s)
            self._tracked[one.start_id] = one
            if one.ref is None:
                self._outbox.due_at = time.monotonic()
            self._hurry()
        elif isinstance(one, _Order):
            self._obey(one)
        elif isinstance(one, _Drop):
            self._drop(one.start_id)
        elif isinstance(one, _Look):
            self._look(one)
        else:
            self._is_over = True

    def _hurry(self) -> None:
        """Expect news soon."""
        self._records.hurry()
        self._poll_s = self.engine.caps.poll_s
        if not self._failures:
            self._ask_at = min(self._ask_at, time.monotonic() + self._poll_s)

    def _look(self, asked: _Look) -> None:
        age_s = self._nodes.age_s
        try:
            if (age_s is None or age_s >= 1.0) and not (self._failures and time.monotonic() < self._ask_at):
                with self._trouble_told():
                    self._read_nodes()
        finally:
            asked.done.set_result(None)

    def _read_nodes(self) -> None:
        self.packer.prepare()
        self._nodes.see(self.engine.nodes())

    def _watch_others(self) -> None:
        """Look at the nodes again if others may take their GPUs while our jobs wait in front of the engine."""
        if not self._nodes.is_old(self.engine.caps):
            return
        before = self.condition.foreign_gpus
        self._read_nodes()
        if self.condition.foreign_gpus < before:
            # Jobs that waited for these GPUs can be placed now.
            self.listen([])

    @contextlib.contextmanager
    def _trouble_told(self) -> Iterator[None]:
        """Note that the engine can be reached, or why not and since when; ask later again."""
        try:
            yield
        except Unavailable as error:
            if not self._failures:
                log.error("engine %s cannot be reached: %s", self.name, error)
            self._nodes.miss(str(error), is_first=not self._failures)
            self._ask_at = time.monotonic() + PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
            self._failures += 1
            return
        if self._failures:
            self._failures = 0
            log.warning("engine %s can be reached again", self.name)
            self._nodes.find_again()
            # Jobs that waited for the engine can be placed now.
            self.listen([])

    def _round(self) -> None:
        """Submit the starts that are due; read the files of the rest, or ask the engine about it."""
        news: list[News] = []
        try:
            with self._trouble_told():
                if self._failures:
                    self._read_nodes()
                self._end_unwanted()
                if self._failures or time.monotonic() >= self._outbox.due_at:
                    self._outbox.empty()
                if self._failures or time.monotonic() >= self._ask_at:
                    self._ask(news)
                elif time.monotonic() >= self._records.due_at:
                    self._read_records(news)
        finally:
            # Also what came before the engine stopped to answer.
            if news:
                self.listen(news)

    def _ask(self, news: list[News]) -> None:
        """Ask the engine about everything."""
        self._watch_others()
        began_at = time.monotonic()
        self._poll(news)
        now = time.monotonic()
        self._end_disobedient()
        self._poll_s = self.engine.caps.poll_s if news else min(LATEST_POLL_S, self._poll_s * SLOWER)
        rest_s = PAUSE_SHARE * (now - began_at) if self.engine.caps.holds_queue else 0.0
        self._rest_until = now + min(LATEST_POLL_S, rest_s)
        self._ask_at = max(now + self._poll_s, self._rest_until)

    def _read_records(self, news: list[News]) -> None:
        """Look at the files alone; have the engine asked if only it can say the rest."""
        began_at = time.monotonic()
        chosen = self._records.choose(self._tracked.values())
        known = [own.start_id for own in chosen if own.is_unclear]
        for own in chosen:
            judged = self._judge(own, began_at, is_asked=False)
            if judged is not None:
                self._nodes.note_run(own)
                news.append(judged)
        self._drop_ended(news)
        if any(own.is_unclear and own.start_id not in known for own in chosen):
            self._ask_at = min(self._ask_at, self._rest_until)
        self._records.rest(began_at, len(chosen), has_news=bool(news))

    def _poll(self, news: list[News]) -> None:
        sent = {own.ref: own for own in self._tracked.values() if own.ref is not None}
        if not sent and not self.engine.has_chores:
            return
        answers = self.engine.poll(list(sent))
        now = time.monotonic()
        for ref, own in sent.items():
            own.observe(answers.get(ref, Seen("gone", f"{self.name} no longer knows the job")), now)
            if own.seen.phase in ("running", "ended"):
                self._nodes.note_run(own)
            if own.may_have_news(now):
                judged = self._judge(own, now, is_asked=True)
                if judged is not None:
                    news.append(judged)
        self._drop_ended(news)

    def _drop_ended(self, news: Sequence[News]) -> None:
        """Forget the starts that are over according to news."""
        over: list[str] = []
        for one in news:
            if isinstance(one, Judged) and not isinstance(one.verdict, attempts.Alive):
                own = self._tracked.pop(one.start_id)
                own.remove_spec()
                over += [own.ref] if own.ref is not None else []
        if over:
            self.engine.forget(over)

    def _judge(self, own: Tracked, now: float, *, is_asked: bool) -> Judged | None:
        """Return what is new about a start; `is_asked`: the engine has just said something about it."""
        trouble = ""
        try:
            return own.judge(now, self.engine.caps.grace_s) if is_asked else own.read(now)
        except OSError as error:
            trouble = str(error)
            if trouble != own.trouble:
                log.error("job %s: %s cannot be read: %s", own.start_id.job, own.folder, error)
            return None
        finally:
            own.trouble = trouble

    def _obey(self, order: _Order) -> None:
        own = self._tracked.get(order.start_id)
        if own is None:
            return
        try:
            self._deliver(own, order)
        except OSError as error:
            # The shared folder cannot be written now. A stop does not wait for that: the engine ends the job.
            if order.line.startswith("stop"):
                own.kill_at = time.monotonic()
            if not order.is_late:
                log.error("job %s: the order %r cannot be written: %s", own.start_id.job, order.line, error)
            self._late.append(replace(order, is_late=True))
        self._hurry()

    def _deliver(self, own: Tracked, order: _Order) -> None:
        verb, *words = order.line.split()
        if verb == "stop":
            own.is_stop_asked = True
            # A second stop may shorten the grace; one that is written late does not lengthen it.
            kill_at = time.monotonic() + float(words[0]) + KILL_AFTER_S
            own.kill_at = kill_at if own.kill_at is None else min(own.kill_at, kill_at)
            if own.bury():
                self._drop(own.start_id)
                self.listen([Judged(own.start_id, attempts.NeverStarted(), own.seen)])
                return
        attempts.append_order(own.folder, own.start_id.start, order.line)
        if own.ref is not None and own.may_have_runner and not self._failures:
            # Otherwise a runner reads it when it begins, or a little later.
            with self._trouble_told():
                self.engine.poke(own.ref)

    def _drop(self, start_id: StartId) -> None:
        own = self._tracked.pop(start_id, None)
        if own is None:
            return
        own.remove_spec()
        if own.ref is not None:
            self._unwanted.append(own.ref)

    def _end_unwanted(self) -> None:
        """Let the engine end what was given up: all in one call, also if it could not be reached before."""
        if self._unwanted:
            self.engine.stop(self._unwanted, now=True)
            self.engine.forget(self._unwanted)
            self._unwanted.clear()

    def _end_disobedient(self) -> None:
        """Let the engine end what its runner did not end in time."""
        now = time.monotonic()
        late = [own for own in self._tracked.values() if own.kill_at is not None and now >= own.kill_at and own.ref]
        if late:
            self.engine.stop([own.ref for own in late if own.ref], now=True)
            for own in late:
                own.kill_at = now + KILL_AFTER_S


class _FileThread:
    """Does single operations on files that may hang, for callers that must not."""

    def __init__(self, name: str) -> None:
        self._inbox: queue.SimpleQueue[tuple[Callable[[], bool], Future[bool]]] = queue.SimpleQueue()
        self._name = name
        self._is_started = False
        self._last: Future[bool] = Future()
        self._last.set_result(True)

    def do(self, what: Callable[[], bool]) -> bool:
        """Return the result of an operation; False if it failed, or has none in time."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        if not self._last.done():
            # It hangs: the next one would wait behind it.
            return False
        answer: Future[bool] = Future()
        self._last = answer
        self._inbox.put((what, answer))
        try:
            return answer.result(FILES_WITHIN_S)
        except (OSError, TimeoutError):
            return False

    def _run(self) -> None:
        while True:
            what, answer = self._inbox.get()
            try:
                answer.set_result(what())
            except OSError as error:
                answer.set_exception(error)
