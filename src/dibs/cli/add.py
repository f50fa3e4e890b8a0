"""`dibs add`: queue a command, or one a line; the ids alone on stdout."""

from __future__ import annotations

import os
import sys

from dibs import client
from dibs.cli import options, screen, submission
from dibs.cli.options import Args, Option
from dibs.errors import UserError

SUMMARY = "Queue a command; print its id."
USAGE = ("[OPTIONS] COMMAND...", '[OPTIONS] "SHELL COMMAND"', "[OPTIONS] -", "[OPTIONS] --file FILE")
FILE = Option(("--file",), "One job a line of this file; - is stdin.", options.PATH, "FILE")
AT_ONCE = Option(("-j", "--jobs"), "Of a batch: at most so many at once.", options.whole(1), "N")
HALT = Option(("--halt",), "Of a batch: hold the rest after so many failures.", options.whole(1), "N")
OPTIONS: tuple[Option[object], ...] = (*submission.OPTIONS, FILE, AT_ONCE, HALT, options.JSON)
TAKES_COMMAND = True
EXAMPLES = (
    "dibs add python train.py --lr 1e-3",
    "dibs add -g 2 -n big -t 12h python train.py",
    'dibs add "cd runs && ./prepare.sh | tee log"',
    "dibs add --after @ --retries 2 python evaluate.py",
    "generate-commands | dibs add -j 4 -",
)


def main(args: Args) -> int:
    """Queue what was given and print the ids."""
    body = body_of(args)
    answer = client.connect(os.environ).post("/v1/jobs", body)
    for note in answer["notes"]:
        screen.say(note)
    if args.has(options.JSON):
        screen.print_json({"ids": answer["ids"]})
        return 0
    print("\n".join(str(job_id) for job_id in answer["ids"]))
    if sys.stderr.isatty():
        follow = f"; dibs follow {answer['ids'][0]}" if len(answer["ids"]) == 1 else ""
        print(f"{screen.clean(answer['receipt'])}{submission.told_begin(args)}{follow}", file=sys.stderr)
    return 0


def body_of(args: Args) -> submission.Body:
    """Return the request that a command line means."""
    file = args.get(FILE)
    if file is None and args.words != ("-",):
        for option in (AT_ONCE, HALT):
            if args.has(option) and args.words:
                raise UserError(f"{option.names[0]} is for a batch (`dibs add -` or --file), this is one job.")
        return submission.from_words(args, args.words, "add")
    return _batch(args, file) | {"at_once": args.get(AT_ONCE), "halt_after": args.get(HALT)}


def _batch(args: Args, file: str | None) -> submission.Body:
    if file is not None and args.words:
        raise UserError(f'--file takes no command, got "{options.shown(" ".join(args.words))}".')
    if file in (None, "-"):
        return submission.from_lines(args, sys.stdin.buffer, "stdin")
    assert file is not None
    try:
        with open(file, "rb") as lines:
            return submission.from_lines(args, lines, file)
    except OSError as error:
        raise UserError(f"--file cannot read {file}: {error.strerror}.") from None
