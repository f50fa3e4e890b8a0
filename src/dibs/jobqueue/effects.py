"""Carry out the effects of a commit: start runners, send orders, and watch every start until it ends.

The truth about a start is in its files. This module only makes sure that they are examined in time: when the process
ends, when the runner sends a message, or after a delay. Examining is work of a later turn.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from dibs.engines.local import Local
from dibs.engines.remote_starts import OutgoingJob
from dibs.engines.runner_pool import Undelivered
from dibs.jobqueue import dispatch
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.turns import (
    Adopt,
    Effect,
    EndDisobedient,
    EndLeftovers,
    Order,
    Send,
    StartRunner,
    Turn,
    Watch,
    WatchOrphan,
    Work,
)
from dibs.model import units
from dibs.model.jobs import Job, JobId
from dibs.runner.attempts import Shim
from dibs.runner.records import Final
from dibs.store.writer import Store
from dibs.system.crash_points import crash_point
from dibs.system.process_tree import LEFTOVER_GRACE_S
from dibs.system.refusals import Refusal

log = logging.getLogger("dibs.jobqueue.thread")

#: Seconds until a refused system call is retried.
RETRY_FOR_S = 1.0
#: Seconds until a start that another process is just deciding is examined again.
LOOK_AGAIN_FOR_S = 0.05
#: Seconds between checks of starts whose runner sent no message yet.
CHECK_EVERY_S = 1.0
#: Seconds after the grace of a stop until a runner that is stopped counts as disobedient.
INSIST_AFTER_S = 1.0
#: Seconds for which "running" messages are collected: the end of a short job makes its message unnecessary, and a turn
#: in which a device is free does not pay for it.
HURRY_S = 0.01

#: A start: the job, its attempt and the number of the start.
StartKey = tuple[JobId, int, int]


@dataclass(eq=False)
class EffectRunner:
    """Carry out effects in the queue thread.

    `_post` takes work for the next turn; `_refused` is called when a start was refused, with its job.
    """

    store: Store
    engine: Local
    waits: Reactor[Work]
    _post: Callable[[Work], None]
    _refused: Callable[[Job, Refusal], None]
    #: Messages that are posted after a short delay.
    _unhurried: list[Work] = field(default_factory=list)
    _is_checking: bool = False
    #: Starts that no runner has claimed, and how many checks in a row found that.
    _unclaimed: dict[StartKey, int] = field(default_factory=dict)
    #: The last used environment and its id.
    _captured: tuple[int | None, bytes] = None, b""
    #: The starts that are already watched.
    _watched: set[StartKey] = field(default_factory=set)
    #: The starts whose runner did not obey and was killed.
    _killed: set[StartKey] = field(default_factory=set)

    def act(self, turn: Turn, effect: Effect) -> None:
        """Carry out one effect of a turn; if the system refuses, examine the start again later."""
        job = effect.job
        if not job.is_local:
            self._act_remotely(turn, effect)
            return
        try:
            match effect:
                case StartRunner(is_loan=is_loan):
                    self._start(turn, job, is_loan)
                case Order(line=line):
                    self._order(job, line)
                case Watch(shim=shim):
                    self._watch_runner(job, shim)
                case WatchOrphan(running=None):
                    # Its runner died before it wrote the pid: only its locks tell when it has ended.
                    self._look_later(job)
                case WatchOrphan(running=running):
                    # If the command has ended but a child lives on, the safety tick examines the job.
                    self._watch(job, self.engine.adopt_command(running))
                case EndLeftovers():
                    self._end_tree(job, LEFTOVER_GRACE_S)
                case EndDisobedient():
                    if self.engine.kill_stopped_runner(job):
                        log.error("job %s: its runner was stopped and did not obey; it is ended", job.id)
                        self._killed.add((job.id, job.attempt, job.start))
                        self._end_tree(job, 0.0)
        except Undelivered as undelivered:
            log.error("job %s: %s", job.id, undelivered)
            self._look(job, refusal=undelivered.refusal)
        except OSError as error:
            # No process, descriptor or disk space: the truth is in the files, so examine them again later.
            log.error("job %s: %s", job.id, error)
            self.waits.later(RETRY_FOR_S, lambda: self._look(job))

    def _act_remotely(self, turn: Turn, effect: Effect) -> None:
        """Pass an effect to the thread of the job's engine, which carries it out."""
        job = effect.job
        remote = turn.remotes.get(job.engine)
        if remote is None:
            log.error("job %s: its engine %s is not in the settings", job.id, job.engine)
            return
        match effect:
            case Send():
                remote.send(self._outgoing(job))
            case Adopt():
                is_sent = job.engine_ref is not None or job.pid is not None
                remote.adopt(job, None if is_sent else self._outgoing(job))
            case Order(line=line):
                remote.order(job, line)

    def _outgoing(self, job: Job) -> OutgoingJob:
        return OutgoingJob(job, self._environ(job.spec.environ_id), self.store.script(job.spec.script_id))

    def _start(self, turn: Turn, job: Job, is_loan: bool) -> None:
        captured, script = self._environ(job.spec.environ_id), self.store.script(job.spec.script_id)
        self.engine.start(job, captured, turn.inventory, lambda *how: self._ended(job, *how), script, is_loan=is_loan)
        self._watched.add((job.id, job.attempt, job.start))
        self._check_starting_later()
        crash_point("core:spawned")

    def _environ(self, environ_id: int | None) -> bytes:
        """Return a captured environment; consecutive starts usually share one."""
        if self._captured[0] != environ_id:
            self._captured = environ_id, self.store.environ(environ_id)
        return self._captured[1]

    def _check_starting_later(self) -> None:
        """Schedule a check that notices a running command even if its datagram was lost."""
        if not self._is_checking:
            self._is_checking = True
            self.waits.later(CHECK_EVERY_S, lambda: self._post(Work(self._check_starting, is_quiet=True)))

    def _check_starting(self, turn: Turn) -> None:
        self._is_checking = False
        try:
            is_open = dispatch.check_starting(turn)
        except OSError:
            self._check_starting_later()
            raise
        if is_open:
            # First: the rest may fail, and must be tried again.
            self._check_starting_later()
            self.engine.runners.replace_stopped_launcher()
            self._check_claims(turn)

    def _check_claims(self, turn: Turn) -> None:
        """Give up starts that were unclaimed at each check for too long, and let their jobs start again."""
        waiting = {(job.id, job.attempt, job.start): job for job in dispatch.unclaimed(turn)}
        self._unclaimed = {key: self._unclaimed.get(key, 0) + 1 for key in waiting}
        for key, job in waiting.items():
            is_late = self._unclaimed[key] * CHECK_EVERY_S > dispatch.claim_within_s(job)
            if is_late and dispatch.give_up_unclaimed(turn, job):
                self._post(Work(lambda turn: None))

    def hear(self, sock: socket.socket) -> None:
        """Receive all messages of runners; ignore unknown ones, which come from another version."""
        while True:
            try:
                words = sock.recv(4096).decode(errors="replace").split(" ", 4)
            except BlockingIOError:
                self.waits.watch(sock.fileno(), lambda: self.hear(sock))
                return
            if len(words) == 5 and words[0] in ("running", "stuck") and all(map(units.is_whole, words[1:4])):
                if not self._unhurried:
                    self.waits.later(HURRY_S, self._hurry)
                self._unhurried.append(Work(_told(words), is_quiet=True))

    def _hurry(self) -> None:
        for work in self._unhurried:
            self._post(work)
        self._unhurried.clear()

    def _order(self, job: Job, line: str) -> None:
        is_heard = self.engine.order(job, line)
        if not line.startswith("stop"):
            return
        grace_s = float(line.split()[1])
        if is_heard:
            work = Work(lambda turn: dispatch.insist(turn, job), is_quiet=True)
            self.waits.later(grace_s + INSIST_AFTER_S, lambda: self._post(work))
        else:
            self._end_tree(job, grace_s)

    def _end_tree(self, job: Job, grace_s: float) -> None:
        """End all processes of a job without its runner, then examine it."""
        self._when_ended(self.engine.end_leftovers(job, grace_s), lambda: self._look(job, runner_died=True))

    def _watch_runner(self, job: Job, shim: Shim | None) -> None:
        pidfd = self.engine.adopt(shim)
        if pidfd is None:
            self.waits.later(LOOK_AGAIN_FOR_S, lambda: self._look(job))
        else:
            self._watch(job, pidfd)

    def _watch(self, job: Job, pidfd: int | None) -> None:
        """Examine a start when its process ends; each start has only one watcher."""
        key = (job.id, job.attempt, job.start)
        if pidfd is None:
            return
        if key in self._watched:
            os.close(pidfd)
            return
        self._watched.add(key)
        self._when_ended(pidfd, lambda: self._ended(job, True))

    def _when_ended(self, pidfd: int, then: Callable[[], None]) -> None:
        def ended() -> None:
            reap(pidfd)
            os.close(pidfd)
            then()

        self.waits.watch(pidfd, ended)

    def _ended(self, job: Job, runner_died: bool, refusal: Refusal | None = None, final: Final | None = None) -> None:
        self._watched.discard((job.id, job.attempt, job.start))
        self._look(job, runner_died=runner_died, refusal=refusal, final=final)

    def _look_later(self, job: Job) -> None:
        """Examine a start once after a delay, even if called several times."""
        key = (job.id, job.attempt, job.start)
        if key not in self._watched:
            self._watched.add(key)
            self.waits.later(CHECK_EVERY_S, lambda: self._ended(job, True))

    def _look(
        self, job: Job, *, runner_died: bool = False, refusal: Refusal | None = None, final: Final | None = None
    ) -> None:
        """Settle a start in the next turn, as its runner said, or as its files say."""

        def look(turn: Turn) -> None:
            was_killed = (job.id, job.attempt, job.start) in self._killed
            self._looked(turn, job, dispatch.News(runner_died, was_killed, refusal, final))

        self._post(Work(look))

    def _looked(self, turn: Turn, job: Job, news: dispatch.News) -> None:
        try:
            refusal = dispatch.look(turn, job.id, job.attempt, job.start, news)
        except OSError:
            # The disk may respond later, and nothing else would examine this start again.
            self.waits.later(RETRY_FOR_S, lambda: self._look(job, runner_died=news.runner_died))
            raise
        if refusal is not None:
            self._refused(job, refusal)


def _told(words: list[str]) -> Callable[[Turn], None]:
    kind, job_id, attempt, start, rest = words
    return lambda turn: dispatch.hear(turn, kind, JobId(int(job_id)), int(attempt), int(start), rest)


def reap(pidfd: int) -> None:
    """Reap a runner that we started, so that it does not remain a zombie; an adopted runner is not our child."""
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return
