"""The thread of an engine: what it knows about the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from dibs.engines.protocol import Caps, Engine, Node
from dibs.engines.remote import Remote
from dibs.engines.remote_starts import Packer
from waits import wait_for


class Cluster:
    """An engine with one node."""

    name = kind = "lab"
    caps = Caps(holds_queue=False, look_ahead=2, grace_s=0)
    has_chores = False
    problem = ""

    def __init__(self) -> None:
        self.free_gpus = 8
        self.looks = 0

    def nodes(self) -> list[Node]:
        self.looks += 1
        return [Node("n1", True, 8, self.free_gpus, "", 16, 0)]


class NoFiles:
    """Nothing is started, so nothing is written."""

    def prepare(self) -> Path:
        return Path("/nonexistent")


def test_gpus_of_others_count_as_used_until_two_looks_agree_that_they_are_free() -> None:
    """Engines learn late that a job runs, and seem to have room while their answer is old."""
    cluster = Cluster()
    remote = Remote(cast("Engine", cluster), cast("Packer", NoFiles()), 10, lambda news: None)
    remote.start_thread()

    def known() -> int:
        # Reads the nodes again if that is a second ago.
        remote.look().result()
        return remote.condition.foreign_gpus

    assert known() == 0
    cluster.free_gpus = 3
    wait_for(known, lambda gpus: gpus == 5)
    cluster.free_gpus, looks = 8, cluster.looks
    wait_for(known, lambda gpus: gpus == 0)
    assert cluster.looks - looks == 2
    remote.close()
