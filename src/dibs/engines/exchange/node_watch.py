"""What was last seen of an engine: its nodes, the GPUs that others use there, and since when it cannot be reached.

Engines learn late that a job runs or has ended. So GPUs of others are counted with care, from the last two looks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dibs.engines.protocol import Caps, Node
from dibs.engines.remote_starts import StartId, Tracked

#: Seconds between looks at the nodes of an engine without a queue, to see what others use.
FRESH_S = 5.0


@dataclass(frozen=True, slots=True)
class Condition:
    """How an engine was last seen; replaced as a whole, read from any thread."""

    nodes: tuple[Node, ...] = ()
    #: Wall-clock seconds; None: never.
    nodes_at: float | None = None
    #: In use by others, as far as the engine says.
    foreign_gpus: int = 0
    #: Why it cannot be reached, and since when; empty: it can, or nobody has asked.
    trouble: str = ""
    trouble_since: float | None = None


class NodeWatch:
    """Keeps the condition of one engine; only its thread changes it."""

    def __init__(self) -> None:
        self.condition = Condition()
        #: The GPUs of our starts that ran since the last look at the nodes, and between the two looks before.
        self._ran: list[dict[StartId, int]] = [{}, {}]
        #: The GPUs of others at the last look.
        self._foreign_before = 0

    @property
    def age_s(self) -> float | None:
        """Return how long ago the nodes were seen; None: never."""
        seen_at = self.condition.nodes_at
        return None if seen_at is None else time.time() - seen_at

    def is_old(self, caps: Caps) -> bool:
        """Tell whether others may have taken GPUs while our jobs wait in front of an engine without a queue."""
        return not caps.holds_queue and not ((age_s := self.age_s) is not None and age_s < FRESH_S)

    def note_run(self, own: Tracked) -> None:
        """Take note of a start of ours that runs, or ran."""
        self._ran[0][own.start_id] = own.gpus

    def see(self, nodes: Sequence[Node]) -> None:
        """Take note of all nodes; the engine answers."""
        own = sum((self._ran[0] | self._ran[1]).values())
        foreign = foreign_gpus(nodes, own)
        self.condition = Condition(tuple(nodes), time.time(), max(foreign, self._foreign_before))
        self._foreign_before = foreign
        self._ran = [{}, self._ran[0]]

    def miss(self, why: str, *, is_first: bool) -> None:
        """Take note that the engine cannot be reached, since now or since before."""
        since = time.time() if is_first else self.condition.trouble_since
        self.condition = replace(self.condition, trouble=why or "no answer", trouble_since=since)

    def find_again(self) -> None:
        """Take note that the engine can be reached again."""
        self.condition = replace(self.condition, trouble="", trouble_since=None)


def foreign_gpus(nodes: Sequence[Node], own: int) -> int:
    """Return how many GPUs of these nodes others use, if `own` are ours; what an engine does not say counts as free.

    Engines learn late that a job ended. So `own` are those of all our jobs that ran lately: else they would seem to be
    those of others.
    """
    used = sum(node.gpus - node.free_gpus for node in nodes if node.is_up and node.free_gpus is not None)
    return max(0, used - own)
