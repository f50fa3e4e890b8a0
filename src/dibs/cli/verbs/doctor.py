"""`dibs doctor`: checks for new users and admins, each with its fix. Changes nothing, except with `--repair`."""

from __future__ import annotations

import os
import sys

from dibs.cli import screen
from dibs.cli.screen import Screen
from dibs.client import connection, doctor
from dibs.client.doctor import Finding
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Check driver, folders, leases, daemon, logout, reboot and disk; say what to do."
USAGE = ("[OPTIONS]",)
REPAIR: Option[bool] = Option(("--repair",), "Restore a lost or damaged queue from a copy and the jobs' folders.")
OPTIONS: tuple[Option[object], ...] = (REPAIR, options.YES, options.JSON)
EXAMPLES = ("dibs doctor", "dibs doctor --repair", "dibs doctor --json | jq '.findings[] | select(.level != \"ok\")'")

STYLES = {doctor.OK: "green", doctor.WARNING: "yellow", doctor.PROBLEM: "red"}


def main(args: Args) -> int:
    """Print one line per check; return 1 if one of them found a problem."""
    options.refuse_words("doctor", args)
    if args.has(REPAIR):
        from dibs.cli import repair

        return repair.main(connection.connect(os.environ), is_agreed=args.has(options.YES))
    found = doctor.run(os.environ)
    has_problem = any(finding.level == doctor.PROBLEM for finding in found)
    if args.has(options.JSON):
        rows = [{"check": f.check, "level": f.level, "text": f.text, "fix": f.fix} for f in found]
        screen.print_json({"ok": not has_problem, "findings": rows})
    else:
        view = screen.of(sys.stdout, args)
        for finding in found:
            print(line(view, finding))
    return 1 if has_problem else 0


def line(view: Screen, finding: Finding) -> str:
    """Return a finding as text, with its fix on a separate line."""
    head = f"{finding.level:8} {finding.check:9} "
    text = screen.wrapped(view, screen.clean(f"{head}{finding.text}"), " " * len(head))
    text = screen.paint(view, text[: len(finding.level)], STYLES[finding.level]) + text[len(finding.level) :]
    if not finding.fix:
        return text
    indent = " " * len(head)
    return f"{text}\n{screen.wrapped(view, screen.clean(f'{indent}-> {finding.fix}'), f'{indent}   ')}"
