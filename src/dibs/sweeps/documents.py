"""Interpret a sweep document as one `Sweep`: its space, its command and the options of its runs.

Every error names the file and the key. A wandb file is recognized by its key `method`.

    sweep = documents.read(document, "lr.yaml")
    sweep.check()                          # after the caller has set its own options with dataclasses.replace
    for point in sweep.points(): ...

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dibs.errors import UserError
from dibs.model import units
from dibs.sweeps import conditions, document_nodes, parameters, spaces, templates, wandb
from dibs.sweeps.document_nodes import Node
from dibs.sweeps.grid import Points, Space
from dibs.sweeps.parameters import Parameter
from dibs.sweeps.templates import Template

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
    #: Messages to the user about how the file was read.
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse a command that does not fit the parameters; call it after all options are set."""
        if self.command is None:
            raise UserError(
                "expected a command, got none.", 'Give one: dibs sweep FILE -- python train.py --lr "{lr}".'
            )
        templates.check(self.space.names, self.command, self.folder)

    def points(self) -> Points:
        """Return its points; fail if they can only be sampled and no sample size was given."""
        return Points(self.space, self.sample, self.is_shuffled, self.seed)


def read(document: Node, where: str) -> Sweep:
    """Interpret a document; `where` names its file in errors."""
    with document_nodes.inside(where):
        if not isinstance(document, Mapping):
            raise UserError(f"expected keys such as command and parameters, got {document_nodes.kind(document)}.")
        if "method" in document:
            document_nodes.check_keys(document, (*wandb.KEYS, *OPTIONS))
            found = Sweep(
                wandb.space(document),
                command=wandb.command(document),
                sample=wandb.run_cap(document),
                notes=wandb.notes(document),
            )
        else:
            document_nodes.check_keys(document, KEYS)
            found = Sweep(_space(document), command=_command(document.get("command")))
        return _with_options(found, document)


def _with_options(sweep: Sweep, document: Mapping[str, Node]) -> Sweep:
    for key, (expected, put) in OPTIONS.items():
        if key not in document:
            continue
        try:
            with document_nodes.inside(key):
                sweep = put(sweep, document[key])
        except (ValueError, OverflowError):
            raise UserError(f"{key}: expected {expected}, got {document_nodes.kind(document[key])}.") from None
    return sweep


def _truth(node: Node) -> bool:
    data = document_nodes.plain(node)
    if not isinstance(data, bool):
        raise ValueError
    return data


def _gpus(node: Node) -> str:
    found = document_nodes.text(node)
    if not re.fullmatch(r"[0-9]{1,6}(:.+)?", found):
        raise ValueError
    return found


def _goal(node: Node) -> str:
    found = GOALS.get(document_nodes.text(node))
    if found is None:
        raise ValueError
    return found


def _metric(sweep: Sweep, node: Node) -> Sweep:
    """Set the metric from `loss`, `loss=REGEX`, or a mapping with `name`, `goal` and `from`."""
    if not isinstance(node, Mapping):
        name, equals, pattern = document_nodes.text(node).partition("=")
        return replace(sweep, metric=name, metric_pattern=_pattern(pattern) if equals else None)
    # `target` is a key of wandb.
    document_nodes.check_keys(node, ("name", "goal", "from", "target"))
    return replace(
        sweep,
        metric=document_nodes.text(node.get("name")),
        metric_pattern=_pattern(document_nodes.text(node["from"])) if "from" in node else None,
        goal=_goal(node["goal"]) if "goal" in node else sweep.goal,
    )


def _pattern(found: str) -> str:
    try:
        re.compile(found)
    except re.error as error:
        raise UserError(f'expected a regular expression, got "{found}": {error}.') from None
    return found


#: Every option: the expectation for errors, and the function that sets it in a `Sweep`.
OPTIONS: dict[str, tuple[str, Callable[[Sweep, Node], Sweep]]] = {
    "name": ("a name", lambda sweep, node: replace(sweep, name=document_nodes.text(node))),
    "project": ("a name", lambda sweep, node: replace(sweep, project=document_nodes.text(node))),
    "gpus": ("a count such as 1 or 2:a100", lambda sweep, node: replace(sweep, gpus=_gpus(node))),
    "vram": (
        units.SIZE_EXAMPLE,
        lambda sweep, node: replace(sweep, vram_bytes=units.parse_size(document_nodes.text(node))),
    ),
    "time": (
        units.TIME_EXAMPLE,
        lambda sweep, node: replace(sweep, time_s=units.parse_duration(document_nodes.text(node))),
    ),
    "sample": ("a whole number from 1 up", lambda sweep, node: replace(sweep, sample=document_nodes.whole(node))),
    "shuffle": ("true or false", lambda sweep, node: replace(sweep, is_shuffled=_truth(node))),
    "seed": ("a whole number", lambda sweep, node: replace(sweep, seed=document_nodes.whole(node, -(2**63)))),
    "metric": ("a name, or a mapping with name, goal and from", _metric),
    "goal": ("minimize or maximize", lambda sweep, node: replace(sweep, goal=_goal(node))),
    "dir": ("a folder such as results/{lr}", lambda sweep, node: replace(sweep, folder=document_nodes.text(node))),
    "jobs": ("a whole number from 1 up", lambda sweep, node: replace(sweep, jobs=document_nodes.whole(node))),
    "halt": ("a whole number from 1 up", lambda sweep, node: replace(sweep, halt=document_nodes.whole(node))),
}
SPACE_KEYS = ("parameters", "zip", "when", "exclude", "blocks")
KEYS = ("command", *SPACE_KEYS, *OPTIONS)


def _command(node: Node) -> Template | None:
    """Return the command: one string for the shell, or a list of words."""
    if node is None:
        return None
    with document_nodes.inside("command"):
        try:
            found = (
                [document_nodes.text(word) for word in node] if isinstance(node, list) else document_nodes.text(node)
            )
        except ValueError:
            raise UserError(f"expected a text or a list of words, got {document_nodes.kind(node)}.") from None
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
        raise UserError(f"{key}: expected {expected}, got {document_nodes.kind(found)}.")
    return found


def _zips(document: Mapping[str, Node]) -> list[list[str]]:
    expected = "a list of lists of names"
    groups = _list(document, "zip", expected)
    # A single group may be written without the outer brackets.
    if groups and not any(isinstance(group, list) for group in groups):
        groups = [groups]
    if not all(isinstance(group, list) for group in groups):
        raise UserError(f"zip: expected {expected}, got {document_nodes.shown(groups)}.")
    return [[document_nodes.value(name).text for name in group] for group in groups if isinstance(group, list)]


def _when(document: Mapping[str, Node]) -> dict[str, str]:
    node = document.get("when", {})
    if not isinstance(node, Mapping):
        raise UserError(
            f'when: expected names with conditions such as "{conditions.EXAMPLE}", got {document_nodes.kind(node)}.'
        )
    return {str(name): _condition(one, f"when: {name}") for name, one in node.items()}


def _exclude(document: Mapping[str, Node]) -> list[str]:
    node = document.get("exclude", [])
    return [_condition(one, "exclude") for one in (node if isinstance(node, list) else [node])]


def _condition(node: Node, where: str) -> str:
    try:
        return document_nodes.text(node)
    except ValueError:
        raise UserError(
            f'{where}: expected a condition such as "{conditions.EXAMPLE}", got {document_nodes.kind(node)}.'
        ) from None


def _parameters(node: Node, where: str) -> list[Parameter]:
    if not isinstance(node, Mapping):
        raise UserError(
            f"{where}: expected names with values, such as lr: [0.1, 0.01], got {document_nodes.kind(node)}."
        )
    with document_nodes.inside(where):
        return [_parameter(str(name), one) for name, one in node.items()]


def _parameter(name: str, node: Node) -> Parameter:
    parameters.check_name(name)
    match node:
        case Mapping():
            with document_nodes.inside(name):
                return wandb.parameter(name, node)
        case list():
            return parameters.parameter_of_list(name, [document_nodes.value(one) for one in node])
        case _:
            found = document_nodes.value(node)
            call = parameters.CALL.fullmatch(found.text) if isinstance(found.data, str) else None
            made = parameters.from_call(name, call[1], call[2]) if call else None
            return made or parameters.parameter_of_list(name, [found])
