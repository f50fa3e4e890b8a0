"""`dibs group`: named groups of jobs, each with a limit of its own, which can be paused apart from the others."""

from __future__ import annotations

import os
import sys
from urllib.parse import quote

from dibs.cli import screen
from dibs.cli.screen import Column
from dibs.client import connection, stand_in
from dibs.client.answers import NamedGroups
from dibs.errors import UserError
from dibs.submission import job_options, options
from dibs.submission.options import Args, Option

SUMMARY = "List groups of jobs; limit how many jobs of a group run at a time, or pause it."
USAGE = ("[list] [-q] [--json]", "set NAME -j N", "unset NAME", "pause NAME", "resume NAME")
AT_ONCE = Option(("-j", "--jobs"), "Maximum number of jobs of the group at a time.", job_options.AT_ONCE.kind, "N")
NAMES: Option[bool] = Option(("-q", "--quiet"), "Print only names.")
OPTIONS: tuple[Option[object], ...] = (AT_ONCE, NAMES, options.JSON)
EXAMPLES = (
    "dibs group set night -j 2",
    "dibs add --group night python train.py",
    "dibs group pause night",
    "dibs group",
)

#: What each action sends.
BODIES: dict[str, dict[str, object]] = {
    "unset": {"at_once": None}, "pause": {"paused": True}, "resume": {"paused": False},
}  # fmt: skip
ACTIONS = ("list", "set", *BODIES)


def main(args: Args) -> int:
    """List the groups, or change one."""
    action, *names = args.words or ("list",)
    if action not in ACTIONS:
        got = options.shown(action)
        raise UserError(f'group expected {", ".join(ACTIONS)}, got "{got}".', options.nearest(action, ACTIONS))
    if args.has(AT_ONCE) != (action == "set"):
        raise UserError(f"group {action} expected {'a limit: -j N' if action == 'set' else 'no -j'}.")
    if action == "list":
        options.refuse_words("group list", Args(tuple(names)))
        answer: NamedGroups = stand_in.connect(os.environ).get("/v1/queue/groups")
    else:
        path = f"/v1/queue/groups/{quote(_name(action, names), safe='')}"
        body = BODIES.get(action, {"at_once": args.get(AT_ONCE)})
        answer = connection.connect(os.environ).post(path, body)
    if args.has(options.JSON):
        screen.print_json(answer)
    elif args.has(NAMES):
        for name in [each["name"] for each in answer["groups"]] if action == "list" else names:
            print(screen.clean(name))
    elif action == "list":
        _print(answer, args)
    else:
        print(f"group {screen.clean(names[0])}: {_told(answer, names[0])}")
    return 0


def _name(action: str, names: list[str]) -> str:
    if len(names) != 1 or not names[0].strip():
        got = "an empty one" if len(names) == 1 else len(names)
        raise UserError(f"group {action} expected one name, got {got}.")
    return names[0]


def _told(answer: NamedGroups, name: str) -> str:
    """Return the rule of a group in words."""
    group = next((each for each in answer["groups"] if each["name"] == name), None)
    if group is None:
        return "no limit"
    limit = "no limit" if group["at_once"] is None else f"at most {group['at_once']} at once"
    return f"{limit}{', paused' if group['paused'] else ''}"


def _print(answer: NamedGroups, args: Args) -> None:
    view = screen.screen_of_stream(sys.stdout, args)
    if not answer["groups"]:
        screen.say("no group has a limit or unfinished jobs.")
        return
    rows = [
        [
            screen.clean(each["name"]), "-" if each["at_once"] is None else str(each["at_once"]), str(each["active"]),
            str(each["waiting"]), "paused" if each["paused"] else "",
        ]
        for each in answer["groups"]
    ]  # fmt: skip
    columns = (
        Column("GROUP"),
        Column("LIMIT", is_right=True),
        Column("RUNNING", is_right=True),
        Column("WAITING", is_right=True),
        Column("STATE"),
    )
    print(screen.table(view, columns, rows))
