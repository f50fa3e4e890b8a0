"""`dibs report`: report numbers from inside a job, for tables and plots."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from dibs.errors import UserError
from dibs.logs import reports
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Report metrics from inside a job, for `dibs show`, results and the page."
USAGE = ("NAME=NUMBER...",)
OPTIONS: tuple[Option[object], ...] = ()
EXAMPLES = ("dibs report loss=0.3 step=10", 'echo \'{"loss": 0.3, "step": 10}\' >> "$DIBS_REPORT"')


def main(args: Args) -> None:
    """Append one line with all numbers to the report of this attempt; needs no daemon."""
    numbers = read(args.words)
    path = os.environ.get("DIBS_REPORT", "")
    if not os.path.isabs(path):
        raise UserError(
            "report works only inside a job: DIBS_REPORT is not set.",
            "Queue a command that calls it: dibs add ...",
        )
    try:
        reports.append(path, numbers, datetime.now(UTC))
    except OSError as error:
        raise UserError(f"DIBS_REPORT: cannot write to {path}: {error.strerror}.") from None


def read(words: tuple[str, ...]) -> dict[str, float]:
    """Parse words such as `loss=0.3`."""
    if not words:
        raise UserError(f"{reports.EXPECTED}, got nothing.")
    numbers: dict[str, float] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise UserError(f'{reports.EXPECTED}, got "{options.shown(word)}".')
        reports.check_name(name)
        if name in numbers:
            raise UserError(f"{reports.EXPECTED}, got {options.shown(name)} twice.")
        numbers[name] = _number(name, text)
    return numbers


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UserError(f'{options.shown(name)} expected a number, got "{options.shown(text)}".') from None
    # 10 stays 10 in tables; a float would make it 10.0.
    return int(text) if text.lstrip("+-").isdecimal() and text.isascii() and len(text) < 18 else number
