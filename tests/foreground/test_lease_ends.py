"""Interactive leases with a time limit: the warning before their end, and its extension."""

import os
import select
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dibs.foreground import lease_ends
from dibs.foreground.lease_ends import LeaseClock, LeaseEnd
from dibs.leases import keeper
from dibs.system import locks, processes

HOUR = 3600.0


@pytest.fixture
def place(tmp_path):
    return locks.Folder(str(tmp_path))


def end_of(place, at=HOUR, began_at=0.0):
    """Return the stored end of a lease of this process."""
    pid = os.getpid()
    found = LeaseEnd(place, pid, processes.identity(pid), 77, began_at, at)
    found.write()
    return found


def test_the_user_is_warned_once_and_then_the_lease_is_over(place):
    said = []
    clock = LeaseClock(end_of(place), said.append)
    assert not clock.is_over(0.0)
    assert clock.wake_at == 0.9 * HOUR
    assert not clock.is_over(0.9 * HOUR)
    assert not clock.is_over(0.95 * HOUR)
    assert said == [f"the lease ends in 6m00s; dibs lease --extend 1h --pid {os.getpid()} extends it"]
    assert clock.wake_at == HOUR
    assert clock.is_over(HOUR)


def test_an_extension_moves_the_end_and_brings_a_new_warning(place):
    said = []
    clock = LeaseClock(end := end_of(place), said.append)
    clock.is_over(0.95 * HOUR)
    end.extended(HOUR).write()
    assert not clock.is_over(HOUR)
    assert clock.wake_at == 2 * HOUR - keeper.WARN_S
    assert not clock.is_over(2 * HOUR - 60)
    assert len(said) == 2
    assert clock.is_over(2 * HOUR)


def test_a_lease_without_a_limit_is_never_over():
    clock = LeaseClock(None, lambda text: None)
    assert not clock.is_limited
    assert not clock.is_over(1e12)


def test_a_lease_is_found_by_its_holder_and_its_owner(place):
    end = end_of(place)
    assert lease_ends.find(place, [1, os.getpid()]) == [end]
    assert lease_ends.find(place, [77]) == [end]
    assert lease_ends.find(place, [78]) == []
    end.remove()
    assert lease_ends.find(place, [77]) == []


def test_the_file_of_a_dead_holder_is_removed(place):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    LeaseEnd(place, process.pid, 1, 77, 0.0, HOUR).write()
    assert lease_ends.find(place, [77]) == []
    assert locks.names(place, lease_ends.END) == []


def test_the_file_of_another_user_or_with_other_text_does_not_count(place):
    end = end_of(place)
    with open(end.path, "w") as file:
        file.write("soon\n")
    assert lease_ends.find(place, [77]) == []
    assert end.now() is end
    end.write()
    os.chmod(end.path, 0o666)
    assert end.now() is end, "anybody may have written it"


class FakeTime:
    """The clock and the poll of a keeper: a poll in which nothing happens takes all of its time, and no real time."""

    POLLIN = select.POLLIN

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def poll(self):
        real = select.poll()

        def poll(timeout_ms):
            ready = real.poll(0)
            self.now += 0.0 if ready else timeout_ms / 1000
            return ready

        return SimpleNamespace(register=real.register, poll=poll)


def test_a_keeper_warns_and_obeys_an_extension(tmp_path, monkeypatch):
    """Its owner ends while it waits for the extended end."""
    path, clock = tmp_path / "end", FakeTime()
    monkeypatch.setattr(keeper, "time", clock)
    monkeypatch.setattr(keeper, "select", clock)
    with subprocess.Popen(["sleep", "1000"]) as owner:
        pidfd = os.pidfd_open(owner.pid)
        warnings = []

        def warn(left_s):
            warnings.append(left_s)
            if len(warnings) == 1:
                path.write_text(f"{2 * HOUR} 0 0 0\n")
            else:
                owner.kill()
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)

        keeper.wait(pidfd, HOUR, str(path), warn)
        assert len(warnings) == 2
        assert HOUR < clock.now < 2 * HOUR, "it was extended, and ended with its owner"
        assert os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        os.close(pidfd)


def test_a_keeper_without_an_extension_ends_in_time():
    with subprocess.Popen(["sleep", "1000"]) as owner:
        pidfd = os.pidfd_open(owner.pid)
        keeper.wait(pidfd, 0.02)
        assert owner.poll() is None
        owner.kill()
        os.close(pidfd)
