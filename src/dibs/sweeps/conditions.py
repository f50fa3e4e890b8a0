"""The conditions of `when` and `exclude`, such as `opt == 'sgd' and bs > 32`: a subset of Python's expressions.

Comparisons, `and or not in`, arithmetic, lists, and parameter names; no calls, no indexing, no side effects. A missing
parameter is neither equal to, greater than nor less than anything.

Pure.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dibs.errors import UserError

EXAMPLE = "opt == 'sgd' and bs > 32"

Values = Mapping[str, object]
Step = Callable[[Values], object]

COMPARISONS: dict[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,  # type: ignore[dict-item]
    ast.LtE: operator.le,  # type: ignore[dict-item]
    ast.Gt: operator.gt,  # type: ignore[dict-item]
    ast.GtE: operator.ge,  # type: ignore[dict-item]
    ast.In: lambda one, many: one in many,  # type: ignore[operator]
    ast.NotIn: lambda one, many: one not in many,  # type: ignore[operator]
}
ARITHMETIC: dict[type[ast.operator], Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
SIGNS: dict[type[ast.unaryop], Callable[[object], object]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,  # type: ignore[dict-item]
    ast.UAdd: operator.pos,  # type: ignore[dict-item]
}
#: As in YAML and JSON.
CONSTANTS = {"true": True, "false": False, "null": None}


class Missing:
    """The value of a parameter that a point does not have."""

    def _no(self, other: object) -> bool:
        return False

    def _stay(self, other: object = None) -> Missing:
        return self

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _no
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = _stay
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _stay
    __neg__ = __pos__ = _stay
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return False


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition."""

    text: str
    #: The parameters it uses.
    names: frozenset[str]
    _step: Step

    def holds(self, data: Values) -> bool:
        """Tell whether it is true for these parameters."""
        try:
            return bool(self._step(data))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            shown = ", ".join(f"{name} = {data.get(name)!r}" for name in sorted(self.names))
            raise UserError(f'cannot tell whether "{self.text}" holds for {shown}: {error}.') from error


def parse(text: str) -> Condition:
    """Parse a condition."""
    try:
        # Line breaks inside a YAML string have no meaning.
        tree = ast.parse(" ".join(text.split()), mode="eval")
        return Condition(text, frozenset(_names(tree.body)), _step(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f'expected a condition such as "{EXAMPLE}", got "{text}".', _hint(error)) from None


def _hint(error: BaseException) -> str:
    return str(error) if type(error) is ValueError else ""


def _names(node: ast.expr) -> set[str]:
    found = {name for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute) and (name := _dotted(one))}
    # `model.lr` is one name; `model` is not another.
    inner = {_dotted(one.value) for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return found - inner - set(CONSTANTS)


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value)}.{attr}"
        case _:
            raise ValueError("A dot may only stand in the name of a parameter.")


def _step(node: ast.expr) -> Step:
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None as value):
            return lambda data: value
        case ast.Name(id=name) if name in CONSTANTS:
            constant = CONSTANTS[name]
            return lambda data: constant
        case ast.Name() | ast.Attribute():
            name = _dotted(node)
            return lambda data: data.get(name, MISSING)
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            parts = [_step(one) for one in elts]
            return lambda data: [part(data) for part in parts]
        case ast.BoolOp(op=op, values=values):
            return _choice(isinstance(op, ast.And), [_step(one) for one in values])
        case ast.UnaryOp(op=op, operand=operand) if type(op) in SIGNS:
            sign, of = SIGNS[type(op)], _step(operand)
            return lambda data: sign(of(data))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            work, one, other = ARITHMETIC[type(op)], _step(left), _step(right)
            return lambda data: work(one(data), other(data))
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in COMPARISONS for op in ops):
            return _chain([COMPARISONS[type(op)] for op in ops], [_step(left), *map(_step, comparators)])
        case _:
            raise ValueError("Only comparisons, and, or, not, in, + - * / // %, lists and names may stand in it.")


def _choice(is_and: bool, parts: list[Step]) -> Step:
    if is_and:
        return lambda data: all(part(data) for part in parts)
    return lambda data: any(part(data) for part in parts)


def _chain(comparisons: list[Callable[[object, object], object]], parts: list[Step]) -> Step:
    def hold(data: Values) -> bool:
        found = [part(data) for part in parts]
        return all(compare(found[n], found[n + 1]) for n, compare in enumerate(comparisons))

    return hold
