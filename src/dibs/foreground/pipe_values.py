"""Values of one pipe: its commands, how they ended, its rules, and the observer of its events."""

from __future__ import annotations

from dataclasses import dataclass

from dibs.system.process_tree import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.foreground.pipe_loop import Pipe
    from dibs.foreground.slots import Slot


@dataclass(slots=True)
class Job:
    """One command of the stream and the number of its current attempt."""

    number: int
    text: str
    attempt: int = 1
    #: Whether the observer was notified of this attempt.
    is_told: bool = False


@dataclass(slots=True)
class Ended:
    """Result of an attempt: exit code, negative for a signal, None if it never ran (`trouble` says why)."""

    job: Job
    label: str
    code: int | None
    took_s: float
    trouble: str = ""
    is_retried: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of a pipe."""

    shell: str
    #: Maximum number of concurrent commands; None: one per slot.
    most: int | None = None
    retries: int = 0
    #: Failures after which nothing more is started.
    halt: int | None = None
    #: Directory for the output of each command.
    logs: str | None = None
    #: End processes that a command leaves running; otherwise they keep running and hold its devices.
    ends_leftovers: bool = True
    #: Seconds after which a command is ended, because a quota allows no more; None: never.
    limit_s: float | None = None


class Observer:
    """Receives the events of a pipe; this one ignores them."""

    def starting(self, job: Job, slot: Slot) -> None:
        """Handle a command that is about to start."""

    def ended(self, ended: Ended) -> None:
        """Handle the end of an attempt."""

    def report(self, text: str) -> None:
        """Show a message to the user."""

    def changed(self, pipe: Pipe, now: float) -> float:
        """Handle a possible change of the counts; return when to be called again at the latest."""
        return NEVER


def counted(commands: int) -> str:
    """Return a number of commands as text."""
    return f"{commands} command" if commands == 1 else f"{commands} commands"
