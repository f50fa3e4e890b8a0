"""`dibs edit`: change what is asked of waiting jobs, by options or in an editor."""

from __future__ import annotations

import os

from dibs import answers, client, commands, drafts, job_options, options
from dibs.cli import acting, editing, screen
from dibs.errors import UserError
from dibs.options import Args, Option

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
    job_options.GPUS: ("gpus",),
    job_options.GPU_IDS: ("gpu_ids",),
    job_options.PREFER: ("prefer",),
    job_options.GPU_TYPE: ("gpu_type",),
    job_options.VRAM: ("vram",),
    job_options.CPUS: ("cpus",),
    job_options.MEM: ("mem",),
    job_options.NAME: ("name",),
    job_options.PROJECT: ("project",),
    job_options.PRIORITY: ("priority",),
    job_options.TIME: ("time_limit_s",),
    job_options.AFTER: ("after",),
    job_options.AFTER_ANY: ("after",),
    job_options.AFTER_END: ("after",),
    job_options.DEPENDENCY: ("after",),
    job_options.BEGIN: ("begin_at",),
    job_options.RETRIES: ("retries",),
    job_options.RETRY_ON: ("retry_on",),
    job_options.ENV: ("env",),
    job_options.CHDIR: ("cwd",),
    job_options.OUTPUT: ("output",),
    job_options.STDERR: ("stderr",),
    job_options.TAG: ("tags",),
    job_options.VISIBLE: ("visible",),
    job_options.SIGNAL: ("warn",),
    job_options.WAIT_TREE: ("wait_tree",),
    job_options.IGNORE_FOREIGN: ("ignore_foreign",),
    job_options.STRICT_GPUS: ("strict_gpus",),
    job_options.METRIC: ("metric",),
    job_options.NOTIFY: ("notify",),
    job_options.AT_ONCE: ("at_once",),
    job_options.HALT: ("halt_after",),
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
        acting.tell(acted)


def changed_by(args: Args) -> dict[str, object]:
    """Return the fields that the options say."""
    given = [option for option in args.given if option in FIELDS]
    count = args.get(job_options.GPUS)
    body: dict[str, object] = {}
    if given:
        # Whether the number of tries is known here is for the daemon to say.
        own = Args((), {option: values for option, values in args.given.items() if option != job_options.RETRY_ON})
        body = drafts.common(own, [])
        body |= {"at_once": args.get(job_options.AT_ONCE), "halt_after": args.get(job_options.HALT)}
        body |= {"retry_on": list(args.get(job_options.RETRY_ON) or ())}
    changes = {field: body[field] for option in given for field in FIELDS[option]}
    if count is not None and count.gpu_type:
        changes["gpu_type"] = count.gpu_type
    if (command := args.get(COMMAND)) is not None:
        commands.check_text(command, "--command")
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
