"""This machine as an engine: give starts and orders to runners, and find runners again.

It decides nothing about jobs: `dispatch` calls `examine` and decides what follows. This process never holds a lease, so
no process it starts can inherit one by accident.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dibs.engines import start_specs
from dibs.engines.job_files import JobFiles
from dibs.engines.prepared_folders import PreparedFolders
from dibs.engines.runner_pool import Runners, Then, Undelivered, boot, spawn
from dibs.leases import evictable_marks
from dibs.model.devices import Inventory
from dibs.model.jobs import Job
from dibs.runner import attempts, ports, records, spares
from dibs.scheduling import capacity
from dibs.system import disk, processes, refusals
from dibs.system.lean import closing_fd
from dibs.system.settings import Settings


@dataclass(frozen=True, slots=True)
class Local:
    """The engine of one daemon."""

    files: JobFiles
    settings: Settings
    lease_dir: str
    notify: Path
    runners: Runners
    #: The variables by which `dibs` inside a job finds this queue, lease folder and devices.
    own: Sequence[tuple[str, str]] = ()
    prepared: PreparedFolders | None = None

    def folder(self, job: Job) -> str:
        """Return the local folder of a job's current attempt."""
        return f"{self.files.home}/jobs/{job.id}/{job.attempt}"

    def prepare(self) -> None:
        """Make the folders above those of jobs, and remove those that dead runners made in advance."""
        for folder in (self.files.home / "jobs", self.files.home / spares.FOLDER):
            try:
                folder.mkdir(0o700, exist_ok=True)
            except OSError:
                # A full disk, for example: then the first start reports that.
                continue
            disk.spread(folder)

    def start(
        self,
        job: Job,
        captured: bytes,
        inventory: Inventory,
        then: Then,
        script: bytes | None = None,
        *,
        is_loan: bool = False,
    ) -> None:
        """Have a runner carry out the job's current start; call `then` when it is over.

        `is_loan`: its devices are leased by others, and lent to it. Raise `Undelivered` if no runner has it.
        """
        try:
            spec = self._spec(job, captured, inventory, script, is_loan)
        except OSError as error:
            raise Undelivered(refusals.of_own(error)) from error
        if self.prepared is not None and job.start == 1 and script is None and spares.fits(spec):
            spec.spare = self.prepared.take()
        try:
            self.runners.start(records.pack(spec), then)
        except Undelivered:
            if self.prepared is not None:
                self.prepared.put_back(spec.spare)
            raise

    def _spec(
        self, job: Job, captured: bytes, inventory: Inventory, script: bytes | None, is_loan: bool
    ) -> records.Spec:
        spec = start_specs.build(
            job,
            captured,
            script,
            self.files,
            self.settings,
            inventory,
            self.folder(job),
            port=ports.free(str(self.files.home), job.id, job.attempt),
            own=self.own,
        )
        spec.devices = () if job.spec.request.vram else tuple(job.allocation)
        if is_loan:
            spec.devices = tuple(map(evictable_marks.loan_of, job.allocation))
        spec.shares = self._shares(job, inventory) if job.spec.request.vram else ()
        spec.lease_dir = self.lease_dir
        spec.evictable, spec.evicted_by = job.spec.request.is_evictable, job.evicted_by
        spec.notify = os.fsencode(self.notify)
        return spec

    def _shares(self, job: Job, inventory: Inventory) -> tuple[str, ...]:
        """Return the share that the runner leases of each device, and the limits it must respect."""
        room, most = capacity.capacities(inventory), self.settings.max_jobs_per_gpu
        return tuple(f"{device} {job.spec.request.mib} {room.get(device, 0)} {most}" for device in job.allocation)

    def end_leftovers(self, job: Job, grace_s: float) -> int:
        """Start a process that ends the leftover processes of an attempt whose runner is gone; return its pidfd."""
        markers = (f"DIBS_JOB_DIR={self.files.folder(job)}", f"DIBS_ATTEMPT={job.attempt}")
        return self._spawn("leftovers", self.folder(job), str(grace_s), *markers)

    def _spawn(self, *words: str) -> int:
        return os.pidfd_open(spawn(boot("main", *words), self.runners.log))

    def adopt(self, shim: attempts.Shim | None) -> int | None:
        """Return a pidfd of a live runner; None if it is gone or not yet known."""
        return processes.open_verified(shim.pid, shim.starttime) if shim is not None and shim.pid else None

    def adopt_command(self, running: records.RunningCommand | None) -> int | None:
        """Return a pidfd of a command whose runner is gone; None if it has ended."""
        return processes.open_verified(running.pid, running.starttime) if running is not None else None

    def running(self, job: Job) -> records.RunningCommand | None:
        """Return the runner's record of the command of the job's current start; None: not written yet."""
        return records.read_running(self.folder(job), job.start)

    def is_undecided(self, job: Job) -> bool:
        """Tell whether the disk has no record that the job's current start began or was given up."""
        return attempts.read_started(self.folder(job), job.start) is None

    def examine(self, job: Job) -> attempts.Verdict:
        """Return what happened to the job's current start, and make that final."""
        return attempts.examine(self.folder(job), job.start)

    def give_up(self, job: Job) -> bool:
        """Give up a start before its command ran; False if a runner was faster."""
        return attempts.give_up(self.folder(job), job.start)

    def standing_orders(self, job: Job) -> tuple[bool, str | None]:
        """Return whether the runner was ordered to pause, and the last time limit that it was ordered to use."""
        return attempts.orders_in_force(self.folder(job), job.start)

    def order(self, job: Job, line: str) -> bool:
        """Write an order for the job's runner and wake it; False if the runner is gone."""
        signum = signal.SIGUSR1
        try:
            attempts.append_order(self.folder(job), job.start, line)
        except OSError:
            if not line.startswith("stop"):
                raise
            # No disk space for an order: a plain TERM means stop, with the default grace.
            signum = signal.SIGTERM
        started = attempts.read_started(self.folder(job), job.start)
        # A runner that has finished this start may already run another one, which must not get the signal.
        if not isinstance(started, attempts.Shim) or not attempts.has_runner(self.folder(job), job.start):
            return False
        pidfd = self.adopt(started)
        if pidfd is None:
            return False
        with closing_fd(pidfd):
            # A runner that was stopped must continue to obey; for any other one SIGCONT changes nothing.
            return processes.send(pidfd, signum) and processes.send(pidfd, signal.SIGCONT)

    def kill_stopped_runner(self, job: Job) -> bool:
        """Kill the job's runner if it is stopped, because it will not obey; tell whether it was."""
        started = attempts.read_started(self.folder(job), job.start)
        pidfd = self.adopt(started) if isinstance(started, attempts.Shim) else None
        if pidfd is None or not isinstance(started, attempts.Shim):
            return False
        with closing_fd(pidfd):
            found = processes.look(started.pid)
            is_stopped = found is not None and found.is_stopped and attempts.has_runner(self.folder(job), job.start)
            return is_stopped and processes.send(pidfd, signal.SIGKILL)


def own_names(files: JobFiles, lease_dir: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables of jobs that name their queue; where the daemon was given a folder or devices, these too."""
    given = {"DIBS_LEASE_DIR": lease_dir, "DIBS_DEVICES": environ.get("DIBS_DEVICES", "")}
    return [*start_specs.own_names(files), *(pair for pair in given.items() if pair[0] in environ)]
