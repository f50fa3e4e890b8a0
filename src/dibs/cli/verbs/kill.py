"""`dibs kill`: send a signal to all processes of running jobs."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.cli import job_action
from dibs.client import queries
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Kind, Option
from dibs.system import processes


def _read_signal(text: str) -> int:
    number = processes.signal_number(text)
    if number is None:
        hint = options.nearest(text.upper().removeprefix("SIG"), processes.SIGNALS)
        raise UserError(f'expected a signal such as USR1 or 10, got "{options.shown(text)}".', hint)
    return number


SUMMARY = "Send a signal to the processes of running jobs. To stop jobs, use cancel."
USAGE = ("-s SIGNAL SELECTOR...", "-SIGNAL SELECTOR...")
SIGNAL = Option(
    ("-s", "--signal"), "Signal name or number; SIG is optional.",
    Kind("a signal such as USR1 or 10", _read_signal), "USR1",
)  # fmt: skip
OPTIONS: tuple[Option[object], ...] = (SIGNAL, options.QUIET, options.JSON)
EXAMPLES = ("dibs kill -s USR1 12", "dibs kill -9 12", "dibs kill -s SIGINT name:vit*+running")


def usual(words: Sequence[str]) -> list[str]:
    """Rewrite `-9` and `-USR1`, as in kill(1), to `-s 9` and `-s USR1`; other words stay as they are."""
    end = words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for place, word in enumerate(words[:end]):
        is_value = place > 0 and words[place - 1] in SIGNAL.names
        is_signal = word.startswith("-") and processes.signal_number(word[1:]) is not None
        found += ["-s", word[1:]] if is_signal and not is_value else [word]
    return [*found, *words[end:]]


def main(args: Args) -> int:
    """Send the signal and print the result for each job; return 1 if none of them was running."""
    queries.require_words("kill", args.words)
    number = args.get(SIGNAL)
    if number is None:
        few = options.shown(" ".join(args.words))
        raise UserError("kill expected a signal: -s USR1.", f"To stop jobs gracefully: dibs cancel {few}")
    acted = job_action.act("kill", args, lambda state: f"{state}: {processes.signal_name(number)} sent", signal=number)
    return job_action.code(acted)
