"""`dibs config`: every setting with its value, source and meaning."""

from __future__ import annotations

import os
import sys

from dibs.cli import screen
from dibs.cli.screen import Column
from dibs.errors import UserError
from dibs.model import suggestions
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import paths, settings
from dibs.system.settings import Setting, Settings

SUMMARY = "List all settings with value, source and meaning, or print one value."
USAGE = ("[OPTIONS] [SETTING]",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs config", "dibs config grace", "dibs config --json | jq .grace.value")


def main(args: Args) -> None:
    """Print the settings that this shell would pass to a daemon."""
    if len(args.words) > 1:
        raise UserError(f'config expected one setting, got "{options.shown(" ".join(args.words))}".')
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
    for setting in settings.SETTINGS:
        if word in (setting.name, setting.variable):
            return setting
    names = [setting.name for setting in settings.SETTINGS]
    hint = suggestions.did_you_mean(word, names) or "`dibs config` lists them."
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
        text = f"files: {', '.join(files)}. A running daemon takes changes with `dibs daemon restart`."
        print(f"\n{screen.wrapped(view, screen.clean(text))}")
