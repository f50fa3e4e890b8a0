"""`dibs config`: list the settings, or change them in a configuration file."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from dibs.cli import editor, screen
from dibs.cli.screen import Column
from dibs.client import connection, queries
from dibs.errors import UserError
from dibs.model import suggestions
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import paths, settings
from dibs.system.settings import Setting, Settings

SUMMARY = "List the settings, or change one."
USAGE = (
    "[--json] [SETTING]", "set SETTING VALUE [--machine]", "unset SETTING [--machine]", "edit [--machine]",
)  # fmt: skip
MACHINE: Option[bool] = Option(("--machine",), f"Change {settings.SITE_CONFIG}, for all users; needs root.")
OPTIONS: tuple[Option[object], ...] = (MACHINE, options.JSON)
EXAMPLES = (
    "dibs config", "dibs config grace", "dibs config set max_gpus 2", "dibs config unset max_gpus",
    "sudo dibs config set --machine keep_free 1", "dibs config --json | jq .grace.value",
)  # fmt: skip


def main(args: Args) -> None:
    """Print settings, or change one in a file and in the running daemon."""
    if args.words[:1] == ("get",):
        # Typed from habit.
        args = replace(args, words=args.words[1:])
    action, *words = args.words or ("",)
    if action in ACTIONS:
        expected = ACTIONS[action]
        if len(words) != len(expected):
            raise UserError(f"config {action} expected {' and '.join(expected) or 'nothing'}, got {_got(words)}.")
        if args.has(options.JSON):
            raise UserError(f"config {action} has no option --json.")
        _change(args, action, *words)
        return
    if args.has(MACHINE):
        raise UserError("--machine goes with config set, unset or edit.")
    _list(args)


#: The words that follow each action.
ACTIONS: dict[str, tuple[str, ...]] = {"set": ("a setting", "a value"), "unset": ("a setting",), "edit": ()}


def _got(words: list[str]) -> str:
    return f'"{options.shown(" ".join(words))}"' if words else "nothing"


# -- change ----------------------------------------------------------------------------------------------------


def _change(args: Args, action: str, name: str = "", value: str = "") -> None:
    # Imported late: most calls only list.
    from dibs.system import settings_file

    path = settings.SITE_CONFIG if args.has(MACHINE) else paths.config_file(os.environ)
    if path is None:
        raise UserError("you have no home folder, so there is no file for your settings.", "Set HOME or DIBS_CONFIG.")
    if action == "edit":
        _edit(path)
        return
    setting = _find(name)
    if action == "set":
        settings_file.set_value(path, setting, value, os.environ)
    elif not settings_file.unset(path, setting, os.environ):
        screen.say(f"{path} does not set {setting.name}; nothing was changed.")
        return
    now = settings.load(os.environ)
    screen.say(f"{setting.name} is {written(setting, now) or 'empty'} ({now.sources[setting.name]}).")
    if action == "set" and now.sources[setting.name] != str(path):
        screen.say(f"{path} was changed, but {now.sources[setting.name]} overrides it here.")
    _tell_daemon()


def _edit(path: Path) -> None:
    from dibs.system import settings_file

    before = settings.text_of(path, is_required=False) or ""

    def keep(data: bytes) -> bool:
        settings_file.replace(path, settings.decode(path, data), os.environ)
        return data != before.encode()

    if editor.edit(before, "dibs-config-", keep, "Change one setting: dibs config set NAME VALUE"):
        _tell_daemon()
    else:
        screen.say("nothing was changed.")


def _tell_daemon() -> None:
    """Let a running daemon read its settings again; say which ones it cannot change while it runs."""
    queue = connection.connect(os.environ)
    if queries.identity(queue) is None:
        return
    waiting = queries.reload_settings(queue)
    if waiting:
        screen.say(f"{', '.join(waiting)}: takes effect after `dibs daemon restart`; running jobs are not affected.")


# -- list ------------------------------------------------------------------------------------------------------


def _list(args: Args) -> None:
    if len(args.words) > 1:
        raise UserError(
            f"config expected one setting, got {_got(list(args.words))}.",
            f"To change it: dibs config set {options.shown(' '.join(args.words))}",
        )
    chosen = [_find(word) for word in args.words] or list(settings.SETTINGS)
    values = settings.load(os.environ)
    if args.has(options.JSON):
        described = {setting.name: _described(setting, values) for setting in chosen}
        screen.print_json(described[chosen[0].name] if args.words else described)
    elif args.words:
        print(screen.clean(written(chosen[0], values)))
    else:
        _print_all(args, values)


def _find(word: str) -> Setting:
    known = {setting.name: setting for setting in settings.SETTINGS}
    # A setting can also be named by its variable.
    known_by_variable = {setting.variable: setting for setting in settings.SETTINGS}
    if found := known.get(word) or known_by_variable.get(word):
        return found
    hint = suggestions.did_you_mean(word, known) or "`dibs config` lists them."
    raise UserError(f'there is no setting "{options.shown(word)}".', hint)


def written(setting: Setting, values: Settings) -> str:
    """Return the value of a setting as a user would write it."""
    return settings.written(getattr(values, setting.name))


def _described(setting: Setting, values: Settings) -> dict[str, object]:
    return {
        "value": written(setting, values),
        "source": values.sources[setting.name],
        "default": setting.default,
        "variable": setting.variable,
        "meaning": setting.meaning,
    }


def _print_all(args: Args, values: Settings) -> None:
    view = screen.of(sys.stdout, args)
    columns = (
        Column("NAME"),
        Column("VALUE", least=8),
        Column("SOURCE", least=8),
        Column("MEANING", least=24, is_sentence=True),
    )
    rows = [(s.name, written(s, values), values.sources[s.name], s.meaning) for s in settings.SETTINGS]
    print(screen.table(view, columns, rows))
    if view.is_terminal:
        own = paths.config_file(os.environ)
        files = (f"{path}{'' if path.exists() else ' (missing)'}" for path in (settings.SITE_CONFIG, own) if path)
        text = f"files: {', '.join(files)}. Change one: dibs config set NAME VALUE"
        print(f"\n{screen.wrapped(view, screen.clean(text))}")
