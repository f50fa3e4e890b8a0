"""A refused start has its consequences even where the machine cannot be read, and they end with the trouble."""

from __future__ import annotations

import contextlib
import time

import build
from dibs.devices.view import DeviceView
from dibs.jobqueue.backoff import LOOK_EVERY_S, Backoff
from dibs.jobqueue.machine_line import MachineLine
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.start_pauses import SPANS_S, Pause, StartPauses
from dibs.system import locks
from dibs.system.refusals import LEASE, Refusal


class BrokenLine(MachineLine):
    """A line in a folder that somebody made unusable after the daemon had started."""

    is_broken = True

    def look(self, inventory, active):
        if self.is_broken:
            raise locks.Broken("cannot use the lease folder.")
        return super().look(inventory, active)


class FourGpus(DeviceView):
    """Devices that nobody has to read."""

    def __init__(self):
        pass

    def inventory(self):
        return build.inventory(4)


def test_a_device_refused_again_is_shunned_when_its_holder_cannot_be_read(tmp_path):
    line = BrokenLine(locks.Folder(str(tmp_path)), "ann", 3600.0, lambda fd, then: None)
    with contextlib.closing(Reactor()) as waits:
        backoff = Backoff(FourGpus(), line, waits, lambda: None, [])
        for _ in range(8):
            # On a slow machine the first pauses may be over before the look.
            backoff.refuse(build.job(), Refusal(LEASE, "held", "FAKE-0"))
    line.is_broken = False
    assert "FAKE-0" in line.look(build.inventory(4), ()).held


def test_a_refusal_without_a_holder_places_again_at_once(tmp_path):
    """The device was refused because of somebody who has left: no hang-up will tell us of that."""
    woken = []
    line = MachineLine(locks.Folder(str(tmp_path)), "ann", 3600.0, lambda fd, then: None)
    with contextlib.closing(Reactor()) as waits:
        backoff = Backoff(FourGpus(), line, waits, lambda: woken.append(None), [])
        backoff.refuse(build.job(), Refusal(LEASE, "held", "FAKE-0"))
        waits.wait(is_idle=False)
    assert woken


def test_a_pause_of_half_a_minute_ends_when_its_cause_is_seen_to_be_gone(tmp_path):
    """Without one more start. The cause is a folder that is missing, as a full disk would be."""
    folder = tmp_path / "files"
    woken = []
    line = MachineLine(locks.Folder(str(tmp_path)), "ann", 3600.0, lambda fd, then: None)
    with contextlib.closing(Reactor()) as waits:
        backoff = Backoff(FourGpus(), line, waits, lambda: woken.append(None), [str(folder)])
        backoff.pauses = StartPauses(Pause("No space left on device", 0.0, before=len(SPANS_S)))
        backoff.pause_queue("No space left on device")
        left_s = backoff.pauses.queue.until - time.monotonic()
        while not backoff._seen:
            waits.wait()
        folder.mkdir()
        while not woken:
            waits.wait()
        assert backoff.pauses.told([], time.monotonic()) is None
        assert left_s > LOOK_EVERY_S * 10
        assert list(folder.iterdir()) == []


def test_a_pause_whose_cause_shows_only_in_starts_lasts(tmp_path):
    line = MachineLine(locks.Folder(str(tmp_path)), "ann", 3600.0, lambda fd, then: None)
    with contextlib.closing(Reactor()) as waits:
        backoff = Backoff(FourGpus(), line, waits, lambda: None, [str(tmp_path)])
        backoff.pauses = StartPauses(Pause("Too many open files (train)", 0.0, before=len(SPANS_S)))
        backoff.pause_queue("Too many open files (train)")
        for _ in range(2):
            backoff._learn(is_refused=False)
        assert backoff.pauses.lasting(time.monotonic()) == {None}
