"""Back off after refused starts: pause what was refused, set the timers, and tell the device view.

`start_pauses` decides how long. All methods but `pauses` and `waiting_jobs` belong to the queue thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from dibs.devices.view import DeviceView
from dibs.errors import MachineError
from dibs.jobqueue.machine_line import MachineLine
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.start_pauses import StartPauses
from dibs.jobqueue.turns import Work
from dibs.leases import device_lease
from dibs.model.devices import DeviceId, Inventory
from dibs.model.jobs import Job, JobId
from dibs.scheduling import views
from dibs.scheduling.views import Policy, WaitingJob
from dibs.store.writer import Reader
from dibs.system import refusals
from dibs.system.refusals import Refusal

log = logging.getLogger("dibs.jobqueue.backoff")

NO_PAUSES = StartPauses()
#: The job of a refusal that concerns no job.
NO_JOB = JobId(0)


class Backoff:
    """What waits because starts were refused. `wake` runs a placement soon."""

    def __init__(self, devices: DeviceView, line: MachineLine, waits: Reactor[Work], wake: Callable[[], None]) -> None:
        self._devices = devices
        self._line = line
        self._waits = waits
        self._wake = wake
        #: Replaced as a whole; read from any thread.
        self.pauses = NO_PAUSES

    def refuse(self, job: Job, refusal: Refusal) -> None:
        """Pause what the refusal of a job's start names."""
        if refusal.scope == refusals.LEASE:
            self._shun(DeviceId(refusal.device))
        else:
            self._pause(refusal, job.id)

    def _shun(self, device: DeviceId) -> None:
        """Shun a device that a runner could not lease, unless its holder is visible."""
        try:
            is_seen = device in self._line.look(self._devices.inventory(), ()).held
        except (OSError, MachineError) as error:
            log.error("the holder of %s cannot be read: %s", device, error)
            is_seen = False
        if not is_seen:
            self._waits.later(self._line.shun(device), self._wake)

    def pause_queue(self, why: str) -> None:
        """Pause all starts, because the machine cannot be read."""
        self._pause(Refusal(refusals.QUEUE, why), NO_JOB)

    def _pause(self, refusal: Refusal, job: JobId) -> None:
        before, now = self.pauses, time.monotonic()
        self.pauses = before.refused(refusal, job, now)
        for span_s in self.pauses.new_spans(before, now):
            log.error("a start was refused: %s; next try in %g s", refusal.why, span_s)
            self._waits.later(span_s, self._reopen)
        if job in self.pauses.tried:
            self._waits.later(self.pauses.tried[job] - now, self._wake)
        self._devices.unusable = self.pauses.unusable(now)

    def accept(self, begun: Sequence[Job]) -> None:
        """End the pauses that jobs whose command began have shown to be over."""
        if not begun or self.pauses == NO_PAUSES:
            return
        was_paused = self.pauses.queue is not None
        for job in begun:
            self.pauses = self.pauses.begun(job.id, job.allocation)
        self._devices.unusable = self.pauses.unusable(time.monotonic())
        if was_paused:
            self._wake()

    def _reopen(self) -> None:
        """Try again what a pause kept back; a device whose files are still wrong is paused again without a start."""
        now = time.monotonic()
        over = [device for device, pause in self.pauses.devices.items() if not pause.lasts(now)]
        for device, why in device_lease.unusable(self._line.folder, over).items():
            self._pause(Refusal(refusals.DEVICE, why, device), NO_JOB)
        self._devices.unusable = self.pauses.unusable(now)
        self._wake()

    def waiting_jobs(self, reader: Reader, inventory: Inventory, policy: Policy, now: float) -> list[WaitingJob]:
        """Return the jobs at the heads of the lines that may start now, without those that rest after a refusal."""
        pauses = self.pauses
        resting, yielding = pauses.resting(now), pauses.yielding(now)
        # These jobs must not hide those behind them.
        windows = [most + len(resting) + len(yielding) for most in views.windows(inventory, policy)]
        heads = [job for job in reader.head(*windows) if job.id not in resting]
        return [job for job in heads if job.id not in yielding] or heads
