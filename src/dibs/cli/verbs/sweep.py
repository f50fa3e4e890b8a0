"""`dibs sweep`: one job per point of a parameter space; a second run queues what is missing or failed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from dibs.cli import screen
from dibs.client import connection, sweep_drafts, template_job
from dibs.errors import UserError
from dibs.submission import device_hints, drafts, job_options, options
from dibs.submission.options import Args, Kind, Option
from dibs.system import commands

if TYPE_CHECKING:
    from dibs.sweeps.documents import Sweep

SUMMARY = "Submit one job per parameter combination. Run it again to submit only what is missing or failed."
USAGE = (
    '[OPTIONS] "COMMAND {lr}" -p lr 0.1 0.01 [-p ...]',
    "[OPTIONS] -p lr=0.1,0.01 [-p ...] -- COMMAND... {lr}",
    "[OPTIONS] FILE.yaml|json|toml|csv [-- COMMAND...]",
)


PARAMETER: Option[tuple[str, ...]] = Option(
    ("-p", "--param"),
    "A parameter and its values: -p lr 0.1 0.01, -p lr=0.1,0.01, -p 'lr=logspace(1e-5,1e-1,5)'; also range, linspace, "
    "and uniform, loguniform, normal and randint with --sample.",
    Kind("a parameter such as -p lr 0.1 0.01", lambda text: (text,)), "NAME VALUE...", is_repeatable=True,
    is_greedy=True,
)  # fmt: skip
AGAIN: Option[bool] = Option(("--again",), "Also resubmit points that are done.")
PRINT: Option[bool] = Option(("--print",), "Print all commands, one per line; submit nothing.")
QUIET: Option[bool] = Option(("-q", "--quiet"), "Print only the name of the sweep.")
OPTIONS: tuple[Option[object], ...] = (
    PARAMETER, *sweep_drafts.OPTIONS, AGAIN, PRINT, job_options.DRY_RUN, QUIET, options.JSON,
)  # fmt: skip
EXAMPLES = (
    'dibs sweep "python train.py --lr {lr} --bs {bs}" -p lr 0.1 0.01 -p bs 32 64',
    "dibs sweep -p 'lr=loguniform(1e-5,1e-1)' --sample 50 -- python t.py --lr {lr}",
    "dibs sweep \"python t.py {args} > {dir}/log\" -p lr 0.1 0.01 --dir 'runs/{lr}'",
    "dibs sweep sweep.yaml --dry-run",
)

#: The number of commands that a dry run shows.
SHOWN = 5
#: Counts in the order of display; the first ones are always shown.
ALWAYS_SHOWN = ("new", "retried", "done")
ALSO_SHOWN = ("released", "queued", "running", "held")


def main(args: Args) -> None:
    """Queue the points of a sweep, or show them."""
    asked = read(template_job.for_sweep(args, lambda: connection.connect(os.environ)))
    screen.say(*asked.sweep.notes)
    if asked.sweep.is_adaptive and (args.has(PRINT) or args.has(AGAIN)):
        word = "--print" if args.has(PRINT) else "--again"
        raise UserError(
            f"{word} expected points that are known in advance, got a search.", "See --dry-run and --trials."
        )
    if args.has(PRINT):
        for line in asked.writer.lines(asked.points):
            print(line)
        return
    sweep_drafts.check_first(asked)
    if warning := sweep_drafts.first_warning(asked):
        screen.say(warning)
    queue = connection.connect(os.environ)
    if args.has(job_options.DRY_RUN):
        _rehearse(queue, asked)
        return
    made = queue.post("/v1/sweeps", sweep_drafts.request(asked))
    screen.say(*device_hints.about_shell(queue.home, os.environ), *made["notes"])
    with _progress(asked.points.most) as tell:
        counts = sweep_drafts.submit(queue, asked, made["id"], again=args.has(AGAIN), tell=tell)
    _print_counts(asked, made, counts)


# -- the request ------------------------------------------------------------------------------------------------


def read(args: Args) -> sweep_drafts.SweepDraft:
    """Parse the command line; report every error that can be found without a daemon."""
    before, after = args.words, None
    if args.before_dashes is not None:
        before, after = args.words[: args.before_dashes], args.words[args.before_dashes :]
    sweep, file = _space(args, before)
    given, command = _command(before if file is None else (), after)
    if command is not None:
        from dibs.sweeps import templates

        sweep = replace(sweep, command=templates.parse(command))
    if sweep.command is None:
        swallowed = next((words[-1] for words in args.all(PARAMETER) if "{" in words[-1]), None)
        hint = "" if swallowed is None else f'"{options.shown(swallowed)}" was read as a value: put it before -p.'
        raise UserError("expected a command, got none.", hint or "See `dibs sweep --help`.")
    typed = [list(words) for words in args.all(PARAMETER)]
    return sweep_drafts.ask(args, sweep, given, typed, None if file is None else os.path.abspath(file))


def _space(args: Args, before: Sequence[str]) -> tuple[Sweep, str | None]:
    """Return the sweep of a file and its path, or the sweep of the parameters of `-p`."""
    from dibs.sweeps import documents, files, parameters, spaces

    typed = args.all(PARAMETER)
    is_file = len(before) == 1 and before[0].endswith(files.SUFFIXES) and len(before[0].split()) == 1
    if is_file:
        if typed:
            raise UserError(f"-p and {before[0]} both define parameters.", "Leave one of them out.")
        return files.load(before[0]), before[0]
    if not typed:
        raise UserError(
            f"expected parameters, got none. Write {parameters.EXAMPLES}.",
            f"Or name a file ({' '.join(files.SUFFIXES)}).",
        )
    try:
        return documents.Sweep(spaces.build([parameters.parse(words) for words in typed])), None
    except UserError as error:
        said = f"-p {error.message}" if error.message.startswith("expected") else error.message
        raise UserError(said, error.hint) from None


def _command(
    before: Sequence[str], after: Sequence[str] | None
) -> tuple[list[tuple[str, str]], str | tuple[str, ...] | None]:
    """Return the variables before the command, and the command: a string, words, or None."""
    if before and after:
        raise UserError(
            f'expected one command, got "{options.shown(before[0])}" and "{options.shown(after[0])}" after --.',
            "Leave one of them out.",
        )
    if len(before) > 1:
        raise UserError(
            f'expected the command as one string, got "{options.shown(before[0])}" and {len(before) - 1} more.',
            "Quote it, or put it after --.",
        )
    if before:
        commands.check_text(before[0], "the command")
        return [], before[0]
    given, words = drafts.split_variables(after or ())
    for word in words:
        commands.check_text(word, "the command")
    if not words:
        return given, None
    return given, words[0] if len(words) == 1 and len(words[0].split()) > 1 else words


@contextmanager
def _progress(most: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many points were sent; after an interruption, print how to continue."""
    is_shown = sys.stderr.isatty() and most > sweep_drafts.PART
    sent = 0

    def tell(so_far: int) -> None:
        nonlocal sent
        sent = so_far
        if is_shown:
            print(f"\r{sent:,} of {most:,} points", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    except BaseException:
        if sent:
            screen.say(f"{sent:,} points were submitted; run the same command again to continue.")
        raise
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# -- the answer -------------------------------------------------------------------------------------------------


def _print_counts(asked: sweep_drafts.SweepDraft, made: dict[str, Any], counts: dict[str, int]) -> None:
    total = sum(counts.values())
    if asked.args.has(options.JSON):
        by_result = {word.replace(" ", "_"): counts.get(word, 0) for word in (*ALWAYS_SHOWN, *ALSO_SHOWN)}
        head = {"id": made["id"], "name": asked.name, "project": asked.project, "points": total}
        if asked.sweep.is_adaptive:
            head["trials"] = asked.sweep.trials
        screen.print_json(head | by_result)
    elif asked.args.has(QUIET):
        print(asked.name)
    else:
        print(summary(total, counts, asked.sweep.trials if asked.sweep.is_adaptive else None))
        name = screen.clean(asked.name)
        print(f"sweep {name}; dibs wait sweep:{name}; dibs results {name}", file=sys.stderr)


def summary(total: int, counts: dict[str, int], trials: int | None = None) -> str:
    """Return the counts of the points: `500 points: 0 new, 3 retried, 497 done`; of a search those of its trials."""
    words = [*ALWAYS_SHOWN, *(word for word in ALSO_SHOWN if counts.get(word))]
    parts = ", ".join(f"{counts.get(word, 0):,} {word}" for word in words)
    if trials is not None:
        return f"{trials:,} trials: {parts}, {max(0, trials - total):,} to follow"
    return f"{total:,} point{'' if total == 1 else 's'}: {parts}"


def _rehearse(queue: connection.Client, asked: sweep_drafts.SweepDraft) -> None:
    """Print the first commands and their number; nothing is queued."""
    answer = queue.post("/v1/sweeps?dry_run=yes", sweep_drafts.request(asked))
    screen.say(*answer["notes"])
    if asked.sweep.is_adaptive:
        _rehearse_search(asked, is_new=answer["is_new"])
        return
    points = asked.points
    first = list(islice(points, SHOWN + 1))
    lines = [asked.writer.line(point) for point in first[:SHOWN]]
    most = points.most if points.is_exact else None
    if asked.args.has(options.JSON):
        screen.print_json({"name": asked.name, "points": points.most, "is_exact": points.is_exact, "commands": lines})
        return
    count = f"{most:,}" if most is not None else f"at most {points.most:,}"
    what = "a new sweep" if answer["is_new"] else "an existing sweep: unfinished points would be submitted"
    print(f"{count} point{'' if most == 1 else 's'} of {screen.clean(asked.name)}, {what}; nothing was submitted.")
    for line in lines:
        print(f"  {screen.clean(line)}")
    if len(first) > SHOWN:
        print("  ..." if most is None else f"  ... and {most - SHOWN:,} more")


def _rehearse_search(asked: sweep_drafts.SweepDraft, *, is_new: bool) -> None:
    """Print the space of a search and its first commands; later ones depend on results."""
    sweep = asked.sweep
    lines = [asked.writer.line(point) for point in sweep_drafts.preview(asked, SHOWN)]
    if asked.args.has(options.JSON):
        screen.print_json({"name": asked.name, "trials": sweep.trials, "search": sweep.search, "commands": lines})
        return
    what = "a new search" if is_new else "an existing search: it would continue"
    goal = "lowest" if sweep.goal != "maximize" else "highest"
    print(f"{sweep.trials:,} trials of {screen.clean(asked.name)}, {what}; nothing was submitted.")
    print(f"  {sweep.search} looks for the {goal} {screen.clean(sweep.metric or '')}")
    for name, text in _described(asked):
        print(f"  {screen.clean(name)}: {screen.clean(text)}")
    print("the first commands:" if is_new else "the first commands were:")
    for line in lines:
        print(f"  {screen.clean(line)}")


def _described(asked: sweep_drafts.SweepDraft) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a space, and where their values lie."""
    block = asked.sweep.space.blocks[0]
    for axis in block.axes:
        for name, column in zip(axis.names, axis.columns, strict=True):
            ends = [value.text for value in islice(column, 4)]
            more = "" if len(column) <= 4 else f", ... {column[len(column) - 1].text} ({len(column):,} values)"
            yield name, ", ".join(ends) + more
    for name, source in block.drawn.items():
        low, high = source.at(0.0).text, source.at(1.0).text
        yield name, f"{type(source).__name__.lower()}, {low} to {high}"
