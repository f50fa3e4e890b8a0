"""What dibs needs from an engine that others operate, such as Slurm or Ray: types only.

An engine only places and starts a process, `Start.argv`, on one of its nodes. That process, a runner, runs the
job, and its files in the shared folder decide whether and how the job ran; what an engine says never overrules them.
The local engine does not implement this: it learns of changes from the kernel, not by polling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol


class Caps(NamedTuple):
    """How an engine behaves."""

    #: Whether it keeps a durable queue: then all ready jobs are sent at once, else only what fits.
    holds_queue: bool
    #: For one without a queue: how many jobs more than the free GPUs are sent.
    look_ahead: int
    #: Seconds for which a job must be gone before it counts as lost; longer than files take to appear on all nodes.
    grace_s: float
    #: Seconds between two polls while there is news. The files of the starts are read sooner.
    poll_s: float = 1.0


class Node(NamedTuple):
    """One machine of an engine."""

    name: str
    is_up: bool
    gpus: int
    #: None: the engine does not say.
    free_gpus: int | None
    gpu_type: str
    cpus: int
    #: Bytes.
    mem: int


class Needs(NamedTuple):
    """What a job needs of a node."""

    gpus: int = 0
    #: A glob or a part of the product name; empty: any.
    gpu_type: str = ""
    #: Cores and bytes; 0: not said.
    cpus: int = 0
    mem: int = 0
    time_limit_s: float | None = None
    #: The engine's own options, as the user typed them after those of the settings.
    options: str = ""


class Start(NamedTuple):
    """One start of a job, for `Engine.submit`."""

    #: Identifies the start: the same key is the same start, however often it is submitted.
    key: str
    #: The folder of the attempt, in the shared folder; it exists.
    folder: str
    #: The process to run on the node: its exit code means nothing.
    argv: tuple[str, ...]
    needs: Needs
    #: As in dibs: higher first.
    priority: int
    #: The name of the job, for people who look at the engine's own list.
    name: str
    #: The file for what the engine and the process print before the job's own log exists.
    engine_output: str
    #: Starts of one batch (not 0) differ only in key, folder, argv, name and output.
    batch: int


class Seen(NamedTuple):
    """What an engine says about a start."""

    #: `ended`: it knows how; `gone`: it lost it, or does not know it (any more).
    phase: Literal["waiting", "running", "ended", "gone"]
    #: In words, for people.
    why: str = ""
    #: Of the process, if known.
    code: int | None = None
    signal: int | None = None
    node: str = ""


class Refused(NamedTuple):
    """Why an engine did not take a start."""

    why: str
    #: Whether it never will; otherwise the start is submitted again later.
    is_final: bool = False
    #: Whether the engine may still have it, because its answer cannot be read.
    may_be_there: bool = False


class Unavailable(Exception):
    """The engine cannot be reached, or its answer makes no sense. That never changes the state of a job."""


class Engine(Protocol):
    """All calls may block, up to a deadline, and raise `Unavailable`; one thread makes them. Only `refuse` is pure."""

    #: As in the settings: `[engines.NAME]`.
    name: str
    kind: str

    @property
    def caps(self) -> Caps:
        """Return how it behaves at present."""
        ...

    @property
    def has_chores(self) -> bool:
        """Tell whether it must be polled although nothing is under way, to finish what `forget` began."""
        ...

    @property
    def problem(self) -> str:
        """Return what people should know about it although it works; empty: nothing."""
        ...

    def nodes(self) -> list[Node]:
        """Return all nodes, also those that are down."""
        ...

    def refuse(self, needs: Needs, nodes: Sequence[Node]) -> str | None:
        """Return, in words, why these nodes can never satisfy a request; None if they may."""
        ...

    def submit(self, starts: Sequence[Start]) -> Mapping[str, str | Refused]:
        """Submit starts, many in one call where the engine can; return the reference of each key.

        A key without an answer is submitted again later: the claim of the runner makes a second submission harmless.
        """
        ...

    def find(self, keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """Return the references of known keys, after a crash between submission and record; a key may have several."""
        ...

    def poll(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        """Return what became of submitted starts, in one call; those that are missing in the answer are gone."""
        ...

    def stop(self, refs: Sequence[str], *, now: bool) -> None:
        """Ask for the end of starts; `now`: without grace. Unknown references are ignored."""
        ...

    def poke(self, ref: str) -> None:
        """Let the runner read its orders now, by SIGUSR1; do nothing if the engine cannot: it reads them regularly."""
        ...

    def script(self, start: Start) -> str:
        """Return what would be submitted, as text a person can use."""
        ...

    def forget(self, refs: Sequence[str]) -> None:
        """Remove ended starts from the engine's own memory, where that is possible."""
        ...
