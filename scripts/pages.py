"""Files generated from tables in the code: pages of `docs/`, and the types of the HTTP API for the client and the web
page. Run `scripts/write-docs` after changing one of the tables.

Words after it name the pages to write; without any it writes all.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from dibs import errors
from dibs.cli import help_topics
from dibs.cli import main as cli
from dibs.cli.verbs import help as helping
from dibs.http_api.schemas import job_answers, machine_answers
from dibs.model import lifecycle, selectors
from dibs.submission import options
from dibs.system import settings as tables
from dibs.version import __version__

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def lifecycle_page() -> str:
    """Return the states of a job and what leads from one to the other."""
    return f"""# The life of a job

Drawn from the table in `lifecycle` by `scripts/draw-lifecycle`; do not edit.
A job that is `finished` shows its outcome instead: `done`, `failed`, `cancelled`, `timeout` or `lost`.
A `paused` job keeps its devices and what it has in their memory; its time limit stands still.

```mermaid
{lifecycle.diagram()}
```
"""


def settings_page() -> str:
    """Return every setting with its default, its variable and its meaning."""
    rows = [
        f"| `{row.name}` | {f'`{row.default}`' if row.default else ''} | `{row.variable}` | {row.meaning}"
        + (" *restart* |" if row.needs_restart else " |")
        for row in tables.SETTINGS
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Written from the table in `settings` by `scripts/write-docs`; do not edit.",
            "",
            "A value comes from the last of these that has one: the default, `/etc/dibs/config.toml`, your own",
            "`config.toml` (in `$XDG_CONFIG_HOME/dibs` or `~/.config/dibs`; `$DIBS_CONFIG` names another file), the",
            "environment, an option of the command. An empty variable counts as unset. `dibs config set NAME VALUE`",
            "changes your file, `--machine` that of all users. A running daemon takes the new value at once; settings",
            "marked *restart* need `dibs daemon restart`, which does not affect running jobs.",
            "",
            "| name | default | variable | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "`lease_dir` cannot be set in a file, because all users of a machine must share one folder.",
            "A time is written `90m`, `2h` or `1d12h`; a bare number is an error.",
            "",
            "```toml",
            "# ~/.config/dibs/config.toml",
            'devices = "0,1"                    # leave the other GPUs alone',
            'grace = "2m"                       # our checkpoints take a while',
            'env_exclude = ["AWS_*", "*_TOKEN"]',
            "```",
            "",
            "Two more variables say where things are and have no place in a file:",
            "",
            "| variable | meaning |",
            "|---|---|",
            "| `DIBS_HOME` | The state folder: queue, logs, socket. Default `~/.local/state/dibs/<machine-id>`. |",
            "| `DIBS_CONFIG` | Your configuration file. |",
            "",
        ]
    )


def verbs_page() -> str:
    """Return the help of every verb."""
    lines = [
        "# The command line",
        "",
        "Written from the tables of the verbs by `scripts/write-docs`; do not edit. `dibs help VERB` shows the same.",
        "Exit codes are in [errors.md](errors.md).",
        "",
        "```text",
        helping.overview(),
        "```",
    ]
    for name in cli.VERBS:
        if name != "help":
            lines += ["", f"## dibs {name}", "", "```text", helping.page(name), "```"]
    return "\n".join([*lines, ""])


def errors_page() -> str:
    """Return every kind of error with its exit code and HTTP status."""
    rows = [
        f"| `{kind}` | {error.exit_code} | {error.http_status} | {(error.__doc__ or '').strip()} |"
        for kind, error in errors.KINDS.items()
        if error is not errors.DibsError
    ]
    return "\n".join(
        [
            "# Errors and exit codes",
            "",
            "Written from the classes in `errors` by `scripts/write-docs`; do not edit.",
            "",
            "An error is one line on stderr: `dibs: ` what was expected, what came, what to do next. Wrong input",
            "changes nothing. `--debug` shows where it came from.",
            "",
            "| kind | exit code | HTTP | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "Other exit codes of `dibs` itself:",
            "",
            "| code | meaning |",
            "|---|---|",
            *(f"| {code} | {meaning} |" for code, meaning in help_topics.OWN_CODES),
            "",
            "`run`, `follow` and `log -f` exit with the code of the job's command, and otherwise as a shell would:",
            "",
            "| code | meaning |",
            "|---|---|",
            *(f"| {code} | {meaning} |" for code, meaning in help_topics.JOB_CODES),
            "",
        ]
    )


def topics_page() -> str:
    """Return the texts of `dibs help TOPIC`."""
    lines = [
        "# Topics",
        "",
        "Written from `cli.help_topics` by `scripts/write-docs`; do not edit. `dibs help TOPIC` shows each.",
    ]
    for name, topic in help_topics.TOPICS.items():
        lines += ["", f"## {name}", "", f"{topic.summary[0].upper()}{topic.summary[1:]}."]
        for part in topic.parts:
            rows = [part] if isinstance(part, str) else ["| | |", "|---|---|", *(f"| `{a}` | {b} |" for a, b in part)]
            lines += ["", *rows]
    return "\n".join([*lines, ""])


def man_page() -> str:
    """Return dibs(1): every verb with its options and examples, and every topic."""
    lines = [
        f'.TH DIBS 1 "" "dibs {__version__}" "User Commands"',
        ".SH NAME",
        f"dibs {_roff('-')} call dibs on a GPU: queue commands and share the GPUs of a machine",
        ".SH SYNOPSIS",
        ".B dibs",
        "[\\fIVERB\\fR] [\\fIOPTIONS\\fR] ...",
        ".SH DESCRIPTION",
        _roff(helping.ABOUT),
        "Without a verb it shows the status. Options end at the first word of a command.",
        ".SH OPTIONS OF ALL VERBS",
        *(line for option in (*options.COMMON, helping.VERSION) for line in _man_option(option)),
        ".SH VERBS",
    ]
    for name in cli.VERBS:
        lines += _man_verb(name)
    for name, topic in help_topics.TOPICS.items():
        lines += [f".SH {name.upper().replace('-', ' ')}", _roff(f"{topic.summary[0].upper()}{topic.summary[1:]}.")]
        for part in topic.parts:
            rows = [".PP", _roff(part)] if isinstance(part, str) else [row for a, b in part for row in _man_row(a, b)]
            lines += rows
    lines += [".SH SEE ALSO", _roff("nvidia-smi(1), systemd(1). dibs help, dibs help TOPIC, dibs VERB --help.")]
    return "\n".join([*lines, ""])


def _man_verb(name: str) -> list[str]:
    verb = cli.load(name)
    aliases = [alias for alias, target in cli.ALIASES.items() if target == name]
    lines = [f".SS dibs {_roff(name)}"]
    lines += [line for form in verb.USAGE for line in (f".B dibs {_roff(name)}", _roff(form), ".br")]
    lines += [".PP", _roff(verb.SUMMARY), *(_roff(f"Also: dibs {alias}.") for alias in aliases)]
    lines += [line for option in verb.OPTIONS for line in _man_option(option)]
    return [*lines, ".PP", "Examples:", ".PP", ".nf", ".RS", *(_roff(each) for each in verb.EXAMPLES), ".RE", ".fi"]


def _man_option(option: options.Option[object]) -> list[str]:
    return [".TP", f"\\fB{_roff(helping.named(option))}\\fR", _roff(helping.explained(option))]


def _man_row(word: str, meaning: str) -> list[str]:
    return [".TP", f"\\fB{_roff(word)}\\fR", _roff(meaning)]


def _roff(text: str) -> str:
    """Return text as it is for roff: backslashes, dashes that can be copied, and no line that looks like an order."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


#: The answers that the client reads, and those that the web page reads; each with all that they contain.
CLIENT_ANSWERS: tuple[type[msgspec.Struct], ...] = (
    job_answers.Jobs,
    job_answers.WholeJob,
    job_answers.Why,
    job_answers.Event,
    job_answers.ActionResult,
    job_answers.DryRun,
    job_answers.WaitSummary,
    machine_answers.Gpus,
    machine_answers.Daemon,
    machine_answers.Reload,
)
PAGE_ANSWERS: tuple[type[msgspec.Struct], ...] = (
    job_answers.WholeJob,
    job_answers.Hello,
    job_answers.JobEvent,
    job_answers.ActionResult,
    machine_answers.Environments,
    machine_answers.Gpus,
    machine_answers.Timeline,
)


def client_types() -> str:
    """Return `client/answers.pyi`: the answers as TypedDicts, for programs without msgspec."""
    parts = [
        '"""Answers of the daemon. Generated from `http_api/schemas` by `scripts/write-docs`; do not edit."""',
        "from typing import Any, NotRequired, TypedDict",
    ]
    for struct in _closure(CLIENT_ANSWERS):
        base = struct.__base__
        assert base is not None
        inherited = () if base is msgspec.Struct else base.__struct_fields__
        parent = "TypedDict" if base is msgspec.Struct else base.__name__
        lines = [f"class {struct.__name__}({parent}):", f'    """{struct.__doc__}"""', ""]
        for name, kind in _fields(struct):
            if name not in inherited:
                text = _python(kind)
                lines.append(f"    {name}: {f'NotRequired[{text}]' if _is_optional(kind) else text}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def page_types() -> str:
    """Return `web/core/types.js`: the answers as types for the type checker."""
    words = "|".join(f'"{word}"' for word in selectors.STATE_WORDS)
    lines = [
        "// Types of the daemon's answers. Generated from http_api/schemas by scripts/write-docs; do not edit.",
        "",
        "/**",
        f" * @typedef {{{words}}} Word",
        " * @typedef {Partial<Record<Word, number>>} Counts",
    ]
    for struct in _closure(PAGE_ANSWERS):
        lines += [" *", f" * @typedef {{object}} {struct.__name__} {struct.__doc__}"]
        for name, kind in _fields(struct):
            lines.append(f" * @property {{{_javascript(kind)}}} {f'[{name}]' if _is_optional(kind) else name}")
    return "\n".join([*lines, " */", "", "export {};", ""])


def _closure(roots: tuple[type[msgspec.Struct], ...]) -> list[type[msgspec.Struct]]:
    """Return Structs and all that they contain or extend; what a Struct needs comes before it."""
    found: dict[type[msgspec.Struct], None] = {}

    def add(struct: type[msgspec.Struct]) -> None:
        for needed in (struct.__base__, *(each for _, kind in _fields(struct) for each in _parts(kind))):
            is_struct = isinstance(needed, type) and issubclass(needed, msgspec.Struct)
            if is_struct and needed is not msgspec.Struct and needed not in found:
                add(needed)
        found[struct] = None

    for root in roots:
        add(root)
    return list(found)


def _fields(struct: type[msgspec.Struct]) -> list[tuple[str, Any]]:
    hints = get_type_hints(struct, include_extras=True)
    return [(field.encode_name, hints[field.name]) for field in msgspec.structs.fields(struct)]


def _parts(kind: Any) -> Iterator[Any]:
    """Return a type and all types in it."""
    yield kind
    for each in get_args(kind):
        yield from _parts(each)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _is_optional(kind: Any) -> bool:
    """Tell whether the key may be missing."""
    return _is_union(kind) and msgspec.UnsetType in get_args(kind)


def _python(kind: Any) -> str:
    if _is_union(kind):
        return " | ".join(_python(each) for each in get_args(kind) if each is not msgspec.UnsetType)
    if get_origin(kind) is Annotated:
        return _python(get_args(kind)[0])
    if get_origin(kind) in (list, dict):
        return f"{get_origin(kind).__name__}[{', '.join(_python(each) for each in get_args(kind))}]"
    return "None" if kind is type(None) else str(kind.__name__)


def _javascript(kind: Any) -> str:
    if _is_union(kind):
        return " | ".join(_javascript(each) for each in get_args(kind) if each is not msgspec.UnsetType)
    if kind == job_answers.Word:
        return "Word"
    if kind == job_answers.Counts:
        return "Counts"
    if get_origin(kind) is Annotated:
        return _javascript(get_args(kind)[0])
    if get_origin(kind) is list:
        item = _javascript(get_args(kind)[0])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if get_origin(kind) is dict:
        return f"Record<{', '.join(_javascript(each) for each in get_args(kind))}>"
    plain = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", Any: "unknown"}
    return plain[kind] if kind in plain else str(kind.__name__)


PAGES = {
    "lifecycle": (DOCS / "lifecycle.md", lifecycle_page),
    "settings": (DOCS / "settings.md", settings_page),
    "verbs": (DOCS / "verbs.md", verbs_page),
    "topics": (DOCS / "topics.md", topics_page),
    "errors": (DOCS / "errors.md", errors_page),
    "man": (ROOT / "src" / "man" / "dibs.1", man_page),
    "client-types": (ROOT / "src" / "dibs" / "client" / "answers.pyi", client_types),
    "page-types": (ROOT / "src" / "dibs" / "web" / "core" / "types.js", page_types),
}


def main(names: list[str]) -> None:
    """Write the pages that are named, or all."""
    for name in names or PAGES:
        path, page = PAGES[name]
        path.parent.mkdir(exist_ok=True)
        path.write_text(page())
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
