"""GPUs as the HTTP interface shows them."""

from __future__ import annotations

import msgspec

from dibs.http_api import gpus
from dibs.model.devices import Device, DeviceId, Process


def test_a_device_is_shown_as_the_driver_reports_it() -> None:
    device = Device(DeviceId("GPU-1"), 0, "Tesla T4", 16, 4, 50, 60, (Process(7, "bob", "python", 3),), "lost")
    shown = msgspec.to_builtins(gpus.gpu_answer(device, (), None, waiters=0))
    assert shown == {
        "index": 0,
        "id": "GPU-1",
        "name": "Tesla T4",
        "memory_total": 16,
        "memory_used": 4,
        "utilization": 50,
        "temperature": 60,
        "fault": "lost",
        "drained": None,
        "foreign": None,
        "foreign_memory": 0,
        "settling": None,
        "power": None,
        "power_limit": None,
        "ecc_errors": None,
        "compute_mode": None,
        "pci": None,
        "numa": None,
        "parent": None,
        "vendor": "nvidia",
        "processes": [{"pid": 7, "user": "bob", "name": "python", "memory": 3}],
        "state": "unhealthy",
        "holders": [],
        "idle_since": None,
        "unused_since": None,
        "is_idle": False,
        "waiters": 0,
        "blocked": None,
        "reserved_for": None,
        "kept_by": None,
        "reservation": None,
    }
