"""`dibs help`: all verbs in one line each, or one verb with its options, from the tables that parse them."""

from __future__ import annotations

import textwrap

from dibs import cli
from dibs.cli import options
from dibs.cli.options import Args, Option
from dibs.errors import UserError

SUMMARY = "Show all verbs, or one with its options."
USAGE = ("[VERB]",)
OPTIONS: tuple[Option[object], ...] = ()
EXAMPLES = ("dibs help add", "dibs add --help")

WIDTH = 80
#: Columns until the explanation of an option begins.
INDENT = 24

ABOUT = "dibs: call dibs on a GPU. Queue commands on this machine's GPUs and share them fairly."
SELECTORS = (
    "Jobs are named by selectors: 12, 3-7, 1,4,9-12, @ (the last), @~1, all, a state (queued, failed, ...), "
    "bad, name:vit*, project:x, tag:x, since:24h; several are a union, a+b means both."
)


def main(args: Args) -> int:
    """Show the page that was asked for."""
    if len(args.words) > 1:
        raise UserError(f'help expected one verb, got "{options.shown(" ".join(args.words))}".')
    return show(args.words[0] if args.words else "help")


def show(name: str) -> int:
    """Print the page of a verb; that of `help` is the overview."""
    name = cli.ALIASES.get(name, name)
    print(overview() if name == "help" else page(name))
    return 0


def overview() -> str:
    """Return all verbs and what holds for all of them."""
    width = max(len(name) for name in cli.VERBS) + 2
    verbs = [f"  {name:{width}}{cli.load(name).SUMMARY}" for name in cli.VERBS]
    return "\n".join(
        [
            "Usage: dibs [VERB] [OPTIONS] ...",
            "",
            *textwrap.wrap(ABOUT, WIDTH),
            "",
            "Verbs (without one: status):",
            *verbs,
            "",
            "Options of all verbs:",
            *(line for option in options.COMMON for line in _option(option)),
            *_option(VERSION),
            "",
            *textwrap.wrap(SELECTORS, WIDTH),
            "",
            "More about a verb: dibs help VERB",
        ]
    )


VERSION: Option[bool] = Option(("-V", "--version"), "Show the version.")


def page(name: str) -> str:
    """Return everything about one verb."""
    verb = cli.load(name)
    aliases = [alias for alias, target in cli.ALIASES.items() if target == name]
    usage = [f"dibs {name} {form}".rstrip() for form in verb.USAGE]
    lines = [f"Usage: {usage[0]}", *(f"       {form}" for form in usage[1:]), "", *textwrap.wrap(verb.SUMMARY, WIDTH)]
    lines += [f"Also: dibs {alias}" for alias in aliases]
    lines += ["", "Options:", *(line for option in (*verb.OPTIONS, *options.COMMON) for line in _option(option))]
    if verb.EXAMPLES:
        lines += ["", "Examples:", *(f"  {example}" for example in verb.EXAMPLES)]
    return "\n".join(lines)


def _option(option: Option[object]) -> list[str]:
    names = ", ".join(option.names) + (f" {option.metavar}" if option.metavar else "")
    text = option.help + (" May be repeated." if option.is_repeatable else "")
    text += f" Also {', '.join(option.habits)}." if option.habits else ""
    head = f"  {names}" if option.names[0].startswith("-") and len(option.names[0]) == 2 else f"      {names}"
    lines = textwrap.wrap(text, WIDTH - INDENT, break_on_hyphens=False)
    first = f"{head:{INDENT}}{lines[0]}" if len(head) < INDENT - 1 else None
    indented = [" " * INDENT + line for line in (lines[1:] if first else lines)]
    return [first, *indented] if first else [head, *indented]
