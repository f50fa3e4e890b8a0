"""Which devices are already leased for us: those in our environment that we or a process above us holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import build
import lease_lab
from dibs.foreground import inherited
from dibs.leases import device_lease
from lease_lab import Puppet

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

HERE = build.inventory(4)
FIRST, SECOND, THIRD, _ = HERE.ids


@pytest.mark.parametrize(
    ("told", "ours"),
    [("0,1", [FIRST, SECOND]), ("1", [SECOND]), ("1,3", [SECOND]), ("2", []), ("", []), ("x,-1,9", []), (None, [])],
)
def test_devices_named_in_the_environment_and_held_by_an_ancestor_are_inherited(
    place: device_lease.Folder, monkeypatch: pytest.MonkeyPatch, told: str | None, ours: list[str]
) -> None:
    monkeypatch.delenv("DIBS_GPU_INDICES", raising=False)
    if told is not None:
        monkeypatch.setenv("DIBS_GPU_INDICES", told)
    taken = device_lease.take(place, [FIRST, SECOND], device_lease.Note("test"))
    try:
        assert inherited.devices(place, HERE) == ours
    finally:
        lease_lab.close(taken)


def test_a_device_held_by_an_unrelated_process_is_not_inherited(
    place: device_lease.Folder, puppet: Callable[..., Puppet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable left over from a finished job grants nothing."""
    monkeypatch.setenv("DIBS_GPU_INDICES", "2")
    puppet().ask(f"take {THIRD} other")
    assert inherited.devices(place, HERE) == []
