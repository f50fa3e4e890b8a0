"""Values of one pipe: its commands, how they ended, its rules, and the observer of its events."""

from __future__ import annotations

from dibs.system.process_tree import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.foreground.pipe_loop import Pipe
    from dibs.foreground.slots import Slot


class Job:
    """One command of the stream, and which attempt it is at."""

    __slots__ = ("attempt", "is_told", "number", "text")

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.attempt = 1
        #: Whether the observer was notified of this attempt.
        self.is_told = False


class Ended:
    """How one attempt ended: the exit code, negative for a signal, None (and in `trouble` why) if it never ran."""

    __slots__ = ("code", "is_retried", "job", "label", "took_s", "trouble")

    def __init__(self, job: Job, label: str, code: int | None, took_s: float, trouble: str = "") -> None:
        self.job = job
        self.label = label
        self.code = code
        self.took_s = took_s
        self.trouble = trouble
        self.is_retried = False


class Rules:
    """What the user asked for beyond the commands themselves."""

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
        #: Commands at the same time; None: as many as there are slots.
        self.most = most
        self.retries = retries
        #: Failures after which nothing more is started.
        self.halt = halt
        #: Folder for the output of each command.
        self.logs = logs
        #: End what a command leaves running; otherwise it keeps running and holds its devices.
        self.ends_leftovers = ends_leftovers


class Observer:
    """Receives the events of a pipe; this one ignores them."""

    def starting(self, job: Job, slot: Slot) -> None:
        """A command is about to start."""

    def ended(self, ended: Ended) -> None:
        """An attempt is over."""

    def report(self, text: str) -> None:
        """A message for the user."""

    def changed(self, pipe: Pipe, now: float) -> float:
        """The counts may have changed; return when to be called again at the latest."""
        return NEVER


def counted(commands: int) -> str:
    """Return a number of commands in words."""
    return f"{commands} command" if commands == 1 else f"{commands} commands"
