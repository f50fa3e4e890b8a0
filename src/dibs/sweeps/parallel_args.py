"""GNU parallel's notation for many jobs: `CMD {} ::: a b c`, several `:::` for all combinations, `:::+` for pairs.

    command, space = parallel_args.parse(["python", "train.py", "{1}", "{2}", ":::", "a", "b", ":::", "1", "2"])
    writer = templates.Writer(command)
    for point in grid.Points(space): writer.command(point)

The parameters are named 1, 2, ... in the order of the sources. Duplicates are allowed: `::: x x` is two jobs, as in
parallel.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from dibs.errors import UserError
from dibs.sweeps import templates, values
from dibs.sweeps.grid import Axis, Block, Space
from dibs.sweeps.templates import Template

SEPARATORS = (":::", ":::+")


def parse(words: Sequence[str]) -> tuple[Template, Space]:
    """Parse `CMD... ::: ARG... [:::|:::+ ARG...]...`; a single command word is for the shell."""
    first = next((n for n, word in enumerate(words) if word in SEPARATORS), None)
    if first is None:
        raise UserError(
            "expected ::: and the arguments after the command, got none.", "Write dibs map CMD {} ::: a b c."
        )
    if not first:
        raise UserError(f"expected a command before {words[0]}, got none.", "Write dibs map CMD {} ::: a b c.")
    sources = _sources(words[first:])
    command = templates.parse_numbered(words[0] if first == 1 else words[:first])
    templates.check_numbered(len(sources), command)
    return command, Space((Block(tuple(_axes(sources))),))


def _sources(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each separator with its arguments."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word in SEPARATORS:
            found.append((word, []))
        else:
            found[-1][1].append(word)
    for separator, arguments in found:
        if not arguments:
            raise UserError(f"expected arguments after {separator}, got none.")
    if found[0][0] == ":::+":
        raise UserError("expected ::: first, got :::+, which pairs its arguments with those before it.")
    return found


def _axes(sources: Sequence[tuple[str, list[str]]]) -> list[Axis]:
    found: list[Axis] = []
    for number, (separator, arguments) in enumerate(sources, 1):
        column = [values.Value(word, word) for word in arguments]
        if separator == ":::":
            found.append(Axis((str(number),), (column,)))
            continue
        before = found.pop()
        if len(column) != len(before):
            raise UserError(f"expected {len(before)} arguments after :::+, as many as before it, got {len(column)}.")
        found.append(Axis((*before.names, str(number)), (*before.columns, column)))
    return found
