"""Read an unmodified wandb sweep file with `method: grid`, `random` or `bayes`, which is a search by TPE.

The names are those of wandb's documentation, and the commands those that its agent would run. Beware: the bounds of
`log_uniform` are exponents; those of `log_uniform_values` are values. Features that need wandb's server are skipped,
with a note.

Pure.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from dibs.errors import UserError
from dibs.model.suggestions import inside
from dibs.sweeps import columns, nodes, parameters, spaces, templates, values
from dibs.sweeps.columns import Column, Distribution, LogUniform, Normal, Steps, Uniform, WeightedChoice
from dibs.sweeps.grid import Space
from dibs.sweeps.nodes import Node
from dibs.sweeps.parameters import Parameter
from dibs.sweeps.templates import Field, Piece, Template
from dibs.sweeps.values import Value

IGNORED = ("entity", "description", "controller")
KEYS = ("program", "method", "parameters", "run_cap", "command", "early_terminate", *IGNORED)
#: The default command of wandb.
COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
MACRO = re.compile(r"(\$\{\w+(?::\w+)?\})")
VARIABLE = re.compile(r"\$\{envvar:([A-Z0-9_]*)\}")
#: The macros for all parameters, and the forms of our placeholder `{args}`.
ARGUMENTS = {
    "args": "", "args_no_hyphens": "plain", "args_no_boolean_flags": "flags", "args_no_equals": "apart",
    "args_append_hydra": "append", "args_override_hydra": "override", "args_json": "json",
}  # fmt: skip


def space(document: Mapping[str, Node]) -> Space:
    """Return the space of a file."""
    method = nodes.plain(document["method"])
    if method not in ("grid", "random", "bayes"):
        raise UserError(f"method: expected grid, random or bayes, got {nodes.kind(document['method'])}.")
    return _space(document, method != "grid")


def is_search(document: Mapping[str, Node]) -> bool:
    """Tell whether points should be chosen from results."""
    return nodes.plain(document["method"]) == "bayes"


def early_stop(document: Mapping[str, Node]) -> str | None:
    """Return the rule of `early_terminate`; None if the file has none, or no metric to compare runs by."""
    node = document.get("early_terminate")
    if node is None or "metric" not in document:
        return None
    kind = nodes.plain(node.get("type")) if isinstance(node, Mapping) else None
    if kind != "hyperband":
        raise UserError(f"early_terminate: expected type: hyperband, got {nodes.shown(node)}.")
    return "hyperband"


def run_cap(document: Mapping[str, Node]) -> int | None:
    """Return the maximum number of runs; None if the file does not set it."""
    if "run_cap" not in document:
        return None
    try:
        return nodes.whole(document["run_cap"])
    except ValueError:
        raise UserError(f"run_cap: expected a whole number from 1 up, got {nodes.kind(document['run_cap'])}.") from None


def notes(document: Mapping[str, Node]) -> tuple[str, ...]:
    """Return notes for the user: ignored keys, and the values that exponents stand for."""
    ignored = [f"{key} is ignored" for key in IGNORED if key in document]
    if "early_terminate" in document and "metric" not in document:
        ignored.append("early_terminate is ignored: the file names no metric")
    return (*ignored, *_bounds(document))


def _space(document: Mapping[str, Node], is_random: bool) -> Space:
    node = document.get("parameters")
    if not isinstance(node, Mapping) or not node:
        raise UserError(f"parameters: expected names with values, got {nodes.kind(node)}.")
    found: list[Parameter] = []
    # As wandb does: this is the order of the arguments.
    for name, one in sorted(node.items(), key=lambda item: str(item[0])):
        with inside(f"parameters: {name}:"):
            if not isinstance(one, Mapping):
                raise UserError(f"expected values, value, or min and max, got {nodes.kind(one)}.")
            made = parameter(str(name), one, as_python=True)
            is_listed = isinstance(made.source, tuple | list | Steps)
            if not is_random and not is_listed:
                raise UserError("expected values for method: grid, got a range without steps.", "Use method: random.")
            # wandb ends a random sweep only after a number of runs.
            found.append(replace(made, is_for_samples=is_random and is_listed))
    return spaces.build(found)


def command(document: Mapping[str, Node]) -> Template:
    """Return the command of a file, with its macros as placeholders."""
    node = document.get("command", list(COMMAND))
    with inside("command:"):
        try:
            words = [nodes.text(word) for word in node] if isinstance(node, list) else []
        except ValueError:
            words = []
        if not words:
            raise UserError(f"expected a list of words, got {nodes.kind(node)}.")
        program = _program(document.get("program"))
        pieces = tuple(_word(word, program) for word in words)
        # The points of a search are made by the daemon, from the text of the template alone.
        source = shlex.join(map(templates.write_word, pieces)) if is_search(document) else " ".join(words)
        return Template(pieces, False, source, program)


def with_variables(document: Node, environ: Mapping[str, str]) -> Node:
    """Return a document with the values of the variables that the command of a wandb file names; unknown ones stay."""
    if not isinstance(document, Mapping) or "method" not in document or not isinstance(document.get("command"), list):
        return document
    words = [
        VARIABLE.sub(lambda found: environ.get(found[1], found[1]), word) if isinstance(word, str) else word
        for word in map(nodes.plain, document["command"])
    ]
    return {**document, "command": words}


def _program(node: Node) -> str:
    try:
        return "" if node is None else nodes.text(node)
    except ValueError:
        raise UserError(f"expected program to be a file, got {nodes.kind(node)}.") from None


def _word(word: str, program: str) -> tuple[Piece, ...]:
    pieces = [_macro(piece, program) if MACRO.fullmatch(piece) else piece for piece in MACRO.split(word)]
    return tuple(piece for piece in pieces if piece) or ("",)


def _macro(written: str, program: str) -> Piece:
    name = written[2:-1].partition(":")[0]
    if name in ARGUMENTS:
        return Field("args", ARGUMENTS[name])
    if name == "program":
        if not program:
            raise UserError("expected the key program, which ${program} stands for, got none.")
        return program
    if name in ("env", "interpreter"):
        return "/usr/bin/env" if name == "env" else "python"
    known = ", ".join(f"${{{one}}}" for one in ("env", "interpreter", "program", *ARGUMENTS))
    raise UserError(f'expected {known}, got "{written}".')


def _bounds(document: Mapping[str, Node]) -> list[str]:
    """Return what the exponents of `log_uniform` mean, because users rarely expect exponents."""
    found: list[str] = []
    node = document["parameters"]
    for name, one in node.items() if isinstance(node, Mapping) else ():
        if isinstance(one, Mapping) and nodes.plain(one.get("distribution")) in (
            "log_uniform",
            "q_log_uniform",
        ):
            low, high = (values.write_number(float(f"{math.exp(_number(one, key)):.4g}")) for key in ("min", "max"))
            found.append(f"{name} is drawn from {low} to {high}: the bounds of log_uniform are exponents of e")
    return found


def parameter(name: str, node: Mapping[str, Node], as_python: bool = False) -> Parameter:
    """Return the parameter described by wandb's keys; `as_python` spells values as wandb's agent does: `True`."""
    nodes.check_keys(node, ("values", "value", "min", "max", "q", "mu", "sigma", "distribution", "probabilities"))
    word = nodes.plain(node["distribution"]) if "distribution" in node else _default(node)
    reader = DISTRIBUTIONS.get(word) if isinstance(word, str) else None
    if reader is None:
        known = ", ".join(DISTRIBUTIONS)
        raise UserError(f"expected distribution to be one of {known}, got {nodes.kind(node['distribution'])}.")
    source = reader(node)
    if isinstance(source, list):
        source = [_spelled(one) for one in source] if as_python else source
        return parameters.parameter_of_list(name, source)
    return Parameter(name, source, is_for_samples=word == "int_uniform")


def _spelled(one: Value) -> Value:
    # For its YAML, 1e-5 is a text and 1.0e-5 a number.
    is_text = isinstance(one.data, str) or (isinstance(one.data, float) and "." not in one.text)
    return one if is_text else Value(one.data, str(one.data))


def _default(node: Mapping[str, Node]) -> str:
    if "values" in node:
        return "categorical"
    if "value" in node:
        return "constant"
    if "mu" in node or "sigma" in node:
        return "normal"
    ends = [nodes.plain(node.get(key)) for key in ("min", "max")]
    if None in ends:
        raise UserError(f"expected values, value, or min and max, got {nodes.shown(dict(node))}.")
    return "int_uniform" if all(isinstance(one, int) for one in ends) else "uniform"


def _number(node: Mapping[str, Node], key: str, default: float | None = None) -> float:
    data = nodes.plain(node[key]) if key in node else default
    if isinstance(data, bool) or not isinstance(data, int | float) or not math.isfinite(data):
        got = nodes.kind(node[key]) if key in node else "nothing"
        raise UserError(f"expected {key} to be a number, got {got}.")
    return data


def _ends(node: Mapping[str, Node], is_positive: bool = False, is_exponent: bool = False) -> tuple[float, float]:
    low, high = _number(node, "min"), _number(node, "max")
    if low >= high or (is_positive and low <= 0):
        above = " above 0" if is_positive else ""
        raise UserError(f"expected min{above} to be less than max, got {low:g} and {high:g}.")
    if not is_exponent:
        return low, high
    if not -700 < low < high < 700:
        raise UserError(f"expected min and max to be exponents of e, got {low:g} and {high:g}.")
    return math.exp(low), math.exp(high)


def _quantum(node: Mapping[str, Node]) -> float:
    quantum = _number(node, "q", 1.0)
    if quantum <= 0:
        raise UserError(f"expected q above 0, got {quantum:g}.")
    return quantum


def _values(node: Mapping[str, Node]) -> Column | Distribution:
    found = node.get("values")
    if not isinstance(found, list) or not found:
        raise UserError(f"expected values to be a list, got {nodes.kind(found)}.")
    choices = [nodes.value(one) for one in found]
    if "probabilities" not in node:
        return choices
    weights = nodes.plain(node["probabilities"])
    if not isinstance(weights, list) or len(weights) != len(choices) or not all(_is_weight(one) for one in weights):
        raise UserError(f"expected as many probabilities as values, got {nodes.shown(node['probabilities'])}.")
    return WeightedChoice(tuple(choices), tuple(float(str(one)) for one in weights))


def _is_weight(data: object) -> bool:
    return isinstance(data, int | float) and not isinstance(data, bool) and 0 < data < math.inf


def _whole_numbers(node: Mapping[str, Node]) -> Column:
    low, high = (_number(node, key) for key in ("min", "max"))
    if low != int(low) or high != int(high) or low > high:
        raise UserError(f"expected whole numbers for min and max, got {low:g} and {high:g}.")
    return columns.steps(Fraction(int(low)), Fraction(int(high) + 1), Fraction(1))


def _constant(node: Mapping[str, Node]) -> Column:
    if "value" not in node:
        raise UserError("expected the key value, got none.")
    return [nodes.value(node["value"])]


def _multiples(node: Mapping[str, Node]) -> Column:
    low, high = (Fraction(str(one)) for one in _ends(node))
    quantum = Fraction(str(_quantum(node)))
    first, last = math.ceil(low / quantum), math.floor(high / quantum)
    if first > last:
        raise UserError("expected a multiple of q between min and max, got none.")
    return columns.steps(first * quantum, (last + 1) * quantum, quantum)


def _normal(node: Mapping[str, Node], is_log: bool = False) -> Normal:
    deviation = _number(node, "sigma", 1.0)
    if deviation <= 0:
        raise UserError(f"expected sigma above 0, got {deviation:g}.")
    return Normal(_number(node, "mu", 0.0), deviation, None, is_log)


DISTRIBUTIONS: dict[str, Callable[[Mapping[str, Node]], Column | Distribution]] = {
    "constant": _constant,
    "categorical": _values,
    "int_uniform": _whole_numbers,
    "uniform": lambda node: Uniform(*_ends(node)),
    "q_uniform": _multiples,
    "log_uniform": lambda node: LogUniform(*_ends(node, is_exponent=True)),
    "log_uniform_values": lambda node: LogUniform(*_ends(node, is_positive=True)),
    "q_log_uniform": lambda node: LogUniform(*_ends(node, is_exponent=True), _quantum(node)),
    "q_log_uniform_values": lambda node: LogUniform(*_ends(node, is_positive=True), _quantum(node)),
    "normal": _normal,
    "q_normal": lambda node: replace(_normal(node), quantum=_quantum(node)),
    "log_normal": lambda node: _normal(node, is_log=True),
    "q_log_normal": lambda node: replace(_normal(node, is_log=True), quantum=_quantum(node)),
}
