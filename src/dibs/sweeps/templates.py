"""Commands with placeholders: `python train.py --lr {lr} > {dir}/log`, and GNU parallel's `{}` `{1}` `{#}`.

A template is one string for a shell, or words that reach the program unchanged. In a string every value arrives as one
whole word, whatever it contains and whether the placeholder is unquoted or in single or double quotes. Other braces are
not changed (`${HOME}`, `awk '{print $1}'`); `{{lr}}` is the literal `{lr}`.

    {lr}        the value; empty if the point has no such parameter
    {lr:raw}    without quotes, to be interpreted by the shell
    {lr:flag}   `--lr 0.1`; nothing at all if the point has no lr
    {index}     0-based index         {dir}   the run's folder, a path such as `results/{lr}-{index:03}`
    {args}      all parameters as `--lr=0.1 --bs=32`; {args:plain} `lr=0.1 bs=32`, {args:json} one JSON text,
                {args:flags} with `--fast` for true and nothing for false, {args:apart} `--lr 0.1`, and for Hydra
                {args:append} `+lr=0.1`, {args:override} `++lr=0.1`

A parameter named `index`, `dir` or `args` overrides the built-in one. Here-documents are not supported, because nothing
can be quoted in them.

    command = templates.parse("python train.py --lr {lr}")          # or a list of words
    templates.check(space.names, command, folder)                   # unknown placeholders, unused parameters
    writer = templates.Writer(command, folder)
    writer.command(point), writer.folder(point)

Pure.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dibs.errors import UserError
from dibs.model import path_templates, suggestions, units
from dibs.sweeps import grid, quoting
from dibs.sweeps.grid import Point, Points
from dibs.sweeps.quoting import Place

NAME = re.compile(r"[^\W\d][\w-]*(?:\.[\w-]+)*")
#: `{lr}`, `{lr:raw}`
NAMED = re.compile(rf"\{{(?P<name>{NAME.pattern})(?::(?P<form>[^{{}}]*))?\}}")
#: `{}`, `{2}`, `{#}`, `{.}`, `{1/.}`
NUMBERED = re.compile(r"\{(?P<name>#|[0-9]*)(?P<form>(?<!#)(?:\.|//|/\.|/))?\}")

OWN = ("index", "dir", "args")
FORMS = ("", "raw", "flag")
#: Forms of `{args}`, and what stands before each parameter.
PREFIXES = {"": "--", "plain": "", "flags": "--", "apart": "--", "append": "+", "override": "++"}
FORMS_OF_ARGS = (*PREFIXES, "json")


@dataclass(frozen=True, slots=True)
class Field:
    """A placeholder for a value."""

    name: str
    form: str = ""
    place: Place = Place.WORD
    #: The text before it would merge with an unquoted value.
    is_tight: bool = False

    @property
    def text(self) -> str:
        """Return the placeholder as written."""
        return f"{{{self.name}{':' if self.form else ''}{self.form}}}"


Piece = str | Field
Word = tuple[Piece, ...]


@dataclass(frozen=True)
class Template:
    """A command with placeholders."""

    words: tuple[Word, ...]
    #: One string for a shell; otherwise separate words.
    is_shell: bool
    #: As it was typed.
    source: str
    #: The script that it runs, if its source does not name it.
    program: str = ""

    def fields(self) -> Iterator[Field]:
        """Yield all placeholders."""
        return (piece for word in self.words for piece in word if isinstance(piece, Field))


def parse(command: str | Sequence[str]) -> Template:
    """Parse a string for the shell, or words, with placeholders such as `{lr}`."""
    return _parse(command, NAMED)


def parse_numbered(command: str | Sequence[str]) -> Template:
    """Parse GNU parallel's notation; without a placeholder, all arguments are appended."""
    found = _parse(command, NUMBERED)
    if any(found.fields()):
        return found
    return _parse(f"{command} {{}}" if isinstance(command, str) else [*command, "{}"], NUMBERED)


def _parse(command: str | Sequence[str], places: re.Pattern[str]) -> Template:
    if isinstance(command, str):
        return Template((_read_shell(command, places),), True, command)
    return Template(tuple(_read_word(word, places) for word in command), False, shlex.join(command))


def _read_word(text: str, places: re.Pattern[str]) -> Word:
    return tuple(_joined(piece if isinstance(piece, str) else _field(piece) for piece in _pieces(text, places)))


def _read_shell(text: str, places: re.Pattern[str]) -> Word:
    shell = quoting.Shell()
    found: list[Piece] = []
    for piece in _pieces(text, places):
        if isinstance(piece, re.Match) and not shell.is_escaped:
            found.append(_field(piece, *shell.place()))
        else:
            literal = piece if isinstance(piece, str) else piece[0]
            shell.read(literal)
            found.append(literal)
    return tuple(_joined(found))


def _joined(pieces: Sequence[Piece] | Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces with adjacent texts joined."""
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
        yield piece
        text = ""
    if text:
        yield text


def _pieces(text: str, places: re.Pattern[str]) -> Iterator[str | re.Match[str]]:
    """Yield texts and placeholders; doubled braces become single ones, `${` is skipped."""
    at = 0
    # Count open doubled braces: only those make a doubled closing brace single, or JSON could not end in `}}`.
    open_pairs = 0
    while at < len(text):
        if text.startswith("${", at):
            yield "${"
            at += 2
        elif places is NAMED and text.startswith("{{", at):
            yield "{"
            open_pairs += 1
            at += 2
        elif open_pairs and text.startswith("}}", at):
            yield "}"
            open_pairs -= 1
            at += 2
        elif found := places.match(text, at):
            yield found
            at = found.end()
        else:
            yield text[at]
            at += 1


def _field(found: re.Match[str], place: Place = Place.WORD, is_tight: bool = False) -> Field:
    if place is Place.BACKTICK:
        raise UserError(f"expected no {found[0]} between backticks, where quoting does not work.", "Write $(...).")
    return Field(found["name"], found["form"] or "", place, is_tight)


#: What to do about two runs with the same folder.
SAME_FOLDER = "Put every parameter that differs into --dir, or {index}."


def write_word(pieces: Sequence[Piece]) -> str:
    """Return a word of a template as text that `parse` reads back."""
    found = ""
    for piece in pieces:
        if isinstance(piece, str):
            found += NAMED.sub(lambda match: f"{{{match[0]}}}", piece)
        else:
            found += f"{{{piece.name}:{piece.form}}}" if piece.form else f"{{{piece.name}}}"
    return found


def check(names: Sequence[str], command: Template, folder: str | None = None) -> None:
    """Refuse unknown placeholders and unused parameters."""
    if folder is not None:
        path_templates.check(folder, (*names, "index"))
    for field in command.fields():
        if field.name not in names and field.name not in OWN:
            raise _unknown(field, names)
        forms = FORMS_OF_ARGS if field.name == "args" and "args" not in names else FORMS
        if field.form not in forms:
            known = " or ".join(Field(field.name, form).text for form in forms)
            raise UserError(f"expected {known} in the command, got {field.text}.", "Write {{ for a brace.")
    used = {field.name for field in command.fields()} | (path_templates.used(folder) if folder else set())
    if "dir" in used and "dir" not in names and folder is None:
        raise UserError("the command uses {dir}, but no folder is given.", "Set it with --dir 'results/{index}'.")
    if "args" in used and "args" not in names:
        return
    for name in names:
        if name not in used:
            raise UserError(
                f"the parameter {name} is not used in the command.", f"Write {{{name}}}, or {{args}} for all of them."
            )


def _unknown(field: Field, names: Sequence[str]) -> UserError:
    there = ", ".join(f"{{{name}}}" for name in names) or "none"
    # Parameters have short names: "lr" is too short for `nearest`, but only one typo away from "lrr".
    near = suggestions.nearest(field.name, names) or suggestions.one_slip(field.name, names)
    hint = f"Did you mean {{{near}}}?" if near else "Write {{ for a brace."
    return UserError(f"unknown parameter {field.text} in the command; the parameters are {there}.", hint)


def check_numbered(sources: int, command: Template) -> None:
    """Refuse a number for which there is no source of arguments."""
    for field in command.fields():
        if field.name.isdigit() and not (units.is_whole(field.name) and 1 <= int(field.name) <= sources):
            plural = "are" if sources > 1 else "is"
            raise UserError(f"unknown argument {field.text}: there {plural} {sources} of :::.", "Count from 1.")


#: Returns the words that replace a field at a point: usually one, none if the parameter is missing.
Getter = Callable[[Point], Sequence[str]]
#: Returns them as written into a string for the shell.
Written = Callable[[Point], str]


#: Returns a text as quoted for one placeholder.
Quotes = Callable[[str], str]
#: Quoted texts to remember for each placeholder: a grid has few values and many points.
MOST_QUOTED = 10_000


def _quotes(field: Field) -> Quotes:
    return lru_cache(MOST_QUOTED)(lambda text: quoting.quoted(text, field.place, field.is_tight))


class Writer:
    """Builds the commands and folders of points."""

    def __init__(self, command: Template, folder: str | None = None) -> None:
        self._command = command
        self._folder = folder
        # A missing parameter is empty in the folder too.
        self._nothing = dict.fromkeys(path_templates.used(folder), "") if folder else {}
        self._plans: dict[tuple[str, ...], tuple[str, list[tuple[int, Quotes]], list[Written]]] = {}

    def folder(self, point: Point) -> str | None:
        """Return the folder of a point; None if the runs have none."""
        if self._folder is None:
            return None
        texts = {name: value.text for name, value in zip(point.names, point.values, strict=True)}
        return path_templates.fill(self._folder, {**self._nothing, "index": point.index, **texts})

    def command(self, point: Point) -> str | tuple[str, ...]:
        """Return the command of a point: a string for the shell, or words."""
        if not self._command.is_shell:
            return tuple(word for one in self._command.words for word in self._word(one, point))
        text, simple, written = self._plans.get(point.names) or self._plan(point.names)
        if simple:
            row = point.values
            return text % tuple([quotes(row[at].text) for at, quotes in simple])
        return text % tuple([one(point) for one in written])

    def line(self, point: Point) -> str:
        """Return the command as one line to print or pipe."""
        command = self.command(point)
        return command if isinstance(command, str) else shlex.join(command)

    def lines(self, points: Points) -> Iterator[str]:
        """Yield the command of every point as one line; for a plain grid in a quarter of the time of `line`."""
        plain = self._plain(points)
        if plain is None:
            return map(self.line, points)
        text, columns = plain
        return itertools.starmap(text.format, grid.product(columns))

    def _plain(self, points: Points) -> tuple[str, list[list[str]]] | None:
        """Return a format and the texts to insert, if the points are a product of short columns in order."""
        pieces = self._command.words[0]
        fields = [piece for piece in pieces if isinstance(piece, Field)]
        block, names = points.space.blocks[0], points.space.names
        is_grid = points.is_exact and points.is_in_order and len(points.space.blocks) == 1 and block.size
        if not is_grid or not self._command.is_shell or any(len(one) > grid.FEW for one in block.axes):
            return None
        if names != tuple(one.names[0] for one in block.axes) or any(f.form or f.name not in names for f in fields):
            return None
        columns: list[list[str]] = []
        for name, one in zip(names, block.axes, strict=True):
            quotes = [_quotes(field) for field in fields if field.name == name]
            texts = [[each(value.text) for each in quotes] for value in one.columns[0]]
            # The same value may need different quoting in two places.
            if any(len({*written}) > 1 for written in texts):
                return None
            columns.append([written[0] if written else "" for written in texts])
        doubled = (piece.replace("{", "{{").replace("}", "}}") if isinstance(piece, str) else piece for piece in pieces)
        text = "".join(piece if isinstance(piece, str) else f"{{{names.index(piece.name)}}}" for piece in doubled)
        return text, columns

    def _word(self, word: Word, point: Point) -> Sequence[str]:
        match word:
            case (Field() as field,):
                return _checked(self._getter(field, point.names)(point))
            case _:
                parts = (
                    piece if isinstance(piece, str) else " ".join(self._getter(piece, point.names)(point))
                    for piece in word
                )
                return _checked(["".join(parts)])

    def _plan(self, names: tuple[str, ...]) -> tuple[str, list[tuple[int, Quotes]], list[Written]]:
        """Prepare the substitution once for all points with these names."""
        pieces = self._command.words[0]
        text = "".join("%s" if isinstance(piece, Field) else piece.replace("%", "%%") for piece in pieces)
        fields = [piece for piece in pieces if isinstance(piece, Field)]
        # Most commands contain plain values only; this path keeps a million of them fast.
        is_simple = all(field.name in names and not field.form for field in fields)
        simple = [(names.index(field.name), _quotes(field)) for field in fields] if is_simple else []
        plan = text, simple, [self._written(field, names) for field in fields]
        self._plans[names] = plan
        return plan

    def _written(self, field: Field, names: tuple[str, ...]) -> Written:
        get = self._getter(field, names)
        if field.form == "raw":
            return lambda point: "".join(get(point))
        quotes = _quotes(field)
        if field.place is Place.BARE:
            return lambda point: " ".join([quotes(word) for word in get(point)])
        return lambda point: quotes(" ".join(words)) if (words := get(point)) else ""

    def _getter(self, field: Field, names: tuple[str, ...]) -> Getter:
        if field.name in names:
            return _value_getter(field, names.index(field.name))
        match field.name:
            case "":
                return lambda point: [_shaped(value.text, field.form) for value in point.values]
            case "#":
                return lambda point: (str(point.index + 1),)
            case "index":
                return lambda point: (str(point.index),)
            case "dir":
                return lambda point: (self.folder(point) or "",)
            case "args":
                return lambda point: _arguments(point, field.form)
            case _:
                return lambda point: ()


def _value_getter(field: Field, at: int) -> Getter:
    if field.form == "flag":
        return lambda point: (f"--{field.name}", point.values[at].text)
    if field.form in SHAPES:
        return lambda point: (_shaped(point.values[at].text, field.form),)
    return lambda point: (point.values[at].text,)


def _arguments(point: Point, form: str) -> list[str]:
    if form == "json":
        return [json.dumps(point.data(), ensure_ascii=False)]
    found: list[str] = []
    for name, value in zip(point.names, point.values, strict=True):
        if form == "flags" and isinstance(value.data, bool):
            found += [f"--{name}"] if value.data else []
        elif form == "apart":
            found += [f"--{name}", value.text]
        else:
            found.append(f"{PREFIXES[form]}{name}={value.text}")
    return found


def _without_ending(path: str) -> str:
    head, slash, tail = path.rpartition("/")
    stem, dot, _ = tail.rpartition(".")
    return f"{head}{slash}{stem}" if dot and stem else path


def _folder_of(path: str) -> str:
    head, slash, _ = path.rstrip("/").rpartition("/")
    return head or ("/" if slash else ".")


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


#: GNU parallel's `{.}` `{/}` `{//}` `{/.}`.
SHAPES: dict[str, Callable[[str], str]] = {
    ".": _without_ending,
    "/": _last_part,
    "//": _folder_of,
    "/.": lambda path: _without_ending(_last_part(path)),
}


def _shaped(text: str, form: str) -> str:
    return SHAPES[form](text) if form else text


def _checked(words: Sequence[str]) -> Sequence[str]:
    for word in words:
        quoting.refuse_nul(word)
    return words
