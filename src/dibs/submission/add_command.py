"""A whole `dibs add` command line: the request it makes, and the output about the answer.

The daemon runs this for the thin client; the command line runs it itself where the daemon cannot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dibs.errors import UserError
from dibs.submission import drafts, job_options, options, script_files
from dibs.submission.options import Args, Caller, Option

FILE = Option(("--file",), "Submit one job per line of this file; - is stdin.", options.PATH, "FILE")
OPTIONS: tuple[Option[object], ...] = (
    *job_options.OPTIONS, *job_options.BATCH_OPTIONS, FILE, options.QUIET, options.JSON,
)  # fmt: skip

STDOUT, STDERR = 1, 2


class Line(NamedTuple):
    """One or more lines of output, without the final newline."""

    stream: int
    text: str


def note(text: str) -> Line:
    """Return a message for stderr; stdout is for data."""
    return Line(STDERR, f"dibs: {text}")


def parse(words: Sequence[str], caller: Caller) -> Args:
    """Parse the words after `dibs add`."""
    return options.parse("add", OPTIONS, words, takes_command=True, caller=caller)


def draft(args: Args, say: script_files.Say) -> script_files.JobRequest:
    """Return the request of a command line; `say` receives notes for the user."""
    if args.has(job_options.PRESET):
        from dibs.submission import presets  # most submissions name none, and must be quick

        args = presets.applied(args)
    file = args.get(FILE)
    if file is None and (args.words != ("-",) or args.has(job_options.SCRIPT)):
        return script_files.read(args, "add", say)
    body = _lines(args, file)
    if warning := drafts.first_warning(args, drafts.lines_of(body), body):
        say(warning)
    return script_files.JobRequest(args, body)


def _lines(args: Args, file: str | None) -> drafts.Body:
    if file is not None and args.words:
        raise UserError(f'--file takes no command, got "{options.shown(" ".join(args.words))}".')
    for option in (job_options.SCRIPT, job_options.WRAP, job_options.ARRAY):
        if args.has(option):
            raise UserError(f"{option.names[0]} is for one command, not for one command per line.")
    try:
        with args.caller.open(file or "-") as lines:
            return drafts.from_lines(args, lines, "stdin" if file in (None, "-") else str(file))
    except OSError as error:
        raise UserError(f"--file cannot read {file}: {error.strerror}.") from None


def notes(answer: Mapping[str, Any], *, is_terminal: bool) -> list[str]:
    """Return the daemon's notes about a submission; on a terminal also its hints, which an older daemon lacks."""
    return [*answer["notes"], *(answer.get("hints", ()) if is_terminal else ())]


def report(args: Args, answer: Mapping[str, Any], *, is_terminal: bool, names_follow: bool = False) -> Iterator[Line]:
    """Return the output about queued jobs.

    Notes are printed unless it is quiet (-q); hints and the receipt also only if stderr is a terminal (`is_terminal`).
    With `names_follow` the receipt of a single job names the command that follows it.
    """
    is_quiet, ids = args.has(options.QUIET), answer["ids"]
    yield from (note(text) for text in notes(answer, is_terminal=is_terminal) if not is_quiet)
    if args.has(options.JSON):
        yield Line(STDOUT, json.dumps({"ids": ids}, indent=2))
        return
    yield Line(STDOUT, "\n".join(str(job_id) for job_id in ids))
    if is_terminal and not is_quiet:
        follow = f"; dibs follow {ids[0]}" if names_follow and len(ids) == 1 else ""
        yield Line(STDERR, f"{answer['receipt']}{drafts.begin_note(args)}{follow}")
