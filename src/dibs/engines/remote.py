"""The thread of one engine that others operate: it makes all calls, so that nothing else ever waits for a cluster.

It gets work by a queue and returns news to a listener. Calls are few: all starts that came together are one submission,
all that are under way one poll. An engine that cannot be reached is asked again at growing intervals; meanwhile nothing
is said about any start. While nothing is under way, nothing is asked.
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

from dibs.engines.protocol import Engine, Needs, Node, Refused, Seen, Unavailable
from dibs.engines.remote_starts import (
    Accepted,
    Declined,
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
from dibs.system.crash_points import crash_point

log = logging.getLogger("dibs.engines.remote")

#: Seconds for which work is collected before a submission.
COLLECT_S = 0.02
#: Starts that are written and submitted in one go: at first few, so that the nodes have work soon, then more each time.
FIRST_AT_ONCE, MOST_AT_ONCE = 32, 1000
MORE_AT_ONCE = 8
#: Seconds between two polls after many without news; the engine itself says how soon the first ones are.
LATEST_POLL_S = 5.0
SLOWER = 1.3
#: How much longer than a poll the pause after it is, where no job waits for news: polls keep the cluster busy too.
PAUSE_SHARE = 8
#: Seconds until an engine that could not be reached is asked again; the last one repeats.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: Seconds until a start that the engine did not accept for now is offered again.
OFFER_AGAIN_S = 15.0
#: Seconds after the grace of a stop until the engine itself is asked to end it.
KILL_AFTER_S = 10.0
#: Seconds between looks at the nodes of an engine without a queue, to see what others use.
NODES_FRESH_S = 5.0
#: Seconds to wait for a file operation that usually takes a millisecond.
FILES_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Condition:
    """How an engine was last seen; replaced as a whole, read from any thread."""

    nodes: tuple[Node, ...] = ()
    #: Wall-clock seconds; None: never.
    nodes_at: float | None = None
    #: In use by others, as far as the engine says.
    foreign_gpus: int = 0
    #: Why it cannot be reached, and since when; empty: it can, or nobody has asked.
    trouble: str = ""
    trouble_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Stop:
    """End the thread."""


@dataclass(frozen=True, slots=True)
class _Order:
    """Send an order to a runner."""

    start_id: StartId
    line: str


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
    condition: Condition = Condition()
    _inbox: queue.SimpleQueue[_Work] = field(default_factory=queue.SimpleQueue)
    _tracked: dict[StartId, Tracked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._poll_s = self.engine.caps.poll_s
        self._failures = 0
        #: The GPUs of our starts that ran since the last look at the nodes, and between the two looks before.
        self._ran: list[dict[StartId, int]] = [{}, {}]
        #: The GPUs of others at the last look: engines also learn late that a job of ours runs.
        self._foreign_before = 0
        #: By the monotonic clock.
        self._next_at = 0.0
        self._is_over = False
        self._files = _FileThread(f"{self.engine.name} files")
        self._thread = threading.Thread(target=self._run, name=f"engine {self.engine.name}", daemon=True)

    # -- from the queue thread, and others

    @property
    def name(self) -> str:
        """Return its name in the settings."""
        return self.engine.name

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
        with self._trouble_told():
            self._read_nodes()
        while not self._is_over:
            work = self._collect()
            try:
                for one in work:
                    self._take(one)
                if time.monotonic() >= self._next_at:
                    self._round()
            except Exception:
                # An error in one round must not end the engine; nothing was said about any start.
                log.exception("engine %s", self.name)
                self._next_at = time.monotonic() + PAUSES_S[-1]

    def _collect(self) -> list[_Work]:
        """Wait until there is something to do; return what has come."""
        work: list[_Work] = []
        # Without anything under way there is nothing to ask, except whether an engine is back.
        is_idle = not self._tracked and not self._failures and not self.engine.has_chores
        left_s = None if is_idle else max(0.0, self._next_at - time.monotonic())
        with contextlib.suppress(queue.Empty):
            work.append(self._inbox.get(timeout=left_s))
            if isinstance(work[0], Tracked):
                time.sleep(COLLECT_S)
            while True:
                work.append(self._inbox.get_nowait())
        return work

    def _take(self, one: _Work) -> None:
        if isinstance(one, Tracked):
            self._tracked[one.start_id] = one
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
        """Poll soon, unless the engine could not be reached just before."""
        self._poll_s = self.engine.caps.poll_s
        if not self._failures:
            self._next_at = min(self._next_at, time.monotonic())

    def _look(self, asked: _Look) -> None:
        is_fresh = self.condition.nodes_at is not None and time.time() - self.condition.nodes_at < 1.0
        if not is_fresh and not (self._failures and time.monotonic() < self._next_at):
            with self._trouble_told():
                self._read_nodes()
        asked.done.set_result(None)

    def _read_nodes(self) -> None:
        self.packer.prepare()
        nodes = self.engine.nodes()
        own = sum((self._ran[0] | self._ran[1]).values())
        foreign = foreign_gpus(nodes, own)
        self.condition = Condition(tuple(nodes), time.time(), max(foreign, self._foreign_before))
        self._foreign_before = foreign
        self._ran = [{}, self._ran[0]]

    def _watch_others(self) -> None:
        """Look at the nodes again if others may take their GPUs while our jobs wait in front of the engine."""
        seen_at = self.condition.nodes_at
        if self.engine.caps.holds_queue or (seen_at is not None and time.time() - seen_at < NODES_FRESH_S):
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
            now = self.condition
            if not self._failures:
                log.error("engine %s cannot be reached: %s", self.name, error)
            since = now.trouble_since if self._failures else time.time()
            self.condition = replace(now, trouble=str(error) or "no answer", trouble_since=since)
            self._next_at = time.monotonic() + PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
            self._failures += 1
            return
        if self._failures:
            self._failures = 0
            log.warning("engine %s can be reached again", self.name)
            self.condition = replace(self.condition, trouble="", trouble_since=None)
            # Jobs that waited for the engine can be placed now.
            self.listen([])

    def _round(self) -> None:
        """Submit what is to be sent, and poll the rest."""
        news: list[News] = []
        poll_took_s = 0.0
        try:
            with self._trouble_told():
                if self._failures:
                    self._read_nodes()
                self._watch_others()
                self._find_doubtful()
                self._submit()
                began_at = time.monotonic()
                self._poll(news)
                poll_took_s = time.monotonic() - began_at
                self._end_disobedient()
        finally:
            # Also what came before the engine stopped to answer.
            if news:
                self.listen(news)
        if not self._failures:
            self._poll_s = self.engine.caps.poll_s if news else min(LATEST_POLL_S, self._poll_s * SLOWER)
            rest_s = PAUSE_SHARE * poll_took_s if self.engine.caps.holds_queue else 0.0
            self._next_at = time.monotonic() + max(self._poll_s, min(LATEST_POLL_S, rest_s))

    def _find_doubtful(self) -> None:
        """Find starts that an earlier daemon may have submitted before it could record that."""
        doubtful = {own.key: own for own in self._tracked.values() if own.is_doubtful}
        if not doubtful:
            return
        for key, refs in self.engine.find(doubtful).items():
            seen = self.engine.poll(refs)
            order = {"running": 0, "ended": 1, "waiting": 2, "gone": 3}
            best, *others = sorted(refs, key=lambda ref: order[seen[ref].phase if ref in seen else "gone"])
            if others:
                # The claim lets only one of them run.
                self.engine.stop(others, now=True)
            doubtful[key].ref = best
            self.listen([Accepted(doubtful[key].start_id, best)])
        for own in doubtful.values():
            own.is_doubtful = False

    def _submit(self) -> None:
        waiting = [own for own in self._tracked.values() if own.ref is None and own.outgoing is not None]
        count = FIRST_AT_ONCE
        while waiting:
            # Recorded at once: the first ones may be over before the last ones are written.
            self.listen(self._submit_some(waiting[:count]))
            waiting, count = waiting[count:], min(MOST_AT_ONCE, count * MORE_AT_ONCE)

    def _submit_some(self, some: Sequence[Tracked]) -> list[News]:
        crash_point("remote:placed")
        starts = []
        for own in some:
            assert own.outgoing is not None
            try:
                starts.append(self.packer.write(own.outgoing))
            except OSError as error:
                # The shared folder: nothing about the job, and nothing about the engine.
                raise Unavailable(f"{own.folder} cannot be written: {error.strerror or error}") from error
        crash_point("remote:written")
        answers = self.engine.submit(starts)
        crash_point("remote:submitted")
        news: list[News] = []
        for own in some:
            answer = answers.get(own.key)
            if isinstance(answer, str):
                own.ref, own.outgoing = answer, None
                news.append(Accepted(own.start_id, answer))
            elif isinstance(answer, Refused) and answer.is_final:
                self._tracked.pop(own.start_id, None)
                own.remove_spec()
                news.append(Declined(own.start_id, answer.why))
            elif answer is not None:
                own.seen = Seen("waiting", f"not accepted yet: {answer.why}")
                self._poll_s = max(self._poll_s, OFFER_AGAIN_S)
        return news

    def _poll(self, news: list[News]) -> None:
        sent = {own.ref: own for own in self._tracked.values() if own.ref is not None}
        if not sent and not self.engine.has_chores:
            return
        answers = self.engine.poll(list(sent))
        now = time.monotonic()
        over: list[str] = []
        for ref, own in sent.items():
            own.observe(answers.get(ref, Seen("gone", f"{self.name} does not know it any more")), now)
            if own.seen.phase in ("running", "ended"):
                self._ran[0][own.start_id] = own.gpus
            judged = self._judge(own, now)
            if judged is None:
                continue
            news.append(judged)
            if not isinstance(judged.verdict, attempts.Alive):
                over.append(ref)
                self._tracked.pop(own.start_id, None)
                own.remove_spec()
        if over:
            self.engine.forget(over)

    def _judge(self, own: Tracked, now: float) -> Judged | None:
        if not own.may_have_news(now):
            return None
        try:
            return own.judge(now, self.engine.caps.grace_s)
        except OSError as error:
            log.error("job %s: %s cannot be read: %s", own.start_id.job, own.folder, error)
            return None

    def _obey(self, order: _Order) -> None:
        own = self._tracked.get(order.start_id)
        if own is None:
            return
        verb, *words = order.line.split()
        if verb == "stop":
            own.is_stop_asked = True
            own.kill_at = time.monotonic() + float(words[0]) + KILL_AFTER_S
            if own.bury():
                self._drop(own.start_id)
                self.listen([Judged(own.start_id, attempts.NeverStarted(), own.seen)])
                return
        attempts.append_order(own.folder, own.start_id.start, order.line)
        if own.ref is not None:
            with self._trouble_told():
                self.engine.poke(own.ref)
        self._hurry()

    def _drop(self, start_id: StartId) -> None:
        own = self._tracked.pop(start_id, None)
        if own is None:
            return
        own.remove_spec()
        if own.ref is not None:
            with self._trouble_told():
                self.engine.stop([own.ref], now=True)
                self.engine.forget([own.ref])

    def _end_disobedient(self) -> None:
        """Let the engine end what its runner did not end in time."""
        now = time.monotonic()
        late = [own for own in self._tracked.values() if own.kill_at is not None and now >= own.kill_at and own.ref]
        if late:
            self.engine.stop([own.ref for own in late if own.ref], now=True)
            for own in late:
                own.kill_at = now + KILL_AFTER_S


def foreign_gpus(nodes: Sequence[Node], own: int) -> int:
    """Return how many GPUs of these nodes others use, if `own` are ours; what an engine does not say counts as free.

    Engines learn late that a job ended. So `own` are those of all our jobs that ran lately: else they would seem to be
    those of others.
    """
    used = sum(node.gpus - node.free_gpus for node in nodes if node.is_up and node.free_gpus is not None)
    return max(0, used - own)


class _FileThread:
    """Does single operations on files that may hang, for callers that must not."""

    def __init__(self, name: str) -> None:
        self._inbox: queue.SimpleQueue[tuple[Callable[[], bool], Future[bool]]] = queue.SimpleQueue()
        self._name = name
        self._is_started = False

    def do(self, what: Callable[[], bool]) -> bool:
        """Return the result of an operation; False if it failed, or has none in time."""
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        answer: Future[bool] = Future()
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
