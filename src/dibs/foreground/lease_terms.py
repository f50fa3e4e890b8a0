"""What a foreground door knows of the devices when it chooses among them: their memory, their links, their last use."""

from __future__ import annotations

import time
from collections.abc import Callable

from dibs.foreground import device_check
from dibs.leases import holders
from dibs.model.devices import Inventory
from dibs.model.jobs import Request
from dibs.scheduling import capacity
from dibs.scheduling.choice import Terms
from dibs.system.locks import Folder
from dibs.system.settings import Settings

#: Seconds for which what strangers use of the devices is believed, by a door that shares them.
FRESH_S = 5.0


class Known:
    """The terms on which a door takes devices, made anew each time it asks."""

    def __init__(
        self, place: Folder, inventory: Inventory, values: Settings, request: Request,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._place = place
        self._inventory = inventory
        self._values = values
        self._request = request
        self._clock = clock
        #: The first time it shares, it looks.
        self._read_at = float("-inf")

    def terms(self) -> Terms:
        """Return what is wanted of each device, and what is known of them now."""
        request = self._request
        if request.vram and self._clock() - self._read_at >= FRESH_S:
            self._inventory = device_check.measured(self._values, self._place)
            self._read_at = self._clock()
        is_choosy = request.gpus > 1 or request.vram
        return Terms(
            request.mib,
            capacity.capacities(self._inventory),
            self._values.max_jobs_per_gpu,
            self._inventory.closeness,
            request.prefer,
            holders.used_at(self._place, self._inventory.ids) if is_choosy else {},
        )
