"""`dibs doctor`: checks for new users and admins, each with its fix. Changes nothing, except with `--repair`."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dibs.cli import screen
from dibs.cli.screen import Screen
from dibs.client import connection, doctor, safe_text
from dibs.client.checks import findings
from dibs.client.checks.findings import Finding
from dibs.errors import UserError
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import settings, users
from dibs.system.configuration import entries
from dibs.version import __version__

SUMMARY = "Check the installation and suggest fixes: driver, folders, leases, daemon, disk."
USAGE = ("[OPTIONS]",)
REPAIR: Option[bool] = Option(("--repair",), "Restore a lost or damaged queue from backups and job folders.")
REPORT: Option[bool] = Option(("--report",), "Print a text for a bug report, without names, commands and secrets.")
OPTIONS: tuple[Option[object], ...] = (REPAIR, REPORT, options.YES, options.JSON)
EXAMPLES = (
    "dibs doctor", "dibs doctor --repair", "dibs doctor --report",
    "dibs doctor --json | jq '.findings[] | select(.level != \"ok\")'",
)  # fmt: skip

#: Settings whose value is the user's own text: only whether they are set is reported.
PRIVATE = {"notify", "web_names", "env_exclude"}
STYLES = {findings.OK: "green", findings.WARNING: "yellow", findings.PROBLEM: "red"}


def main(args: Args) -> int:
    """Print one line per check; return 1 if one of them found a problem."""
    options.refuse_words("doctor", args)
    if args.has(REPAIR):
        from dibs.cli import repair

        return repair.main(connection.connect(os.environ), is_agreed=args.has(options.YES))
    found = doctor.run(os.environ)
    has_problem = any(finding.level == findings.PROBLEM for finding in found)
    if args.has(REPORT):
        sys.stdout.write(report(os.environ, found))
    elif args.has(options.JSON):
        rows = [{"check": f.check, "level": f.level, "text": f.text, "fix": f.fix} for f in found]
        screen.print_json({"ok": not has_problem, "findings": rows})
    else:
        view = screen.screen_of_stream(sys.stdout, args)
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


def report(environ: Mapping[str, str], found: Sequence[Finding]) -> str:
    """Return a bug report as Markdown: what it needs, without names, paths of a home, commands or secrets."""
    lines = [
        f"dibs {__version__}, Python {platform.python_version()} ({Path(sys.executable).name})",
        f"{_distribution()}, Linux {platform.release()} {platform.machine()}",
        "",
        "| check | level | finding |",
        "|---|---|---|",
        *(f"| {each.check} | {each.level} | {safe_text.clean(each.text)} |" for each in found),
        "",
        "Settings that are not at their defaults:",
        "",
        *(_settings(environ) or ["none"]),
    ]
    host = socket.gethostname()
    names = {users.own(): "USER", host: "HOST", host.split(".")[0]: "HOST"}
    return hidden("\n".join(lines), environ.get("HOME") or os.path.expanduser("~"), names) + "\n"


def hidden(text: str, home: str, names: Mapping[str, str]) -> str:
    """Replace the home folder, the names given, and the id of the machine by general words."""
    if len(home) > 1:
        text = text.replace(home, "~")
    for name, word in names.items():
        # Very short names would hit ordinary words; root is no secret.
        if name != "root" and len(name) > 2:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", word, text)
    return re.sub(r"\b[0-9a-f]{32}\b", "MACHINE", text)


def _settings(environ: Mapping[str, str]) -> list[str]:
    try:
        values = settings.load(environ)
    except UserError as error:
        return [error.line()]
    changed = [each.name for each in settings.SETTINGS if values.sources.get(each.name, "default") != "default"]
    return [f"- {name} = {'(set)' if name in PRIVATE else entries.written(getattr(values, name))}" for name in changed]


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown distribution")
    except OSError:
        return "unknown distribution"
