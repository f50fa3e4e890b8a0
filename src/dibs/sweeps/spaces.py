"""Build and validate a space from parameters, `zip`, `when`, `exclude` and `blocks`.

    space = spaces.build([parameters.parse(["lr", "0.1", "0.01"]), parameters.parse(["seed=range(3)"])])
    for point in grid.Points(space): ...

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dibs.errors import UserError
from dibs.sweeps import columns, conditions, grid
from dibs.sweeps.conditions import Condition
from dibs.sweeps.grid import Axis, Block, Space
from dibs.sweeps.parameters import Parameter
from dibs.sweeps.values import Value


def build(
    parameters: Sequence[Parameter],
    zips: Sequence[Sequence[str]] = (),
    when: Mapping[str, str] | None = None,
    exclude: Iterable[str] = (),
    blocks: Sequence[Sequence[Parameter]] = (),
) -> Space:
    """Return the space of these parameters.

    Each of `blocks` adds parameters to the common ones or overrides them; the space is the union of all blocks.
    """
    many = [_merged(parameters, own) for own in blocks or [()]]
    known = tuple(dict.fromkeys(one.name for block in many for one in block))
    if not known:
        raise UserError("expected at least one parameter, got none.")
    _check_zips(zips, known)
    asked = {name: _condition(text, known, f"when of {name}") for name, text in (when or {}).items()}
    for name in asked:
        _check_known(name, known, "when")
        if any(name in names for names in zips):
            raise UserError(f"`when` cannot be used for {name}, which is in a `zip`.")
    found = tuple(_block(block, zips, asked) for block in many)
    return Space(found, tuple(_condition(text, known, "exclude") for text in exclude))


def _merged(common: Sequence[Parameter], own: Sequence[Parameter]) -> list[Parameter]:
    for parameters in (common, own):
        names = [one.name for one in parameters]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(f"expected the parameter {twice} once, got it twice.")
    return list(({one.name: one for one in common} | {one.name: one for one in own}).values())


def _check_zips(zips: Sequence[Sequence[str]], known: Sequence[str]) -> None:
    names = [name for group in zips for name in group]
    for name in names:
        _check_known(name, known, "zip")
        if names.count(name) > 1:
            raise UserError(f"expected {name} once in `zip`, got it twice.")
    if any(len(group) < 2 for group in zips):
        raise UserError("expected two or more parameters in a `zip`, got one.")


def _check_known(name: str, known: Sequence[str], where: str) -> None:
    if name not in known:
        raise UserError(f"{where} uses {name}; the parameters are {', '.join(known)}.")


def _condition(text: str, known: Sequence[str], where: str) -> Condition:
    found = conditions.parse(text)
    for name in sorted(found.names):
        _check_known(name, known, f'{where}, "{text}",')
    return found


def _block(parameters: Sequence[Parameter], zips: Sequence[Sequence[str]], when: Mapping[str, Condition]) -> Block:
    here = {one.name: one for one in parameters}
    group_of = {name: tuple(group) for group in zips for name in group}
    axes: dict[tuple[str, ...], Axis] = {}
    drawn: dict[str, columns.Distribution] = {}
    for one in parameters:
        if one.name in group_of:
            group = group_of[one.name]
            axes.setdefault(group, _zipped([here[name] for name in group if name in here], group))
        elif isinstance(one.source, Sequence):
            axes[(one.name,)] = _unique(Axis((one.name,), (one.source,), one.is_for_samples))
        else:
            drawn[one.name] = one.source
    asked = {name: condition for name, condition in when.items() if name in here}
    found = Block(tuple(axes.values()), drawn, asked, tuple(here) if drawn else ())
    # Evaluate it now, so that a cycle is reported before anything is submitted.
    _ = found.conditional
    return found


def _zipped(members: Sequence[Parameter], group: tuple[str, ...]) -> Axis:
    if len(members) < len(group):
        missing = ", ".join(name for name in group if name not in {one.name for one in members})
        raise UserError(f"`zip` expected {', '.join(group)} together, but a block has no {missing}.")
    sources = [one.source for one in members if isinstance(one.source, Sequence) and not one.is_for_samples]
    if len(sources) < len(members):
        raise UserError(f"`zip` expected lists for {', '.join(group)}, got a random one.")
    sizes = {len(source) for source in sources}
    if len(sizes) > 1:
        lengths = ", ".join(f"{one.name} has {len(source)}" for one, source in zip(members, sources, strict=True))
        raise UserError(f"`zip` expected lists of one length: {lengths}.")
    return _unique(Axis(group, tuple(sources)))


def _unique(axis: Axis) -> Axis:
    """Refuse a duplicate row: the same point cannot be two runs."""
    if any(isinstance(column, columns.ComputedColumn) for column in axis.columns):
        return axis
    seen: set[str] = set()
    for row in axis:
        point = grid.Point(0, axis.names, row)
        if point.key in seen:
            shown = ", ".join(value.text for value in row)
            hint = "For repeated runs add a parameter, such as seed=range(3)."
            raise UserError(f"{', '.join(axis.names)} has the value {shown} twice.", hint)
        seen.add(point.key)
    return axis


def table(names: Sequence[str], rows: Sequence[Sequence[Value]]) -> Space:
    """Return the space of a table: one point per row."""
    return Space((Block((_unique(Axis(tuple(names), tuple(zip(*rows, strict=True)))),)),))
