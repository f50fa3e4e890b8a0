"""`dibs edit`: change waiting jobs, with options or in an editor."""

from __future__ import annotations

import os

from dibs.cli import editor, job_action, screen
from dibs.client import answers, connection, queries
from dibs.errors import UserError
from dibs.submission import edit_drafts, options
from dibs.submission.options import Args, Option
from dibs.system import commands

SUMMARY = "Change waiting jobs by the options of add, or one of them in your editor."
USAGE = ("[OPTIONS] SELECTOR...",)
COMMAND = Option(("--command",), "Run this instead, as one string.", options.TEXT, '"COMMAND"')
UNSET = Option(
    ("--unset",), "Go back to the default of an option: its long name without dashes.", options.TEXT, "NAME",
    is_repeatable=True,
)  # fmt: skip
EXAMPLES = (
    "dibs edit 12 --priority high -t 4h",
    "dibs edit name:vit*+queued -g 2 --unset after",
    "dibs edit 100-199 -j 2",
    "dibs edit 12",
)

OPTIONS: tuple[Option[object], ...] = (*edit_drafts.FIELDS, COMMAND, UNSET, options.JSON)


def main(args: Args) -> int:
    """Apply the options to the selected jobs, or open a single job in an editor."""
    queries.require_words("edit", args.words)
    queries.select(args.words)
    changes = changed_by(args)
    queue = connection.connect(os.environ)
    if not changes:
        job = queries.find_one(queue, "edit", args.words)
        return editor.edit(queue, job, lambda acted: _tell(acted, args))
    _tell(queries.act(queue, "edit", args.words, changes=changes), args)
    return 0


def _tell(acted: answers.ActionResult, args: Args) -> None:
    if args.has(options.JSON):
        screen.print_json(acted)
    else:
        job_action.tell(acted)


def changed_by(args: Args) -> dict[str, object]:
    """Return the fields that the options change."""
    changes = edit_drafts.changed_by(args)
    if (command := args.get(COMMAND)) is not None:
        commands.check_text(command, "--command")
        changes["command"] = command
    for word in args.all(UNSET):
        changes[_unset(word, changes)] = None
    return changes


def _unset(word: str, changes: dict[str, object]) -> str:
    known = {name.lstrip("-"): field for option, field in edit_drafts.FIELDS.items() for name in option.names}
    field = known.get(word.lstrip("-"))
    if field is None:
        near = options.nearest(word, known)
        raise UserError(f'--unset expected the name of an option, got "{options.shown(word)}".', near)
    if field in changes:
        raise UserError(f"--unset {word} contradicts --{word.lstrip('-')}.", "Leave one of them out.")
    return field
