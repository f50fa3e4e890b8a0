"""Counted resources: CPUs, memory and, for etiquette, the number of devices.

`assignment` chooses the devices; `planner` decides who gets them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dibs.model.jobs import Request


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job takes of each counted resource."""

    cpus: int
    mem: int
    #: Devices that our other jobs do not use, and how many of those nobody uses.
    gpus: int
    free: int


def demand_of(request: Request) -> Demand:
    """Return what a request takes. A job without devices takes a CPU slot even if it asks for none."""
    return Demand(request.cpus or (0 if request.gpus else 1), request.mem, request.gpus, request.gpus)


@dataclass(frozen=True, slots=True)
class Pool:
    """What is left of each counted resource; infinite if there is no limit."""

    cpus: float
    mem: float
    #: Devices that etiquette still allows us: in total (`max_gpus`), and of the free ones (`keep_free`).
    gpus: float
    free: float

    def fits(self, demand: Demand) -> bool:
        """Tell whether enough is left of each resource that `demand` needs."""
        return (
            (demand.cpus <= self.cpus or not demand.cpus)
            and (demand.mem <= self.mem or not demand.mem)
            and (demand.gpus <= self.gpus or not demand.gpus)
            and (demand.free <= self.free or not demand.free)
        )

    def less(self, demand: Demand) -> Pool:
        """Return what is left after `demand` was taken."""
        return Pool(self.cpus - demand.cpus, self.mem - demand.mem, self.gpus - demand.gpus, self.free - demand.free)

    def more(self, demand: Demand) -> Pool:
        """Return what is left after `demand` was released."""
        return Pool(self.cpus + demand.cpus, self.mem + demand.mem, self.gpus + demand.gpus, self.free + demand.free)
