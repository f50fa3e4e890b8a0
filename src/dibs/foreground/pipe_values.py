"""Values of one pipe: its commands, how they ended, its rules, and the observer of its events."""

from __future__ import annotations

from dibs.system.process_tree import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.foreground.pipe_loop import Pipe
    from dibs.foreground.slots import Slot


class Job:
    """One command of the stream and the number of its current attempt."""

    __slots__ = ("attempt", "is_told", "number", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.attempt = 1
        #: Whether the observer was notified of this attempt.
        self.is_told = False


class Ended:
    """Result of an attempt: exit code, negative for a signal, None if it never ran (`trouble` says why)."""

    __slots__ = ("code", "is_retried", "job", "label", "took_s", "trouble")

    def __init__(self, job: Job, label: str, code: int | None, took_s: float, trouble: str = "") -> None:
        self.job = job
        self.label = label
        self.code = code
        self.took_s = took_s
        self.trouble = trouble
        self.is_retried = False


class Rules:
    """The options of a pipe."""

    __slots__ = ("ends_leftovers", "halt", "logs", "most", "retries", "shell")

    def __init__(
        self,
        shell: str,
        *,
        most: int | None = None,
        retries: int = 0,
        halt: int | None = None,
        logs: str | None = None,
        ends_leftovers: bool = True,
    ) -> None:
        self.shell = shell
        #: Maximum number of concurrent commands; None: one per slot.
        self.most = most
        self.retries = retries
        #: Failures after which nothing more is started.
        self.halt = halt
        #: Directory for the output of each command.
        self.logs = logs
        #: End processes that a command leaves running; otherwise they keep running and hold its devices.
        self.ends_leftovers = ends_leftovers


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
