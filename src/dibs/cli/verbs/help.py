"""`dibs help`: all verbs in one line each, one verb with its options, or a topic, from the tables that parse them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dibs.cli import help_topics
from dibs.cli import main as cli
from dibs.errors import UserError
from dibs.model import suggestions
from dibs.submission import job_options, options
from dibs.submission.options import Args, Option

SUMMARY = "Show help for a verb or topic."
USAGE = ("[VERB|TOPIC]",)
OPTIONS: tuple[Option[object], ...] = ()
EXAMPLES = ("dibs help add", "dibs add --help", "dibs help selectors")

WIDTH = 80
#: Column at which the description of an option begins.
INDENT = 24

ABOUT = "dibs: call dibs on a GPU. Queue commands on this machine's GPUs and share them fairly."
SELECTORS = (
    "Select jobs by: 12, 3-7, 1,4,9-12, @ (the last), @~1, all, a state (queued, failed, ...), "
    "bad, name:vit*, project:x, tag:x, sweep:x, since:24h; several are a union, a+b means both."
)
VERSION: Option[bool] = Option(("-V", "--version"), "Show the version.")


def main(args: Args) -> None:
    """Print the page of a verb or topic, or both if they share a name; the page of `help` is the overview."""
    if len(args.words) > 1:
        raise UserError(f'help expected one verb or topic, got "{options.shown(" ".join(args.words))}".')
    name = args.words[0] if args.words else "help"
    name = cli.ALIASES.get(name, name)
    if name == "help":
        pages = [overview()]
    elif name in cli.VERBS or name in help_topics.TOPICS:
        pages = [page(name)] if name in cli.VERBS else []
        pages += [topic(name)] if name in help_topics.TOPICS else []
    else:
        raise UserError(f'there is no verb or topic "{options.shown(name)}".', _suggest(name))
    print("\n\n".join(pages))


def _suggest(name: str) -> str:
    if name in cli.HABITS:
        return f"Did you mean {cli.HABITS[name]}?"
    return suggestions.did_you_mean(name, [*cli.VERBS, *cli.ALIASES, *help_topics.TOPICS]) or "See `dibs help`."


def overview() -> str:
    """Return all verbs, topics and common options."""
    width = max(len(name) for name in (*cli.VERBS, *help_topics.TOPICS)) + 2
    return "\n".join(
        [
            "Usage: dibs [VERB] [OPTIONS] ...  (without a verb: status)",
            "",
            *textwrap.wrap(ABOUT, WIDTH),
            "",
            *(line for title, names in cli.GROUPS.items() for line in _group(title, names, width)),
            "Topics:",
            *(line for name, each in help_topics.TOPICS.items() for line in _row(name, each.summary, width)),
            "",
            "Options of all verbs:",
            *(line for option in options.COMMON for line in _option(option)),
            *_option(VERSION),
            "",
            *textwrap.wrap(SELECTORS, WIDTH),
            "",
            "Help on a verb or topic: dibs help NAME",
        ]
    )


def _group(title: str, names: Sequence[str], width: int) -> list[str]:
    return [f"{title}:", *(line for name in names for line in _row(name, cli.load(name).SUMMARY, width)), ""]


def page(name: str) -> str:
    """Return the help page of a verb."""
    verb = cli.load(name)
    aliases = [alias for alias, target in cli.ALIASES.items() if target == name]
    usage = [f"dibs {name} {form}".rstrip() for form in verb.USAGE]
    lines = [f"Usage: {usage[0]}", *(f"       {form}" for form in usage[1:]), "", *textwrap.wrap(verb.SUMMARY, WIDTH)]
    lines += [f"Also: dibs {alias}" for alias in aliases]
    for title, own in option_groups((*verb.OPTIONS, *options.COMMON)):
        lines += ["", f"{title}:", *(line for option in own for line in _option(option))]
    if verb.EXAMPLES:
        lines += ["", "Examples:", *(f"  {example}" for example in verb.EXAMPLES)]
    return "\n".join(lines)


def option_groups(own: Sequence[Option[object]]) -> list[tuple[str, list[Option[object]]]]:
    """Return the options of a verb in groups, the usual ones of a job first; few options are one group."""
    if not set(job_options.GROUPS["Common options"]) <= set(own):
        return [("Options", list(own))]
    grouped = {option for group in job_options.GROUPS.values() for option in group}
    found = {title: [option for option in group if option in own] for title, group in job_options.GROUPS.items()}
    found["Other options"] = [option for option in own if option not in grouped]
    return [(title, group) for title, group in found.items() if group]


def topic(name: str) -> str:
    """Return the help page of a topic."""
    lines = [f"{name}: {help_topics.TOPICS[name].summary}"]
    for part in help_topics.TOPICS[name].parts:
        lines.append("")
        if isinstance(part, str):
            lines += textwrap.wrap(part, WIDTH, break_on_hyphens=False)
        else:
            width = min(max(len(word) for word, _ in part) + 2, INDENT + 8)
            lines += [line for word, meaning in part for line in _row(word, meaning, width)]
    return "\n".join(lines)


def _row(word: str, meaning: str, width: int) -> list[str]:
    lines = textwrap.wrap(meaning, WIDTH - width - 2, break_on_hyphens=False) or [""]
    head = [f"  {word:{width}}{lines[0]}"] if len(word) < width else [f"  {word}", " " * (width + 2) + lines[0]]
    return [*head, *(" " * (width + 2) + line for line in lines[1:])]


def named(option: Option[object]) -> str:
    """Return the names of an option and its value, as help and man page show them."""
    names = ", ".join(option.names)
    if not option.metavar:
        return names
    return f"{names}[={option.metavar}]" if option.is_bare else f"{names} {option.metavar}"


def explained(option: Option[object]) -> str:
    """Return the description of an option."""
    text = option.help + (" May be repeated." if option.is_repeatable else "")
    return text + (f" Also {', '.join(option.habits)}." if option.habits else "")


def _option(option: Option[object]) -> list[str]:
    names = named(option)
    head = f"  {names}" if option.names[0].startswith("-") and len(option.names[0]) == 2 else f"      {names}"
    lines = textwrap.wrap(explained(option), WIDTH - INDENT, break_on_hyphens=False)
    first = f"{head:{INDENT}}{lines[0]}" if len(head) < INDENT - 1 else None
    indented = [" " * INDENT + line for line in (lines[1:] if first else lines)]
    return [first, *indented] if first else [head, *indented]
