"""`--like JOB`: an existing job as the template of a new one. What the command line says overrides it.

The daemon adds what it never shows: the captured environment, and variables with secret values. The notify command may
contain a token and is not copied.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from dibs.client import queries
from dibs.errors import UserError
from dibs.model.serialization import MASK
from dibs.store import call_files
from dibs.submission import job_options, options, presets, script_files
from dibs.submission.options import Args, Option

if TYPE_CHECKING:
    from dibs.client.connection import Client

#: Options that are, or contain, the command.
COMMANDS: tuple[Option[object], ...] = (job_options.SCRIPT, job_options.WRAP)


def for_sweep(args: Args, connect: Callable[[], Client]) -> Args:
    """Return the options of a sweep, completed likewise; it has a command and a name of its own."""
    return completed(args, connect, "sweep", takes_command=False, left_out=(job_options.NAME,))


def completed(
    args: Args,
    connect: Callable[[], Client],
    verb: str,
    *,
    takes_command: bool = True,
    left_out: Collection[Option[object]] = (),
) -> Args:
    """Return the options of a command line, completed with those of its `--like` and then of its `--preset`.

    `takes_command`: without a command of its own it takes that of the job. `left_out` are options not to copy.
    """
    word = args.get(job_options.LIKE)
    if word is None:
        return presets.applied(args)
    job = queries.find_one(connect(), f"{verb} --like", [word])
    model = options.parse("add", job_options.OPTIONS, shlex.split(job["cli"])[2:], takes_command=True)
    given = {option: told for option, told in model.given.items() if option not in left_out}
    given[job_options.ENV] = tuple(pair for pair in model.all(job_options.ENV) if pair[1] != MASK)
    has_own = bool(args.words) or any(args.has(option) for option in COMMANDS)
    if has_own or not takes_command:
        given = {option: told for option, told in given.items() if option not in COMMANDS}
    elif call_files.is_call(model.words):
        raise UserError(f"job {job['id']} is a call from Python, which cannot be repeated here.", "Name a command.")
    whole = script_files.layered(Args((), given), presets.applied(args))
    whole.given[job_options.LIKE] = (str(job["id"]),)
    return whole if has_own or not takes_command else replace(whole, words=model.words)
