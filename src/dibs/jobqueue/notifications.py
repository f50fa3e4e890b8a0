"""Notices: run a command of the user when jobs end. Decide which ends cause one, and what the command receives.

A notice is decided after the commit that recorded the end, and sent at most once: a crash in between loses it but never
duplicates it. The command runs in a separate process (`notify_child`), and nothing waits for it. Excess notices wait in
a queue; when that is full, they are dropped. Failures are recorded at the job.
"""

from __future__ import annotations

import enum
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dibs.engines.job_files import JobFiles
from dibs.engines.runner_pool import boot
from dibs.errors import TimedOut
from dibs.jobqueue.turns import Turn
from dibs.model import serialization, units
from dibs.model.jobs import BAD, Job, JobId
from dibs.store.database import DatabaseError
from dibs.store.writer import BatchTally
from dibs.system.lean import closing_fd
from dibs.system.settings import Settings

log = logging.getLogger("dibs.jobqueue.notifications")

#: Seconds that a notice may take.
DEADLINE_S = 30.0
#: Maximum number of running notices, and of queued ones.
MOST_AT_ONCE = 4
MOST_WAITING = 100
#: Maximum size of the log with the output of notices; then it is truncated.
LOG_BYTES = 1024 * 1024
#: Characters of a command in the environment, because the kernel limits the length of one string.
LONGEST_COMMAND = 1000
#: States in which the queue is not empty. Held jobs do not count: they do not start by themselves.
UNDER_WAY = ("queued", "starting", "running", "paused", "stopping")


class Event(enum.Enum):
    """The occasion of a notice."""

    #: The first bad end in a batch that has not finished.
    FAILED = "failed"
    #: A job without a batch has ended, or the last job of a batch.
    FINISHED = "finished"
    #: No job is queued or active any more.
    EMPTY = "empty"
    #: A GPU of a running job shows no use.
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Notice:
    """A command to run, and why. The end of `job` is the occasion."""

    event: Event
    command: str
    job: Job
    batch: BatchTally | None = None
    #: What happened, if that is not the end of the job.
    text: str = ""

    @property
    def is_jobs_own(self) -> bool:
        """Tell whether the job defines the command; then it runs in the job's working directory."""
        return self.command == self.job.spec.notify


def due(over: Iterable[Job], batches: Mapping[int, BatchTally], is_empty: bool, default: str) -> list[Notice]:
    """Return the notices for the jobs that ended; `batches` already count all of these ends."""
    notices = []
    together: dict[int, list[Job]] = {}
    last: Job | None = None
    for job in over:
        last = job
        command = job.spec.notify or default
        if job.spec.batch:
            together.setdefault(job.spec.batch, []).append(job)
        elif command:
            notices.append(Notice(Event.FINISHED, command, job))
    for number, jobs in together.items():
        command = jobs[-1].spec.notify or default
        batch = batches[number]
        bad = [job for job in jobs if job.outcome in BAD]
        if command and batch.is_over:
            notices.append(Notice(Event.FINISHED, command, jobs[-1], batch))
        elif command and bad and batch.bad == len(bad):
            notices.append(Notice(Event.FAILED, command, bad[0], batch))
    if last is not None and is_empty and default:
        notices.append(Notice(Event.EMPTY, default, last))
    return notices


def sentence(notice: Notice) -> str:
    """Describe in one line what happened, as the text of a message: it may become a mail header or reach a terminal."""
    batch, text = notice.batch, f"job {notice.job.id} ({notice.job.spec.name}): {notice.text}"
    if not notice.text:
        text = _told(notice.job)
    match notice.event:
        case Event.EMPTY:
            text = f"the queue is empty; last: {text}"
        case Event.FAILED if batch is not None:
            text = f"{text}, first failure in a batch of {batch.size}"
        case _ if batch is not None:
            text = f"all {batch.size} jobs of a batch have finished, {batch.done} succeeded; last: {text}"
    # Names and remarks are data: no newline, no escape sequence.
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _told(job: Job) -> str:
    why = job.remark or (f"signal {job.signal}" if job.signal is not None else "")
    why = why or (f"exit code {job.exit_code}" if job.exit_code else "")
    ran = None if job.started_at is None or job.finished_at is None else (job.finished_at - job.started_at) / 1000
    after = "" if ran is None else f" after {units.format_duration(max(0.0, ran))}"
    return f"job {job.id} ({job.spec.name}) {job.word}{after}{f': {why}' if why else ''}"


def variables(notice: Notice, host: str, user: str, output: str) -> dict[str, str]:
    """Return the environment variables of the command."""
    job, batch = notice.job, notice.batch
    known: dict[str, object] = {
        "DIBS_EVENT": notice.event.value,
        "DIBS_TEXT": sentence(notice),
        "DIBS_HOST": host,
        "DIBS_USER": user,
        "DIBS_JOB_ID": job.id,
        "DIBS_JOB_NAME": job.spec.name,
        "DIBS_JOB_PROJECT": job.spec.project,
        "DIBS_JOB_STATE": job.word,
        "DIBS_JOB_CAUSE": job.cause.value if job.cause else "",
        "DIBS_JOB_EXIT_CODE": "" if job.exit_code is None else job.exit_code,
        "DIBS_JOB_SIGNAL": "" if job.signal is None else job.signal,
        "DIBS_JOB_ATTEMPT": job.attempt,
        "DIBS_JOB_COMMAND": job.spec.command[:LONGEST_COMMAND],
        "DIBS_JOB_LOG": output,
    }
    if batch is not None:
        known |= {"DIBS_BATCH_SIZE": batch.size, "DIBS_BATCH_DONE": batch.done, "DIBS_BATCH_BAD": batch.bad}
    return {name: str(value) for name, value in known.items()}


@dataclass(eq=False)
class Notices:
    """Send notices, in the queue thread. `_watch` calls a function once, when a descriptor becomes readable."""

    _files: JobFiles
    _settings: Settings
    _user: str
    _watch: Callable[[int, Callable[[], None]], None]
    _note: Callable[[Callable[[Turn], Any]], None]
    _host: str = field(default_factory=lambda: os.uname().nodename)
    _under_way: int = 0
    _waiting: deque[tuple[Notice, dict[bytes, bytes], bytes]] = field(default_factory=deque)

    def tell(self, turn: Turn) -> None:
        """Send the notices of a turn. A failure here affects nothing else."""
        default = self._settings.notify
        concerned = [job for job in turn.finished_for_good if default or job.spec.notify]
        if not concerned:
            return
        try:
            batches = {job.spec.batch: turn.store.batch_tally(job.spec.batch) for job in concerned if job.spec.batch}
            counts = turn.store.counts()
            is_empty = not any(counts[word] for word in UNDER_WAY)
            for notice in due(concerned, batches, is_empty, default):
                self._send(turn, notice)
        except (OSError, DatabaseError):
            log.exception("notices")

    def warn(self, turn: Turn, job_id: JobId, text: str) -> None:
        """Record at a running job that it does not use its GPU, and send a notice of it."""
        job = turn.store.job(job_id)
        if not job.is_active:
            return
        turn.changed.append(job.id)
        turn.store.note(job.id, turn.now, "Idle", text)
        if command := job.spec.notify or self._settings.notify:
            self._send(turn, Notice(Event.IDLE, command, job, text=text))

    def _send(self, turn: Turn, notice: Notice) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._complain(notice, f"skipped: {MOST_WAITING} notifications are waiting")
            return
        self._waiting.append((notice, self._environ(turn, notice), self._document(turn, notice)))
        self._begin()

    def _environ(self, turn: Turn, notice: Notice) -> dict[bytes, bytes]:
        """Return the job's environment if the job defines the command, else the daemon's, updated with `variables`."""
        base = dict(os.environb)
        if notice.is_jobs_own and notice.job.spec.environ_id is not None:
            base = serialization.unpack_environ(turn.store.environ(notice.job.spec.environ_id))
            base |= {os.fsencode(name): os.fsencode(value) for name, value in notice.job.spec.env}
        facts = variables(notice, self._host, self._user, self._files.log(notice.job))
        facts["DIBS_HOME"] = str(self._files.home)
        return base | {os.fsencode(name): os.fsencode(value).replace(b"\0", b"") for name, value in facts.items()}

    def _document(self, turn: Turn, notice: Notice) -> bytes:
        job, batch = notice.job, notice.batch
        told = {
            "event": notice.event.value,
            "text": sentence(notice),
            "at": serialization.moment(turn.now),
            "host": self._host,
            "user": self._user,
            "job": serialization.job_to_json(
                job,
                turn.inventory,
                user=self._user,
                log=self._files.log(job),
                stderr=self._files.stderr(job),
                reason=None,
            ),
            "batch": None
            if batch is None
            else {"size": batch.size, "finished": batch.finished, "done": batch.done, "bad": batch.bad},
        }
        return json.dumps(told).encode() + b"\n"

    def _begin(self) -> None:
        while self._waiting and self._under_way < MOST_AT_ONCE:
            notice, environ, document = self._waiting.popleft()
            try:
                pidfd = self._start(notice, environ, document)
            except OSError as error:
                self._complain(notice, f"could not be started: {error.strerror or error}")
                continue
            self._under_way += 1
            self._watch(pidfd, lambda pidfd=pidfd, notice=notice: self._ended(pidfd, notice))  # type: ignore[misc]

    def _start(self, notice: Notice, environ: dict[bytes, bytes], document: bytes) -> int:
        """Start the process of a notice in its own session; return its pidfd."""
        output = self._files.home / "notifications.log"
        is_full = output.exists() and output.stat().st_size > LOG_BYTES
        mode = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_full else os.O_APPEND)
        folder = notice.job.spec.cwd if notice.is_jobs_own else "/"
        words = boot("notify_child", str(DEADLINE_S), self._settings.shell, folder, notice.command)
        # A file in memory: a pipe would need a writer that stays.
        with closing_fd(os.memfd_create("notice", os.MFD_CLOEXEC)) as given:
            os.write(given, document)
            os.lseek(given, 0, os.SEEK_SET)
            pid = os.posix_spawn(
                words[0],
                words,
                environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, given, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(output), mode, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        return os.pidfd_open(pid)

    def _ended(self, pidfd: int, notice: Notice) -> None:
        self._under_way -= 1
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
        os.close(pidfd)
        if ended is None or ended.si_code != os.CLD_EXITED:
            self._complain(notice, "was killed")
        elif ended.si_status == TimedOut.exit_code:
            self._complain(notice, f"was stopped after {DEADLINE_S:.0f} s")
        elif ended.si_status:
            self._complain(notice, f"exited with code {ended.si_status}")
        self._begin()

    def _complain(self, notice: Notice, what: str) -> None:
        """Record at the job that a notice failed; the output of the command is in `notifications.log`."""
        detail = f"its notification ({notice.event.value}) {what}; see {self._files.home / 'notifications.log'}"
        log.warning("job %s: %s", notice.job.id, detail)
        self._note(lambda turn: turn.store.note(notice.job.id, turn.now, "NoticeFailed", detail))
