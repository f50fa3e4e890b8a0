"""`import dibs`: its cost, its names, and that its modules do not hide them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dibs


def loaded(program: str) -> set[str]:
    """Return the modules a program has loaded at its end beyond those of the interpreter."""
    whole = f"import sys; before = set(sys.modules)\n{program}\nprint(*set(sys.modules) - before)"
    return {*subprocess.run([sys.executable, "-c", whole], check=True, capture_output=True, text=True).stdout.split()}


def test_importing_dibs_loads_no_other_package() -> None:
    assert loaded("import dibs") == {"dibs"}


def test_using_errors_loads_nothing_more() -> None:
    ours = {name for name in loaded("import dibs\ndibs.errors.DibsError") if name.startswith("dibs")}
    assert ours == {"dibs", "dibs.errors"}


@pytest.mark.parametrize("name", dibs.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert name in dir(dibs)
    assert hasattr(dibs, name)


def test_submodules_do_not_hide_functions() -> None:
    """`dibs.jobs` is a function for users; no module of ours may replace it."""
    program = (
        "import dibs.model.jobs\n"
        "from dibs.model.jobs import State\n"
        "assert callable(dibs.jobs), dibs.jobs\n"
        "assert State.QUEUED.value == 'queued'\n"
        "from dibs import jobs, errors\n"
        "assert callable(jobs) and errors.UserError is dibs.errors.UserError"
    )
    assert "dibs.model.jobs" in loaded(program)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dibs' has no attribute 'nonsense'"):
        _ = dibs.nonsense  # type: ignore[attr-defined]
