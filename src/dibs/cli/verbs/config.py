"""`dibs config`: list the settings, or change them in a configuration file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from dibs.cli import editor, screen
from dibs.cli.screen import Column
from dibs.client import connection, queries
from dibs.client.answers import Reload
from dibs.errors import UserError
from dibs.model import suggestions
from dibs.submission import options, presets
from dibs.submission.options import Args, Option
from dibs.system import paths, settings
from dibs.system.configuration import entries, texts
from dibs.system.configuration.entries import Entry
from dibs.system.configuration.presets import PRESETS, Preset
from dibs.system.settings import Setting, Settings

SUMMARY = "List or change settings."
USAGE = (
    "[--json] [SETTING]", "set SETTING VALUE [--machine]", "unset SETTING [--machine]", "edit [--machine]",
)  # fmt: skip
MACHINE: Option[bool] = Option(("--machine",), f"Change {settings.SITE_CONFIG} for all users (needs root).")
OPTIONS: tuple[Option[object], ...] = (MACHINE, options.JSON)
EXAMPLES = (
    "dibs config", "dibs config grace", "dibs config set max_gpus 2", "dibs config unset max_gpus",
    "dibs config set engines.lab.kind slurm", "dibs config set presets.big.gpus 4",
    "sudo dibs config set --machine keep_free 1",
    "dibs config --json | jq .grace.value",
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
            raise UserError(
                f"config {action} expected {' and '.join(expected) or 'nothing'}, got {options.quoted(words)}."
            )
        if args.has(options.JSON):
            raise UserError(f"config {action} does not take --json.")
        _change(args, action, *words)
        return
    if args.has(MACHINE):
        raise UserError("--machine goes with config set, unset or edit.")
    _list(args)


#: The words that follow each action.
ACTIONS: dict[str, tuple[str, ...]] = {"set": ("a setting", "a value"), "unset": ("a setting",), "edit": ()}


def usual(words: Sequence[str]) -> list[str]:
    """Let the value of a setting begin with a dash: `config set engines.lab.options "-p gpu"`."""
    plain = [place for place, word in enumerate(words) if not word.startswith("-")]
    if len(plain) < 2 or words[plain[0]] != "set" or "--" in words:
        return list(words)
    name = plain[1]
    known = {name for option in (*OPTIONS, *options.COMMON) for name in option.names}
    value = [word for word in words[name + 1 :] if word not in known]
    rest = [word for word in words[name + 1 :] if word in known]
    return [*words[:name], *rest, "--", words[name], *value]


# -- change ----------------------------------------------------------------------------------------------------


def _change(args: Args, action: str, name: str = "", value: str = "") -> None:
    # Imported late: most calls only list.
    from dibs.system.configuration import file as settings_file

    path = settings.SITE_CONFIG if args.has(MACHINE) else paths.config_file(os.environ)
    if path is None:
        raise UserError("you have no home folder, so there is no place for your settings.", "Set HOME or DIBS_CONFIG.")
    if action == "edit":
        _edit(path)
        return
    setting = _find(name)
    if action == "set":
        _check_preset(setting, value)
        settings_file.set_value(path, setting, value, os.environ)
    elif not settings_file.unset(path, setting, os.environ):
        screen.say(f"{path} does not set {setting.name}; nothing was changed.")
        return
    now = settings.load(os.environ)
    source = _source(setting, now)
    screen.say(f"{setting.name} is {entries.value_of(now, setting) or 'empty'} ({source}).")
    if action == "set" and source != str(path):
        screen.say(f"{path} was changed, but {source} overrides it here.")
    _tell_daemon()


def _check_preset(setting: Setting | Entry, text: str) -> None:
    """Refuse a value of a preset that its option would refuse."""
    if isinstance(setting, Entry) and setting.table is PRESETS:
        words = setting.key.kind.check(setting.key.kind.from_text(text), os.environ)
        if words is not None:
            presets.read_option(setting.of, setting.key.name, cast("tuple[str, ...]", words))


def _edit(path: Path) -> None:
    from dibs.system.configuration import file as settings_file

    before = texts.read(path, is_required=False) or ""

    def keep(data: bytes) -> bool:
        text = texts.decode(path, data)
        for preset in cast(
            "dict[str, Preset]", settings.check_text(path, text, os.environ).get(PRESETS.name, {})
        ).values():
            presets.read(preset)
        with settings_file.turn(path):
            if (texts.read(path, is_required=False) or "") != before:
                raise UserError(f"{path} was changed by another program during the edit.")
            settings_file.replace(path, text, os.environ)
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
    answer: Reload = queue.post("/v1/settings/reload", {})
    if waiting := answer["needs_restart"]:
        screen.say(f"{', '.join(waiting)}: takes effect after `dibs daemon restart`; running jobs are not affected.")


# -- list ------------------------------------------------------------------------------------------------------


def _list(args: Args) -> None:
    if len(args.words) > 1:
        raise UserError(
            f"config expected one setting, got {options.quoted(args.words)}.",
            f"To change it: dibs config set {options.shown(' '.join(args.words))}",
        )
    values = settings.load(os.environ)
    for preset in values.presets.values():
        presets.read(preset)
    chosen = [_find(word) for word in args.words] or _all(values)
    if args.has(options.JSON):
        described = {setting.name: _described(setting, values) for setting in chosen}
        screen.print_json(described[chosen[0].name] if args.words else described)
    elif args.words:
        print(screen.clean(entries.value_of(values, chosen[0])))
    else:
        _print_all(args, values)


def _all(values: Settings) -> list[Setting | Entry]:
    return [*settings.SETTINGS, *entries.entries(values)]


def _find(word: str) -> Setting | Entry:
    if (found_entry := entries.entry(word)) is not None:
        return found_entry
    known = {setting.name: setting for setting in settings.SETTINGS}
    # A setting can also be named by its variable.
    known_by_variable = {setting.variable: setting for setting in settings.SETTINGS}
    if found := known.get(word) or known_by_variable.get(word):
        return found
    hint = suggestions.did_you_mean(word, known) or "`dibs config` lists them."
    raise UserError(f'there is no setting "{options.shown(word)}".', hint)


def _source(setting: Setting | Entry, values: Settings) -> str:
    # Those of a table come together.
    return values.sources.get(".".join(setting.keys[:2]), "default")


def _described(setting: Setting | Entry, values: Settings) -> dict[str, object]:
    return {
        "value": entries.value_of(values, setting),
        "source": _source(setting, values),
        "default": "" if isinstance(setting, Entry) else setting.default,
        "variable": None if isinstance(setting, Entry) else setting.variable,
        "meaning": setting.meaning,
    }


def _print_all(args: Args, values: Settings) -> None:
    view = screen.screen_of_stream(sys.stdout, args)
    columns = (
        Column("NAME"),
        Column("VALUE", least=8),
        Column("SOURCE", least=8),
        Column("MEANING", least=24, is_sentence=True),
    )
    rows = [(s.name, entries.value_of(values, s), _source(s, values), s.meaning) for s in _all(values)]
    print(screen.table(view, columns, rows))
    if view.is_terminal:
        own = paths.config_file(os.environ)
        files = (f"{path}{'' if path.exists() else ' (missing)'}" for path in (settings.SITE_CONFIG, own) if path)
        text = f"files: {', '.join(files)}. Change one: dibs config set NAME VALUE"
        print(f"\n{screen.wrapped(view, screen.clean(text))}")
