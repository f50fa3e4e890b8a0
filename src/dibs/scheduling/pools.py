"""Counted resources: CPUs, memory and, for etiquette, the number of devices.

`choice` chooses the devices; `planner` decides who gets them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dibs.model.jobs import Request


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a job takes of each counted resource, or what is left of it; infinite if there is no limit."""

    cpus: float
    mem: float
    #: Taken: devices that our other jobs do not use, and how many of those nobody uses.
    #: Left: devices that etiquette still allows us, in total (`max_gpus`), and of the free ones (`keep_free`).
    gpus: float
    free: float

    def fits(self, demand: Amounts) -> bool:
        """Tell whether enough is left of each resource that `demand` needs."""
        return (
            (demand.cpus <= self.cpus or not demand.cpus)
            and (demand.mem <= self.mem or not demand.mem)
            and (demand.gpus <= self.gpus or not demand.gpus)
            and (demand.free <= self.free or not demand.free)
        )

    def less(self, demand: Amounts) -> Amounts:
        """Return what is left after `demand` was taken."""
        return Amounts(self.cpus - demand.cpus, self.mem - demand.mem, self.gpus - demand.gpus, self.free - demand.free)

    def more(self, demand: Amounts) -> Amounts:
        """Return what is left after `demand` was released."""
        return Amounts(self.cpus + demand.cpus, self.mem + demand.mem, self.gpus + demand.gpus, self.free + demand.free)


def demand_of(request: Request) -> Amounts:
    """Return what a request takes. A job without devices takes a CPU slot even if it asks for none.

    Etiquette does not count the devices of an evictable job: it gives them up when others want them.
    """
    counted = 0 if request.is_evictable else request.gpus
    return Amounts(request.cpus or (0 if request.gpus else 1), request.mem, counted, counted)
