"""More runs like one: the same command with other values in it, or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from dibs.errors import UserError
from dibs.model.fields import JobSpec
from dibs.sweeps import extension, templates, values
from dibs.sweeps.grid import Point
from dibs.sweeps.records import Sweep
from dibs.sweeps.values import Data, Value


def sweep(command: str, folder: str | None = None, argv: tuple[str, ...] | None = None) -> Sweep:
    return Sweep(1, "default", "fit", command, argv, folder, None, None, None, 1, 0)


def spec(command: str, params: Mapping[str, Data], index: int = 3, argv: tuple[str, ...] | None = None) -> JobSpec:
    return build.spec(command, argv=argv, params=json.dumps(params), index=index)


def commands(found: Sequence[extension.Further]) -> list[str | tuple[str, ...]]:
    return [one.command for one in found]


@pytest.mark.parametrize(
    ("template", "own", "params", "change", "expected"),
    [
        ("t {lr} {seed}", "t 0.1 0", {"lr": 0.1, "seed": 0}, {"seed": 5}, "t 0.1 5"),
        ("t {lr} {seed}", "t 1.0 0", {"lr": 1.0, "seed": 0}, {"seed": 5}, "t 1.0 5"),
        ("t {lr} {seed}", "t 1e-05 0", {"lr": 1e-5, "seed": 0}, {"seed": 5}, "t 1e-05 5"),
        ("t {lr} {seed}", "t 0.10 0", {"lr": 0.1, "seed": 0}, {"seed": 5}, "t 0.10 5"),
        ("t {fast} {seed}", "t True 0", {"fast": True, "seed": 0}, {"seed": 5}, "t True 5"),
        ("t {name:raw} '{seed}'", "t $HOME '0'", {"name": "$HOME", "seed": 0}, {"seed": 5}, "t $HOME '5'"),
        ("t {seed} {index}", "t 0 3", {"seed": 0}, {"seed": 5}, "t 5 9"),
        ("t {opt}", "t sgd", {"opt": "sgd"}, {"opt": "a b"}, "t 'a b'"),
        ("t {args}", "t --lr=0.1 --seed=0", {"lr": 0.1, "seed": 0}, {"lr": 0.2}, "t --lr=0.2 --seed=0"),
    ],
)  # fmt: skip
def test_only_changed_values_are_rewritten(
    template: str, own: str, params: dict[str, Data], change: dict[str, Data], expected: str
) -> None:
    """The others keep their spelling, which only the command has."""
    assert commands(extension.further(sweep(template), spec(own, params), [change], 9)) == [expected]


def test_argument_lists_and_folders_are_extended_too() -> None:
    model = spec("t 0 runs/0", {"seed": 0}, argv=("t", "0", "runs/0"))
    found = extension.further(
        sweep("t {seed} {dir}", "runs/{seed}", ("t", "{seed}", "{dir}")), model, [{"seed": 1}, {"seed": 2}], 9
    )
    assert commands(found) == [("t", "1", "runs/1"), ("t", "2", "runs/2")]
    assert [(one.point.index, one.folder) for one in found] == [(9, "runs/1"), (10, "runs/2")]


def test_a_command_that_does_not_match_the_parameters_is_refused() -> None:
    with pytest.raises(UserError, match="the command of run 3 is not what"):
        extension.further(sweep("t {seed}"), spec("t --other 0", {"seed": 0}), [{"seed": 1}], 9)


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(UserError, match=r'expected parameters of the run \(seed\), got "sede"'):
        extension.further(sweep("t {seed}"), spec("t 0", {"seed": 0}), [{"sede": 1}], 9)


SCALARS = st.one_of(st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), st.text(max_size=8))


@given(st.lists(SCALARS, min_size=1, max_size=4), st.integers(0, 10**6))
def test_unchanged_values_stay_whatever_they_are(row: list[Data], seed: int) -> None:
    """A run whose values have their default spelling can always be repeated."""
    names = [f"p{n}" for n in range(len(row))]
    written = [values.value_of_data(data) for data in row]
    if any("\0" in one.text for one in written):
        return
    template = templates.parse("t " + " ".join(f"{{{name}}}" for name in names) + " --seed {seed}")
    writer = templates.Writer(template)

    def line(number: int) -> str:
        command = writer.command(Point(0, (*names, "seed"), (*written, Value(number, str(number)))))
        assert isinstance(command, str)
        return command

    model = spec(line(7), {**dict(zip(names, row, strict=True)), "seed": 7})
    try:
        found = extension.further(sweep(template.source), model, [{"seed": seed}], 1)
    except UserError:
        # Two spellings of one number side by side, say 1 and 1.0: refused, never wrong.
        return
    assert commands(found) == [line(seed)]
