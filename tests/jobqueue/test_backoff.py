"""A refused start has its consequences even where the machine cannot be read."""

from __future__ import annotations

import contextlib

import build
from dibs.devices.view import DeviceView
from dibs.jobqueue.backoff import Backoff
from dibs.jobqueue.machine_line import MachineLine
from dibs.jobqueue.reactor import Reactor
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


def test_a_device_is_shunned_when_its_holder_cannot_be_read(tmp_path):
    line = BrokenLine(locks.Folder(str(tmp_path)), "ann", 3600.0, lambda fd, then: None)
    with contextlib.closing(Reactor()) as waits:
        Backoff(FourGpus(), line, waits, lambda: None).refuse(build.job(), Refusal(LEASE, "held", "FAKE-0"))
    line.is_broken = False
    assert "FAKE-0" in line.look(build.inventory(4), ()).held
