"""Files generated from tables in the code: pages and drawings of `docs/`, and the types of the HTTP API for the client
and the web page. Run `scripts/write-docs` after changing one of the tables.

Words after it name the pages to write; without any it writes all.
"""

from __future__ import annotations

import inspect
import keyword
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

import diagrams
import dibs
from dibs import errors
from dibs.cli import help_topics
from dibs.cli import main as cli
from dibs.cli.verbs import help as helping
from dibs.client import sweep_drafts
from dibs.http_api.schemas import job_answers, machine_answers, sweep_answers
from dibs.model import lifecycle, selectors
from dibs.python_api import keywords, signatures, submission, sweep
from dibs.submission import options
from dibs.system import settings as tables
from dibs.version import __version__

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def lifecycle_page() -> str:
    """Return the states of a job as a picture, and every transition with the event that causes it."""
    rows = [
        f"| {before.value} | {after.value} | {inspect.cleandoc(event.__doc__ or '')} |"
        for (before, event), after in lifecycle.TRANSITIONS.items()
    ]
    return "\n".join(
        [
            "# The life of a job",
            "",
            "![The states of a job and what leads from one to another](pictures/lifecycle.svg)",
            "",
            "A job that is `finished` shows its outcome instead: `done`, `failed`, `cancelled`, `timeout` or `lost`.",
            "A `paused` job keeps its GPUs and their memory, and its time limit is suspended. `dibs show ID` lists all",
            "events of a job with their times.",
            "",
            "## All transitions",
            "",
            "Written from the table in `lifecycle` by `scripts/write-docs`; do not edit.",
            "",
            "| from | to | event |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _table_rows() -> list[str]:
    """Return the tables with names, and the meaning of each key."""
    rows = []
    for table in tables.TABLES:
        rows += ["", f"## [{table.name}.NAME]", "", f"Type `dibs config set {table.name}.NAME.KEY VALUE`.", ""]
        rows += [
            "| key | meaning |",
            "|---|---|",
            *(f"| {key.name} | {key.meaning} |" for key in table.keys),
        ]
    return rows


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
            *_table_rows(),
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
            "`run`, `follow` and `log -f` exit with the code of the job's command, or:",
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
            head = ["| item | meaning |", "|---|---|"]
            rows = [part] if isinstance(part, str) else [*head, *(f"| `{a}` | {b} |" for a, b in part)]
            lines += ["", *rows]
    return "\n".join([*lines, ""])


def reference_page() -> str:
    """Return every public name of `import dibs`: its signature, what it does, and its examples."""
    lines = [
        "# Python reference",
        "",
        "Written from the docstrings by `scripts/write-docs`; do not edit. In Python: `help(dibs.submit)`.",
        "Start with [python.md](python.md) and [executor.md](executor.md). In the examples `square` is a function that",
        "returns the square of `x`; a test runs them.",
        "",
        "`**options` are the keywords of the [table](#options) at the end: the options of the command line.",
    ]
    for name in sorted(dibs.__all__, key=str.lower):
        value = getattr(dibs, name)
        if name == "__version__" or inspect.ismodule(value):
            continue
        lines += ["", f"## dibs.{name}", *_described(f"dibs.{name}", value)]
        if inspect.isclass(value):
            lines += _members(name, value)
    return "\n".join([*lines, *_options_table(), ""])


def _members(name: str, owner: type) -> Iterator[str]:
    ours = [base for base in owner.__mro__ if base.__module__.startswith("dibs.")]
    for key, each in ((key, each) for base in ours for key, each in vars(base).items()):
        if key.startswith("_") or not (callable(each) or isinstance(each, (property, classmethod))):
            continue
        shown = f"{name}.{key}" if isinstance(each, classmethod) else f"{name.lower()}.{key}"
        yield from ("", f"### {shown}")
        if isinstance(each, property):
            yield from ("", inspect.cleandoc(each.__doc__ or ""))
        else:
            yield from _described(shown, getattr(owner, key))


def _described(shown: str, value: Any) -> Iterator[str]:
    """Yield the signature, the text and the examples of a function or a class."""
    documents = [inspect.cleandoc(each.__doc__ or "") for each in (value, _maker(value)) if each]
    has_options = any(signatures.HEADING in each for each in documents)
    own = [
        each
        for each in inspect.signature(value).parameters.values()
        if each.name != "self" and not (has_options and _is_option(each))
    ]
    words = [str(each.replace(annotation=each.empty)) for each in own] + (["**options"] if has_options else [])
    kinds = [each.kind for each in own]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        words.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    yield from ("", "```text", f"{shown}({', '.join(words)})", "```")
    # What the options are is in the table.
    parts = [each.partition(f"\n{signatures.HEADING}\n")[0].partition(">>> ") for each in documents]
    for prose, _, _ in parts:
        yield from ("", prose.strip())
    for _, examples, more in parts:
        if examples:
            yield from ("", "```python", f"{examples}{more.rstrip()}", "```")


def _maker(value: Any) -> Any:
    """Return the function that makes an object of a class of ours; None if it has none of its own."""
    return vars(value).get("__init__") if isinstance(value, type) and value.__init__.__doc__ else None  # type: ignore[misc]


def _is_option(parameter: inspect.Parameter) -> bool:
    known = {*signatures.meanings_of(submission.OPTIONS), *signatures.meanings_of(sweep_drafts.OPTIONS), *sweep.SPACE}
    return parameter.kind is parameter.KEYWORD_ONLY and parameter.name in known


def _options_table() -> Iterator[str]:
    yield from ("", "## Options", "", "None means that an option is not given.", "")
    yield from ("| keyword | type | meaning |", "|---|---|---|")
    meanings = signatures.meanings_of(submission.OPTIONS)
    more = {**sweep.SPACE, **signatures.meanings_of(sweep_drafts.OPTIONS)}
    meanings |= {name: f"`Sweep`: {text}" for name, text in more.items() if name not in meanings}
    hints = {**sweep.SweepOptions.__annotations__, **keywords.ManyOptions.__annotations__}
    for name, meaning in meanings.items():
        kind = hints[name].__forward_arg__ if name in hints else "bool"
        yield _row(name, kind.removesuffix(" | None").removeprefix("keywords."), meaning)


def _row(*cells: str) -> str:
    name, kind, meaning = (cell.replace("|", "\\|") for cell in cells)
    return f"| `{name}` | `{kind}` | {meaning} |"


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
    job_answers.NamedGroups,
    machine_answers.Gpus,
    machine_answers.DrainState,
    machine_answers.Daemon,
    machine_answers.Reload,
    machine_answers.Timeline,
    machine_answers.Engines,
    machine_answers.StartScript,
    machine_answers.Sum,
    machine_answers.PersonDay,
    sweep_answers.Run,
)
PAGE_ANSWERS: tuple[type[msgspec.Struct], ...] = (
    job_answers.WholeJob,
    job_answers.Hello,
    job_answers.JobEvent,
    job_answers.ActionResult,
    machine_answers.Environments,
    machine_answers.Gpus,
    machine_answers.DrainState,
    machine_answers.Timeline,
    machine_answers.Engines,
    machine_answers.Usage,
    machine_answers.Presets,
    machine_answers.Reservations,
    job_answers.WriteTimes,
    sweep_answers.Results,
)


def client_types() -> str:
    """Return `client/answers.pyi`: the answers as TypedDicts, for programs without msgspec."""
    parts = [
        '"""Answers of the daemon. Generated from `http_api/schemas` by `scripts/write-docs`; do not edit."""',
        "from typing import Any, NotRequired, TypedDict",
    ]
    for struct in _closure(CLIENT_ANSWERS):
        if any(keyword.iskeyword(name) for name, _ in _fields(struct)):
            # A class cannot have an attribute of that name.
            keys = "".join(f'        "{name}": {_python(kind)},\n' for name, kind in _fields(struct))
            name = struct.__name__
            parts.append(f'{name} = TypedDict(\n    "{name}",\n    {{\n{keys}    }},\n)')
            continue
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
    "python-reference": (DOCS / "python-reference.md", reference_page),
    "topics": (DOCS / "topics.md", topics_page),
    "errors": (DOCS / "errors.md", errors_page),
    "man": (ROOT / "src" / "man" / "dibs.1", man_page),
    "client-types": (ROOT / "src" / "dibs" / "client" / "answers.pyi", client_types),
    "picture-life": (diagrams.PICTURES / "lifecycle.svg", diagrams.life_of_a_job),
    "picture-parts": (diagrams.PICTURES / "parts.svg", diagrams.parts),
    "picture-sharing": (diagrams.PICTURES / "sharing.svg", diagrams.sharing),
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
