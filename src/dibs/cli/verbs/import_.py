"""`dibs import`: queue all jobs of a GPUPeasy file, or none if one is invalid."""

from __future__ import annotations

import os

from dibs.cli.verbs import add
from dibs.errors import UserError
from dibs.model import path_templates, suggestions
from dibs.submission import drafts, esy, job_options, options
from dibs.submission.drafts import Body
from dibs.submission.options import Args, Option
from dibs.system import commands

SUMMARY = "Submit the jobs of a GPUPeasy file (.esy) and print their ids."
USAGE = ("[OPTIONS] FILE", "[OPTIONS] -")
OPTIONS: tuple[Option[object], ...] = (
    # Name and output come from the file.
    *(option for option in job_options.JOB_OPTIONS if option not in (job_options.NAME, job_options.OUTPUT)),
    *add.MANY_OPTIONS,
)
EXAMPLES = ("dibs import sweep.esy", "dibs import -j 2 -P paper -t 12h sweep.esy", "dibs import --dry-run sweep.esy")


def main(args: Args) -> None:
    """Queue all jobs of the file."""
    add.deliver(args, read(args))


def read(args: Args) -> Body:
    """Return the request that the file and the options describe."""
    if len(args.words) != 1:
        got = f"{len(args.words)} words" if args.words else "none"
        raise UserError(f"import expected one file such as sweep.esy, or - for stdin, got {got}.")
    source = "stdin" if args.words[0] == "-" else args.words[0]
    try:
        with args.caller.open(args.words[0]) as file:
            found = esy.parse(file.read().decode())
    except OSError as error:
        raise UserError(f"import cannot read {options.shown(args.words[0])}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"{source}: expected UTF-8 text, got other bytes.") from None
    if not found:
        raise UserError(f"{source}: expected jobs such as NAME;;OUTPUT;;COMMAND;;;, got none.")
    defaults = drafts.common(args, [])
    jobs = [_job(entry, f"{source}, job {number}", defaults) for number, entry in enumerate(found, 1)]
    _check_outputs(source, found, str(defaults["cwd"]))
    return {"defaults": defaults, "jobs": jobs} | drafts.rules(args)


def _job(entry: esy.Entry | esy.Malformed, where: str, defaults: Body) -> Body:
    if isinstance(entry, esy.Malformed):
        raise UserError(
            f'{where}: expected NAME;;OUTPUT;;COMMAND;;;, got "{options.shown(entry.text)}": {entry.why}.',
            "Nothing was submitted.",
        )
    for text in (entry.name, entry.output, *entry.argv):
        commands.check_text(text, where)
    with suggestions.inside(f"{where}:"):
        drafts.check_program(Args(), entry.argv, defaults, "add")
    return {"name": entry.name, "output": path_templates.escape(entry.output), "argv": list(entry.argv)}


def _check_outputs(source: str, found: list[esy.Entry | esy.Malformed], folder: str) -> None:
    """Refuse an output file that exists or that two jobs share: their output would be mixed."""
    seen: dict[str, str] = {}
    for entry in found:
        if not isinstance(entry, esy.Entry):
            continue
        path = os.path.realpath(os.path.join(folder, os.path.expanduser(entry.output)))
        if path in seen:
            raise UserError(
                f"{source}: {options.shown(seen[path])} and {options.shown(entry.name)} have the same output, "
                f"{options.shown(entry.output)}.",
                "Give each job a separate file.",
            )
        if os.path.lexists(path):
            raise UserError(
                f"{source}: the output of {options.shown(entry.name)}, {options.shown(entry.output)}, exists already.",
                "Move it away, or name another file.",
            )
        seen[path] = entry.name
