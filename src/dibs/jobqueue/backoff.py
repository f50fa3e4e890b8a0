"""Back off after refused starts: pause what was refused, set the timers, and tell the device view.

`start_pauses` decides how long. While a long pause lasts, the machine is looked at every two seconds: a pause whose
cause shows without a start (a full disk, no process left, a broken lease file) ends when that is gone. All methods but
`pauses`, `waiting_jobs` and `_rehearse` belong to the queue thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

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
#: Seconds between two looks whether a trouble is over; shorter pauses need none.
LOOK_EVERY_S = 2.0
#: Bytes written to each disk: at least one block.
BLOCK = bytes(4096)


@dataclass(eq=False)
class Backoff:
    """What waits because starts were refused. `_wake` runs a placement soon; starts write to `_folders`."""

    _devices: DeviceView
    _line: MachineLine
    _waits: Reactor[Work]
    _wake: Callable[[], None]
    _folders: Sequence[str]
    #: A look is under way, or will follow.
    _is_looking: bool = False
    #: What the last look found still in trouble: devices, and None for all starts.
    _seen: set[DeviceId | None] = field(default_factory=set)
    #: Replaced as a whole; read from any thread.
    pauses: StartPauses = NO_PAUSES

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
            if span_s > LOOK_EVERY_S and not self._is_looking:
                self._is_looking = True
                self._look()
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

    def _look(self) -> None:
        """Look in a thread whether troubles are over: a disk may not answer."""
        said, tell = -1, -1
        try:
            said, tell = os.pipe()
            threading.Thread(target=self._rehearse, args=(tell,), name="rehearsal", daemon=True).start()
        except (OSError, RuntimeError):
            # No descriptor or no process is left for it, which is a trouble too.
            for end in {said, tell} - {-1}:
                os.close(end)
            self._learn(is_refused=True)
        else:
            self._waits.watch(said, lambda: self._hear(said))

    def _rehearse(self, tell: int) -> None:
        with open(tell, "wb") as told:
            told.write(b"refused" if find_trouble(self._folders) is not None else b"")

    def _hear(self, said: int) -> None:
        with open(said, "rb") as answer:
            self._learn(is_refused=bool(answer.read()))

    def _learn(self, *, is_refused: bool) -> None:
        """End the pauses whose cause was seen before and is gone; look again while any is left."""
        now = time.monotonic()
        lasting = self.pauses.lasting(now)
        devices = device_lease.unusable(self._line.folder, [device for device in lasting if device is not None])
        seen = {*map(DeviceId, devices), *([None] if is_refused else [])}
        over = lasting & self._seen - seen
        self._seen = seen
        if over:
            log.info("the problem of %s is over", "all starts" if None in over else ", ".join(map(str, over)))
            self.pauses = self.pauses.over(over, now)
            self._reopen()
        self._is_looking = bool(lasting - over)
        if self._is_looking:
            self._waits.later(LOOK_EVERY_S, self._look)
        else:
            self._seen = set()

    def waiting_jobs(self, reader: Reader, inventory: Inventory, policy: Policy, now: float) -> list[WaitingJob]:
        """Return the jobs at the heads of the lines that may start now, without those that rest after a refusal."""
        pauses = self.pauses
        resting, yielding = pauses.resting(now), pauses.yielding(now)
        # These jobs must not hide those behind them.
        windows = [most + len(resting) + len(yielding) for most in views.windows(inventory, policy)]
        heads = [job for job in reader.head(*windows) if job.id not in resting]
        return [job for job in heads if job.id not in yielding] or heads


def find_trouble(folders: Iterable[str]) -> str | None:
    """Return what the machine refuses, as text; None if it would accept a start that uses these folders.

    What a start needs is tried without a job: files, locks, links, a process. That costs a few milliseconds and leaves
    nothing behind, so it can be repeated until the trouble is over.
    """
    try:
        for folder in folders:
            _write(folder)
        _spawn()
    except OSError as error:
        return refusals.describe(error)
    return None


def _write(folder: str) -> None:
    # Nobody can know the name before, in a folder where all may write.
    name = f"{folder}/.dibs-rehearsal-{os.urandom(8).hex()}"
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, BLOCK)
        os.link(name, f"{name}-link")
        os.unlink(f"{name}-link")
    finally:
        os.unlink(name)
        os.close(fd)


def _spawn() -> None:
    """Start the interpreter of the runners, as far as its version."""
    nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-V"], {}, file_actions=[nowhere]), 0)
