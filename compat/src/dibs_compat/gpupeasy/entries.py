"""A GPUPeasy job: how dibs stores it, and how the old server reports it.

Pure. Its number, and the GPU it was given, are tags of the job, so there is no second book that could disagree.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dibs.model import units
from dibs.model.jobs import ACTIVE, HELD_BY, WAITING, Outcome

#: The project of all GPUPeasy jobs.
PROJECT = "gpupeasy"
#: What begins the tag of a job that the server holds until its turn has come; without it a person holds it.
HELD = f"{HELD_BY}gpupeasy-server --port "
#: Its devices are named by UUID, as the list names them.
BY_UUID = "gpupeasy-by-uuid"
#: Its command was one text and not a list; the old server shows those letter by letter.
LETTERS = "gpupeasy-text"
#: What begins the tag that says which GPU of the list the server gave it, where dibs does not choose itself.
ON = "gpupeasy-on:"
#: What a command is wrapped in where dibs would not write the text of its GPUs. Queued jobs of older releases name
#: this module, so it keeps its name.
WRAP = (sys.executable, "-P", "-m", "dibs_compat.gpupeasy.wrapping")

#: The old server's words for job states.
SCHEDULED, RUNNING, SUCCEEDED, FAILED = "Scheduled", "Running", "Succeeded", "Failed"
#: Words of dibs for it.
WAITING_WORDS = frozenset(state.value for state in WAITING)
ACTIVE_WORDS = frozenset(state.value for state in ACTIVE)
#: What a wrapped command exits with that could not be started.
NOT_RUN = (126, 127)


def held(port: int) -> str:
    """Return the tag of a job that the server at this port releases."""
    return f"{HELD}{port}"


def numbered(port: int, number: int | str) -> str:
    """Return the tag of a job of the server at this port; `*` for all of them."""
    return f"gpupeasy:{port}:{number}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One job."""

    number: int
    id: int
    name: str
    argv: tuple[str, ...]
    output: str
    state: str
    tags: tuple[str, ...] = ()
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    pid: int | None = None
    priority: int = 0
    finished_at: str = ""
    #: The GPUs that it has or had, as their names in its environment.
    on: str = ""
    #: Whether something of ours runs before its command, and says when that cannot be started.
    is_wrapped: bool = False

    def __str__(self) -> str:
        return f"<{self.number}, {self.name}>"

    @property
    def gpu(self) -> str | None:
        """Return the text of the list on which it runs or ran; None: none was given to it yet."""
        dealt = [tag.removeprefix(ON) for tag in self.tags if tag.startswith(ON)]
        return dealt[0] if dealt else None if self.is_waiting else self.on

    @property
    def is_dealt(self) -> bool:
        """Tell whether the server gave it a GPU of the list."""
        return any(tag.startswith(ON) for tag in self.tags)

    @property
    def is_ours(self) -> bool:
        """Tell whether the server is to let it go."""
        return any(tag.startswith(HELD) for tag in self.tags)

    @property
    def is_next(self) -> bool:
        """Tell whether it waits for the server to give it a GPU of the list."""
        return self.state == "held" and self.is_ours

    @property
    def plain_tags(self) -> list[str]:
        """Return its tags without those that say how it gets a GPU."""
        return [tag for tag in self.tags if tag != BY_UUID and not tag.startswith((ON, HELD))]

    @property
    def is_active(self) -> bool:
        """Tell whether it runs, or is about to."""
        return self.state in ACTIVE_WORDS

    @property
    def is_waiting(self) -> bool:
        """Tell whether nothing of it has begun, here or in dibs."""
        return self.state in WAITING_WORDS

    @property
    def is_busy(self) -> bool:
        """Return whether it has a GPU: it runs, or dibs is about to start it."""
        return self.is_active or self.state == "queued"

    @property
    def command(self) -> str:
        """Return its command as the old server shows it, without quotes."""
        return " ".join(self.argv[0] if LETTERS in self.tags else self.argv)

    @property
    def status(self) -> str:
        """Return the old server's word for its state."""
        if self.is_waiting:
            return SCHEDULED
        return RUNNING if self.is_active else SUCCEEDED if self.state == Outcome.DONE.value else FAILED

    @property
    def return_code(self) -> int | None:
        """Return what the old server calls so: negative for a signal, -1 for a job that never began."""
        if self.is_waiting or self.is_active:
            return None
        if self.signal is not None:
            return -self.signal
        never_began = self.exit_code is None or self.cause == "start" or (self.is_wrapped and self.exit_code in NOT_RUN)
        return -1 if never_began else self.exit_code


def read(job: Mapping[str, Any], port: int) -> Entry | None:
    """Return a job of dibs as one of the server at this port; None if it is none."""
    tags = tuple(job["tags"])
    start = numbered(port, "")
    number = next((tag.removeprefix(start) for tag in tags if tag.startswith(start)), "")
    if not units.is_whole(number) or not job["argv"]:
        return None
    return Entry(
        int(number), job["id"], job["name"], unwrapped(job["argv"]), job["log"], job["state"], tags, job["cause"],
        job["exit_code"], job["signal"], job["pid"], job["priority"], job["finished_at"] or "", _named(job),
        is_wrapped(job["argv"]),
    )  # fmt: skip


def _named(job: Mapping[str, Any]) -> str:
    return ",".join(job["gpu_ids"] if BY_UUID in job["tags"] else map(str, job["gpu_indices"]))


def wrapped(argv: tuple[str, ...], text: str, keys: tuple[str, ...]) -> list[str]:
    """Return the words that run a command with this text as its devices, once these keys are leased."""
    return [*WRAP, text, *keys, "--", *argv]


def unwrapped(argv: list[str]) -> tuple[str, ...]:
    """Return the words of a command, without what it may be wrapped in."""
    return tuple(argv[argv.index("--") + 1 :] if is_wrapped(argv) else argv)


def is_wrapped(argv: list[str]) -> bool:
    """Tell whether words are what `wrapped` made of a command."""
    return tuple(argv[1 : len(WRAP)]) == WRAP[1:] and "--" in argv


def brief(entry: Entry, *more: str) -> dict[str, Any]:
    """Return a job as an item of a list, with more than names where the list has that."""
    known = {"gpu": entry.gpu or "", "returnCode": entry.return_code}
    return {"jobID": entry.number, "jobName": entry.name, "jobCommand": entry.command} | {k: known[k] for k in more}


def info(entry: Entry) -> dict[str, Any]:
    """Return the details of one job; its number has another key here."""
    return {
        "jobid": entry.number,
        "jobName": entry.name,
        "jobCommand": entry.command,
        "outFile": entry.output,
        "status": entry.status,
        "returnCode": entry.return_code,
    }


def whole(entry: Entry) -> dict[str, Any]:
    """Return all that the page shows of a job."""
    # Held by the dispatcher, which is waiting, or by a person.
    more = {"dibsID": entry.id, "state": "waiting" if entry.is_next else entry.state}
    return info(entry) | more | {"gpu": entry.gpu, "pid": entry.pid, "priority": entry.priority, "cause": entry.cause}


def order(entry: Entry) -> tuple[str | int, ...]:
    """Return the sort key of a job among those of its status: when it ended, or its turn; then its number."""
    return entry.finished_at, -entry.priority if entry.is_waiting else 0, entry.number
