"""The conditions of `when` and `exclude`, such as `opt == 'sgd' and bs > 32`: a subset of Python's expressions.

Comparisons, `and or not in`, arithmetic, lists, and parameter names; no calls, no indexing, no side effects. A missing
parameter is neither equal to, greater than nor less than anything.

Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dibs.errors import UserError

EXAMPLE = "opt == 'sgd' and bs > 32"

#: The whole syntax. Without calls, attributes and items an expression can reach nothing but its parameters.
ALLOWED = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.List, ast.Tuple,
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
)  # fmt: skip
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


class _Values(dict[str, object]):
    """The parameters of a point, for the evaluation."""

    def __missing__(self, name: str) -> Missing:
        return MISSING


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition."""

    text: str
    #: The parameters it uses.
    names: frozenset[str]
    _evaluate: Callable[[_Values], object]

    def holds(self, data: Mapping[str, object]) -> bool:
        """Tell whether it is true for these parameters."""
        try:
            return bool(self._evaluate(_Values(data)))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            shown = ", ".join(f"{name} = {data.get(name)!r}" for name in sorted(self.names))
            raise UserError(f'cannot evaluate "{self.text}" for {shown}: {error}.') from error


def parse(text: str) -> Condition:
    """Parse a condition."""
    try:
        # Line breaks inside a YAML string have no meaning.
        names = _Names()
        tree = names.visit(ast.parse(" ".join(text.split()), mode="eval"))
        if not all(isinstance(node, ALLOWED) for node in ast.walk(tree)):
            raise ValueError("Only comparisons, and, or, not, in, + - * / // %, lists and names are allowed.")
        code = compile(tree, "<condition>", "eval")
        return Condition(text, frozenset(names.found), lambda values: eval(code, {"__builtins__": {}}, values))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        hint = str(error) if type(error) is ValueError else ""
        raise UserError(f'expected a condition such as "{EXAMPLE}", got "{text}".', hint) from None


class _Names(ast.NodeTransformer):
    """Collects the parameters of an expression: `model.lr` is one name, `true` is none."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in CONSTANTS:
            return ast.copy_location(ast.Constant(CONSTANTS[node.id]), node)
        self.found.add(node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str | int | float | None):
            raise ValueError("Only strings, numbers, true, false and null are allowed.")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.visit_Name(ast.copy_location(ast.Name(_dotted(node), node.ctx), node))


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value)}.{attr}"
        case _:
            raise ValueError("A dot is allowed only in the name of a parameter.")
