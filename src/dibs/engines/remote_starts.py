"""Starts on an engine that others operate: what is sent, what is known about each, and what is news about it.

Values and the files of one start; `remote` makes the calls of the engine.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dibs.engines import node_code, start_specs
from dibs.engines.exchange import verdicts
from dibs.engines.job_files import JobFiles
from dibs.engines.protocol import Needs, Seen, Start, Unavailable
from dibs.logs import tails
from dibs.model.devices import Inventory
from dibs.model.jobs import Job, JobId, Request, State
from dibs.runner import attempts, records
from dibs.runner.attempts import Alive
from dibs.store import call_files
from dibs.system import paths, trusted_paths
from dibs.system.configuration.engines import EngineSettings
from dibs.system.settings import Settings

#: Bytes of an engine's own output that are shown with a job whose runner never came up.
OUTPUT_TAIL = 400
#: Seconds after which the files of a start are read again although its engine says that it runs. An engine may not
#: notice for minutes that a part of it was killed; the runner does at once.
LOOK_AGAIN_S = 5.0
#: Seconds by which the claim of another job must be older than the submission of ours.
OLDER_S = 60.0
#: Beside the job's own time limit, what ending it may take; seconds.
ENDING_S = 30.0


class StartId(NamedTuple):
    """Identifies a start."""

    job: JobId
    attempt: int
    start: int


def start_id_of(job: Job) -> StartId:
    """Return the start_id of a job's current start."""
    return StartId(job.id, job.attempt, job.start)


@dataclass(frozen=True, slots=True)
class OutgoingJob:
    """A job to be started, with what only the store knows."""

    job: Job
    captured: bytes
    script: bytes | None


# -- news --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """The engine has the start, and calls it `ref`."""

    start_id: StartId
    ref: str


@dataclass(frozen=True, slots=True)
class Declined:
    """The engine will never accept the start."""

    start_id: StartId
    why: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a start."""

    start_id: StartId
    verdict: verdicts.Verdict
    seen: Seen
    #: The end of what the engine itself printed, if no runner came up.
    output: str = ""


News = Accepted | Declined | Judged


# -- one start ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tracked:
    """A start that the engine has, or is to get."""

    start_id: StartId
    key: str
    #: The folder of its attempt.
    folder: str
    #: What to submit; None: it was, by an earlier daemon.
    outgoing: OutgoingJob | None = None
    ref: str | None = None
    gpus: int = 0
    #: Whether the engine may have it without a record of ours.
    is_doubtful: bool = False
    seen: Seen = field(default_factory=lambda: Seen("waiting"))
    #: Since when the engine has said that it ended or is gone, by the monotonic clock.
    absent_since: float | None = None
    is_stop_asked: bool = False
    #: When the engine itself must end it, because its runner did not; by the monotonic clock.
    kill_at: float | None = None
    #: Whether its command was reported to run, and the node that was reported.
    is_told: bool = False
    told_node: str = field(default="")
    #: When its files were read last, by the monotonic clock.
    read_at: float = 0.0
    #: Whether its files say something that only the engine can complete: where it ran, or who ended it.
    is_unclear: bool = False
    #: Why its files could not be read the last time; empty: they could.
    trouble: str = ""

    @property
    def may_have_runner(self) -> bool:
        """Tell whether a runner can be told something."""
        return self.is_told or self.seen.phase == "running"

    def observe(self, seen: Seen, now: float) -> None:
        """Note what the engine says."""
        if seen.phase in ("waiting", "running"):
            self.absent_since = None
        elif self.absent_since is None:
            self.absent_since = now
        self.seen = seen

    def may_have_news(self, now: float) -> bool:
        """Tell whether its files must be read: not while it waits, and seldom while it is known to run."""
        if self.is_unclear:
            return True
        if self.seen.phase == "waiting":
            return False
        is_known = self.seen.phase == "running" and self.is_told and self.seen.node == self.told_node
        return not is_known or now - self.read_at >= LOOK_AGAIN_S

    def judge(self, now: float, grace_s: float) -> Judged | None:
        """Read the files of the start; return its verdict, with what the engine said, if that is news."""
        absent_for_s = 0.0 if self.absent_since is None else now - self.absent_since
        found = self._records(now)
        verdict = verdicts.judge(
            found, self.seen, absent_for_s=absent_for_s, grace_s=grace_s, is_stop_asked=self.is_stop_asked
        )
        if isinstance(verdict, verdicts.Sent):
            return None
        if isinstance(verdict, verdicts.Unclaimed):
            if not self.bury():
                # A runner was faster; the next look finds its claim.
                return None
            return Judged(self.start_id, attempts.NeverStarted(), self.seen, self.engine_output())
        return self._news(verdict, self._where(found))

    def read(self, now: float) -> Judged | None:
        """Read the files of the start; return what they alone decide, if that is news."""
        found = self._records(now)
        if found is None:
            return None
        where = self._where(found)
        settled = attempts.settle(found)
        if settled is None:
            assert isinstance(found.decision, attempts.Shim)
            return self._news(Alive(found.decision, found.running), where)
        is_stopped = isinstance(settled, attempts.Ended) and settled.final.stopped and not self.is_stop_asked
        self.is_unclear = not where.node or is_stopped
        return None if self.is_unclear else self._news(settled, where)

    def _records(self, now: float) -> attempts.Records | None:
        self.read_at = now
        self.is_unclear = False
        found = attempts.read_records(self.folder, self.start_id.start)
        if found is None:
            # A client of NFS remembers for up to a minute that there was no such file, unless the folder is opened.
            with contextlib.suppress(FileNotFoundError):
                os.close(attempts.open_folder(self.folder))
                found = attempts.read_records(self.folder, self.start_id.start)
        return found

    def _where(self, found: attempts.Records | None) -> Seen:
        """Return what the engine said, with the node from the records if it has named none yet."""
        running = None if found is None else found.running
        return self.seen if self.seen.node or running is None else self.seen._replace(node=running.node)

    def _news(self, verdict: verdicts.Verdict, where: Seen) -> Judged | None:
        if isinstance(verdict, Alive):
            if verdict.running is None or (self.is_told and where.node == self.told_node):
                return None
            self.is_told, self.told_node = True, where.node
        return Judged(self.start_id, verdict, where)

    def bury(self) -> bool:
        """Decide that the start never begins; return False if a runner has begun it."""
        return attempts.give_up(self.folder, self.start_id.start, is_shared=True)

    def engine_output(self) -> str:
        """Return the end of what the engine and the runner printed."""
        raw = tails.read(os.fsencode(f"{self.folder}/engine.{self.start_id.start}"), OUTPUT_TAIL)
        return " ".join(raw.decode(errors="replace").split())

    def remove_spec(self) -> None:
        """Remove the spec, which has the user's environment; the start is over."""
        with contextlib.suppress(OSError):
            # A folder that is away or read-only: the file is removed with the job.
            Path(f"{self.folder}/spec.{self.start_id.start}").unlink(missing_ok=True)


# -- what is sent ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packer:
    """Makes the starts of one engine from jobs, and writes their specs."""

    engine: EngineSettings
    files: JobFiles
    settings: Settings
    #: Identifies this queue among those that use the same cluster.
    owner: str
    #: Our devices: an engine's node may be this machine.
    inventory: Callable[[], Inventory]

    @property
    def shared(self) -> Path:
        """Return the folder that all nodes see."""
        assert self.engine.shared is not None
        return self.engine.shared

    def prepare(self) -> Path:
        """Make the shared folder ready, and return the folder with the code for the nodes."""
        try:
            self.shared.mkdir(mode=0o700, parents=True, exist_ok=True)
            why = trusted_paths.find_problem(str(self.shared))
            if why is not None:
                raise Unavailable(f"engines.{self.engine.name}.shared: expected a folder of yours, but {why}")
            return node_code.install(self.shared)
        except OSError as error:
            raise Unavailable(f"{self.shared} cannot be used: {error.strerror or error}") from error

    def key(self, start_id: StartId) -> str:
        """Return the name of a start in the engine's own list."""
        return f"dibs-{self.owner}-{start_id.job}.{start_id.attempt}.{start_id.start}"

    def folder(self, job: Job) -> str:
        """Return the folder of a job's current attempt."""
        return f"{self.files.folder(job)}/{job.attempt}"

    def track(self, job: Job, outgoing: OutgoingJob | None) -> Tracked:
        """Return what is known of an active job's start."""
        start_id = start_id_of(job)
        return Tracked(
            start_id,
            self.key(start_id),
            self.folder(job),
            outgoing,
            job.engine_ref,
            job.spec.request.gpus,
            is_doubtful=outgoing is None and job.engine_ref is None,
            is_stop_asked=job.state is State.STOPPING,
            is_told=job.pid is not None,
            told_node=job.node or "",
        )

    def start(self, job: Job) -> Start:
        """Return what an engine needs to know to start a job."""
        folder = self.folder(job)
        start_id = start_id_of(job)
        spec_path = f"{folder}/spec.{start_id.start}"
        return Start(
            key=self.key(start_id),
            folder=folder,
            argv=node_code.argv(self.engine.python, node_code.root_in(self.shared), spec_path),
            needs=needs_of(job.spec.request, job.spec.engine_options, self.engine, self.settings.grace),
            priority=job.spec.priority,
            name=job.spec.name,
            engine_output=f"{folder}/engine.{start_id.start}",
            # Jobs that were submitted together have the same time.
            batch=job.spec.batch or job.submitted_at,
        )

    def write(self, outgoing: OutgoingJob) -> Start:
        """Write the spec of a start, readable by us alone; return the start."""
        job = outgoing.job
        start = self.start(job)
        inventory = self.inventory()
        self._move_aside(job, start)
        os.makedirs(start.folder, mode=0o700, exist_ok=True)
        own_names = [*start_specs.own_names(self.files), ("DIBS_ENGINE", self.engine.name)]
        if call_files.is_call(job.spec.argv):
            root = str(self.files.shared[self.engine.name])
            call_files.copy(str(self.files.home), root, (job.spec.argv or ())[-2])
            own_names.append(("DIBS_CALLS", root))
        spec = start_specs.build(
            job, outgoing.captured, outgoing.script, self.files, self.settings, inventory, start.folder,
            own=own_names,
        )  # fmt: skip
        spec.engine = self.engine.name
        spec.gpus = job.spec.request.gpus
        # Pretend GPUs are no node's.
        own = [device for device in inventory.devices if not device.id.startswith("FAKE-")]
        if own:
            spec.machine = paths.machine_id()
            spec.machine_devices = tuple(f"{device.index} {device.id}" for device in own)
        path = start.argv[-1]
        fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(records.pack(spec))
        os.rename(f"{path}.new", path)
        return start

    def _move_aside(self, job: Job, start: Start) -> None:
        """Move away the folder of an older job with the same id: its queue was lost, and its claims would be ours."""
        try:
            decided_at = os.stat(f"{start.folder}/started.{job.start}").st_mtime
        except FileNotFoundError:
            return
        # The file has the time of the file server: compare with what that says now, not with our clock.
        os.utime(start.folder)
        ahead_s = os.stat(start.folder).st_mtime - time.time()
        if decided_at - ahead_s < job.submitted_at / 1000 - OLDER_S:
            os.rename(start.folder, f"{start.folder}.older-{os.urandom(4).hex()}")


def needs_of(request: Request, options: str, engine: EngineSettings, grace_s: float) -> Needs:
    """Return what a job needs of a node; `options` are its own ones for the engine."""
    limit_s = None if request.limit_s is None else request.limit_s + grace_s + ENDING_S
    both = " ".join(text for text in (engine.options, options) if text)
    return Needs(request.gpus, request.gpu_type or "", request.cpus, request.mem, limit_s, both)
