"""The examples in the docstrings of public names do what they say."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import chores
import dibs
from bench import Bench


def described() -> Iterator[tuple[str, Any]]:
    """Yield every public name, and every public method of a public class."""
    for name in dibs.__all__:
        value = getattr(dibs, name)
        yield name, value
        if inspect.isclass(value):
            own = {key: each for key, each in vars(value).items() if not key.startswith("_") or key == "__init__"}
            yield from ((f"{name}.{key}", getattr(value, key)) for key, each in own.items() if callable(each) or key)


PUBLIC = [(name, value) for name, value in described() if callable(value) and name not in ("errors", "__version__")]
EXAMPLES = [(name, value) for name, value in PUBLIC if ">>>" in (value.__doc__ or "")]


@pytest.mark.parametrize(("name", "value"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_prints_what_it_says(queue: Bench, name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(queue.folder)
    dibs.submit("true", gpus=0)
    known = {"dibs": dibs, "square": chores.square, "add": chores.add}
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(value.__doc__ or ""), known, name, None, 0)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_public_function_says_what_it_does(name: str, value: Any) -> None:
    assert (inspect.getdoc(value) or "").strip()


def test_the_entrances_have_examples() -> None:
    assert {name for name, _ in EXAMPLES} >= {
        *("Executor", "Job", "JobList", "Results", "Sweep", "gpus", "job", "jobs", "lease", "report", "results"),
        *("submit", "submit_many", "params", "checkpoint_dir", "Executor.map", "Executor.submit", "Executor.attach"),
    }
