"""`dibs edit`: change what is asked of waiting jobs, by options or in an editor."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import answers, editing, options, screen, submission
from dibs.cli.options import Args, Option
from dibs.errors import UserError

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

#: Which fields of a job an option says; a test finds options that are missing here.
FIELDS: dict[Option[object], tuple[str, ...]] = {
    submission.GPUS: ("gpus",),
    submission.GPU_IDS: ("gpu_ids",),
    submission.PREFER: ("prefer",),
    submission.GPU_TYPE: ("gpu_type",),
    submission.CPUS: ("cpus",),
    submission.MEM: ("mem",),
    submission.NAME: ("name",),
    submission.PROJECT: ("project",),
    submission.PRIORITY: ("priority",),
    submission.TIME: ("time_limit_s",),
    submission.AFTER: ("after",),
    submission.AFTER_ANY: ("after",),
    submission.AFTER_END: ("after",),
    submission.DEPENDENCY: ("after",),
    submission.BEGIN: ("begin_at",),
    submission.RETRIES: ("retries",),
    submission.RETRY_ON: ("retry_on",),
    submission.ENV: ("env",),
    submission.CHDIR: ("cwd",),
    submission.OUTPUT: ("output",),
    submission.STDERR: ("stderr",),
    submission.TAG: ("tags",),
    submission.VISIBLE: ("visible",),
    submission.SIGNAL: ("warn",),
    submission.WAIT_TREE: ("wait_tree",),
    submission.METRIC: ("metric",),
    submission.NOTIFY: ("notify",),
    submission.AT_ONCE: ("at_once",),
    submission.HALT: ("halt_after",),
}
OPTIONS: tuple[Option[object], ...] = (*FIELDS, COMMAND, UNSET, options.JSON)


def main(args: Args) -> int:
    """Apply the options to the selected jobs, or open the one in an editor."""
    answers.require_words("edit", args.words)
    answers.select(args.words)
    changes = changed_by(args)
    queue = client.connect(os.environ)
    if not changes:
        job = answers.find_one(queue, "edit", args.words)
        return editing.edit(queue, job, lambda acted: _tell(acted, args))
    _tell(answers.act(queue, "edit", args.words, changes=changes), args)
    return 0


def _tell(acted: answers.Acted, args: Args) -> None:
    if args.has(options.JSON):
        screen.print_json(acted)
    else:
        answers.tell(acted)


def changed_by(args: Args) -> dict[str, object]:
    """Return the fields that the options say."""
    given = [option for option in args.given if option in FIELDS]
    count = args.get(submission.GPUS)
    body: dict[str, object] = {}
    if given:
        # Whether the number of tries is known here is for the daemon to say.
        own = Args((), {option: values for option, values in args.given.items() if option != submission.RETRY_ON})
        body = submission.common(own, [])
        body |= {"at_once": args.get(submission.AT_ONCE), "halt_after": args.get(submission.HALT)}
        body |= {"retry_on": list(args.get(submission.RETRY_ON) or ())}
    changes = {field: body[field] for option in given for field in FIELDS[option]}
    if count is not None and count.gpu_type:
        changes["gpu_type"] = count.gpu_type
    if (command := args.get(COMMAND)) is not None:
        submission.check_text(command, "--command")
        changes["command"] = command
    for word in args.all(UNSET):
        changes |= dict.fromkeys(_unset(word, changes))
    return changes


def _unset(word: str, changes: dict[str, object]) -> tuple[str, ...]:
    known = {name.lstrip("-"): fields for option, fields in FIELDS.items() for name in option.names}
    fields = known.get(word.lstrip("-"))
    if fields is None:
        near = options.nearest(word, known)
        raise UserError(f'--unset expected the name of an option, got "{options.shown(word)}".', near)
    if set(fields) & changes.keys():
        raise UserError(f"--unset {word} contradicts --{word.lstrip('-')}.", "Leave one of them out.")
    return fields
