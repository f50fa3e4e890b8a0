"""Interpret a sweep document as one `Sweep`: its space, its command and the options of its runs.

Every error names the file and the key. A wandb file is recognized by its key `method`.

    sweep = documents.read(document, "lr.yaml")
    sweep.check()                          # after the caller has set its own options with dataclasses.replace
    for point in sweep.points(): ...

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dibs.errors import UserError
from dibs.model import units
from dibs.model.suggestions import inside
from dibs.sweeps import conditions, nodes, parameters, spaces, templates, wandb
from dibs.sweeps.grid import Points, Space
from dibs.sweeps.nodes import Node
from dibs.sweeps.parameters import Parameter
from dibs.sweeps.search import dimensions, early_stop, trials
from dibs.sweeps.templates import Template

#: Searches that choose points from results.
ADAPTIVE = ("tpe", "cmaes")
GOALS = {"minimize": "minimize", "min": "minimize", "maximize": "maximize", "max": "maximize"}


@dataclass(frozen=True)
class Sweep:
    """A sweep as described by a file; None where the file sets nothing."""

    space: Space
    command: Template | None = None
    name: str | None = None
    project: str | None = None
    #: In the notation of `-g`.
    gpus: str | None = None
    vram_bytes: int | None = None
    time_s: float | None = None
    sample: int | None = None
    is_shuffled: bool = False
    seed: int = 0
    #: The metric that compares runs, the pattern that finds it in the log, and whether lower or higher is better.
    metric: str | None = None
    metric_pattern: str | None = None
    goal: str | None = None
    #: The folder of a run: a path with placeholders that `templates` fills in.
    folder: str | None = None
    jobs: int | None = None
    halt: int | None = None
    #: How points are chosen (`search.trials.SAMPLERS`), and how many; the rule that stops runs early.
    search: str | None = None
    trials: int | None = None
    early_stop: str | None = None
    #: Messages to the user about how the file was read.
    notes: tuple[str, ...] = ()

    @property
    def is_adaptive(self) -> bool:
        """Tell whether its points are chosen while it runs, from the results of others."""
        return self.search in ADAPTIVE

    def check(self) -> None:
        """Refuse options that contradict each other, and a command that does not fit the parameters.

        Call it after all options are set.
        """
        self._check_search()
        if self.command is None:
            raise UserError(
                "expected a command, got none.", 'Give one: dibs sweep FILE -- python train.py --lr "{lr}".'
            )
        templates.check(self.space.names, self.command, self.folder)

    def _check_search(self) -> None:
        if self.search is None:
            if self.trials is not None:
                raise UserError("--trials needs --search.", "For a sample: --sample N.")
        elif self.trials is None:
            raise UserError("--search needs the number of runs.", "Write --trials 60.")
        elif self.sample is not None or self.is_shuffled:
            raise UserError(
                "--search cannot be combined with --sample or --shuffle.", "--trials is the number of runs."
            )
        if self.metric is None and (self.is_adaptive or self.early_stop is not None):
            what = "--early-stop" if self.early_stop is not None else "--search"
            raise UserError(f"{what} needs a metric to compare runs by.", "Write --minimize loss.")
        if self.is_adaptive:
            dimensions.Dimensions(self.space)

    def points(self) -> Points:
        """Return its points; fail if they can only be sampled and no sample size was given.

        The points of a search that learns are examples: which ones it runs depends on results.
        """
        sample = self.sample if self.search is None else self.trials
        return Points(self.space, sample, self.is_shuffled, self.seed)


def read(document: Node, where: str) -> Sweep:
    """Interpret a document; `where` names its file in errors."""
    with inside(f"{where}:"):
        if not isinstance(document, Mapping):
            raise UserError(f"expected keys such as command and parameters, got {nodes.kind(document)}.")
        if "method" in document:
            nodes.check_keys(document, (*wandb.KEYS, *OPTIONS))
            is_search = wandb.is_search(document)
            found = Sweep(
                wandb.space(document),
                command=wandb.command(document),
                sample=None if is_search else wandb.run_cap(document),
                notes=wandb.notes(document),
                search="tpe" if is_search else None,
                trials=wandb.run_cap(document) if is_search else None,
                early_stop=wandb.early_stop(document),
            )
        else:
            nodes.check_keys(document, KEYS)
            found = Sweep(_space(document), command=_command(document.get("command")))
        return _with_options(found, document)


def _with_options(sweep: Sweep, document: Mapping[str, Node]) -> Sweep:
    for key, (expected, read) in OPTIONS.items():
        if key not in document:
            continue
        try:
            with inside(f"{key}:"):
                found = read(document[key])
        except (ValueError, OverflowError):
            raise UserError(f"{key}: expected {expected}, got {nodes.kind(document[key])}.") from None
        # A metric may set several fields.
        sweep = replace(sweep, **(found if isinstance(found, dict) else {FIELDS.get(key, key): found}))
    return sweep


def _truth(node: Node) -> bool:
    data = nodes.plain(node)
    if not isinstance(data, bool):
        raise ValueError
    return data


def _gpus(node: Node) -> str:
    found = nodes.text(node)
    if not re.fullmatch(r"[0-9]{1,6}(:.+)?", found):
        raise ValueError
    return found


def _goal(node: Node) -> str:
    found = GOALS.get(nodes.text(node))
    if found is None:
        raise ValueError
    return found


def _metric(node: Node) -> dict[str, str | None]:
    """Return the fields that `loss`, `loss=REGEX`, or a mapping with `name`, `goal` and `from` sets."""
    if not isinstance(node, Mapping):
        name, equals, pattern = nodes.text(node).partition("=")
        return {"metric": name, "metric_pattern": _pattern(pattern) if equals else None}
    # `target` is a key of wandb.
    nodes.check_keys(node, ("name", "goal", "from", "target"))
    found: dict[str, str | None] = {"metric": nodes.text(node.get("name"))}
    found |= {"metric_pattern": _pattern(nodes.text(node["from"]))} if "from" in node else {}
    return found | ({"goal": _goal(node["goal"])} if "goal" in node else {})


def _one_of(node: Node, words: Sequence[str]) -> str:
    found = nodes.text(node)
    if found not in words:
        raise ValueError
    return found


def _pattern(found: str) -> str:
    try:
        re.compile(found)
    except re.error as error:
        raise UserError(f'expected a regular expression, got "{found}": {error}.') from None
    return found


#: Every option: the expectation for errors, and the reader of its value.
OPTIONS: dict[str, tuple[str, Callable[[Node], Any]]] = {
    "name": ("a name", nodes.text),
    "project": ("a name", nodes.text),
    "gpus": ("a count such as 1 or 2:a100", _gpus),
    "vram": (units.SIZE_EXAMPLE, lambda node: units.parse_size(nodes.text(node))),
    "time": (units.TIME_EXAMPLE, lambda node: units.parse_duration(nodes.text(node))),
    "sample": ("a whole number from 1 up", nodes.whole),
    "shuffle": ("true or false", _truth),
    "seed": ("a whole number", lambda node: nodes.whole(node, -(2**63))),
    "metric": ("a name, or a mapping with name, goal and from", _metric),
    "goal": ("minimize or maximize", _goal),
    "dir": ("a folder such as results/{lr}", nodes.text),
    "jobs": ("a whole number from 1 up", nodes.whole),
    "halt": ("a whole number from 1 up", nodes.whole),
    "search": (" or ".join(trials.SAMPLERS), lambda node: _one_of(node, trials.SAMPLERS)),
    "trials": ("a whole number from 1 up", nodes.whole),
    "early_stop": (" or ".join(early_stop.RULES), lambda node: _one_of(node, early_stop.RULES)),
}
#: Fields of `Sweep` with another name than their key.
FIELDS = {"vram": "vram_bytes", "time": "time_s", "shuffle": "is_shuffled", "dir": "folder"}
SPACE_KEYS = ("parameters", "zip", "when", "exclude", "blocks")
KEYS = ("command", *SPACE_KEYS, *OPTIONS)


def _command(node: Node) -> Template | None:
    """Return the command: one string for the shell, or a list of words."""
    if node is None:
        return None
    with inside("command:"):
        try:
            found = [nodes.text(word) for word in node] if isinstance(node, list) else nodes.text(node)
        except ValueError:
            raise UserError(f"expected a text or a list of words, got {nodes.kind(node)}.") from None
        if not found:
            raise UserError("expected a text or a list of words, got nothing.")
        return templates.parse(found)


def _space(document: Mapping[str, Node]) -> Space:
    if "parameters" not in document and "blocks" not in document:
        raise UserError("expected the key parameters, got none.", "Write parameters: {lr: [0.1, 0.01]}.")
    blocks = _list(document, "blocks", "a list of mappings")
    return spaces.build(
        _parameters(document.get("parameters", {}), "parameters"),
        _zips(document),
        _when(document),
        _exclude(document),
        [_parameters(block, f"blocks: {number}") for number, block in enumerate(blocks, 1)],
    )


def _list(document: Mapping[str, Node], key: str, expected: str) -> list[Node]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise UserError(f"{key}: expected {expected}, got {nodes.kind(found)}.")
    return found


def _zips(document: Mapping[str, Node]) -> list[list[str]]:
    expected = "a list of lists of names"
    groups = _list(document, "zip", expected)
    # A single group may be written without the outer brackets.
    if groups and not any(isinstance(group, list) for group in groups):
        groups = [groups]
    if not all(isinstance(group, list) for group in groups):
        raise UserError(f"zip: expected {expected}, got {nodes.shown(groups)}.")
    return [[nodes.value(name).text for name in group] for group in groups if isinstance(group, list)]


def _when(document: Mapping[str, Node]) -> dict[str, str]:
    node = document.get("when", {})
    if not isinstance(node, Mapping):
        raise UserError(f'when: expected names with conditions such as "{conditions.EXAMPLE}", got {nodes.kind(node)}.')
    return {str(name): _condition(one, f"when: {name}") for name, one in node.items()}


def _exclude(document: Mapping[str, Node]) -> list[str]:
    node = document.get("exclude", [])
    return [_condition(one, "exclude") for one in (node if isinstance(node, list) else [node])]


def _condition(node: Node, where: str) -> str:
    try:
        return nodes.text(node)
    except ValueError:
        raise UserError(
            f'{where}: expected a condition such as "{conditions.EXAMPLE}", got {nodes.kind(node)}.'
        ) from None


def _parameters(node: Node, where: str) -> list[Parameter]:
    if not isinstance(node, Mapping):
        raise UserError(f"{where}: expected names with values, such as lr: [0.1, 0.01], got {nodes.kind(node)}.")
    with inside(f"{where}:"):
        return [_parameter(str(name), one) for name, one in node.items()]


def _parameter(name: str, node: Node) -> Parameter:
    parameters.check_name(name)
    match node:
        case Mapping():
            with inside(f"{name}:"):
                return wandb.parameter(name, node)
        case list():
            return parameters.parameter_of_list(name, [nodes.value(one) for one in node])
        case _:
            found = nodes.value(node)
            call = parameters.CALL.fullmatch(found.text) if isinstance(found.data, str) else None
            made = parameters.from_call(name, call[1], call[2]) if call else None
            return made or parameters.parameter_of_list(name, [found])
