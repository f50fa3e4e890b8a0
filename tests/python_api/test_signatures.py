"""What `help`, `inspect`, IPython and Jupyter know of the functions that take options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import jedi
import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import dibs
from dibs.client import sweep_drafts
from dibs.python_api import keywords, lease, signatures, submission, sweep
from dibs.python_api.jobs import EDIT_OPTIONS
from dibs.submission import job_options

#: Each function with options: the options, the types, and keywords that are no options.
DESCRIBED: list[tuple[Callable[..., Any], Any, type, Any]] = [
    (dibs.submit, submission.OPTIONS, keywords.ManyOptions, ()),
    (dibs.submit_many, submission.OPTIONS, keywords.ManyOptions, ()),
    (dibs.Job.edit, EDIT_OPTIONS, keywords.ManyOptions, ()),
    (dibs.Executor, job_options.JOB_OPTIONS, keywords.Options, ()),
    (dibs.Executor.with_options, job_options.JOB_OPTIONS, keywords.Options, ()),
    (dibs.Sweep, sweep_drafts.OPTIONS, sweep.SweepOptions, sweep.SPACE),
    (dibs.Sweep.load, sweep_drafts.OPTIONS, sweep.SweepOptions, ()),
    (dibs.lease, lease.OPTIONS, keywords.DeviceOptions, ()),
]


@pytest.mark.parametrize(("function", "known", "types", "more"), DESCRIBED)
def test_the_signature_has_every_option_with_its_type(
    function: Callable[..., Any], known: Any, types: type, more: Any
) -> None:
    parameters = inspect.signature(function).parameters
    names = {keywords.name(option) for option in known if option not in keywords.SHELL_ONLY}
    assert names | {*more} <= parameters.keys()
    assert not [each for each in parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD]
    hints = get_type_hints(types)
    for name in (names | {*more}) & hints.keys():
        assert parameters[name].annotation == hints[name], name
    document = function.__init__.__doc__ if isinstance(function, type) else function.__doc__  # type: ignore[misc]
    assert f"    {next(iter(names - {'gpus'}))}: " in (document or "").partition(signatures.HEADING)[2]


def test_every_typed_keyword_of_a_job_is_an_option() -> None:
    """The types are written by hand, the signatures come from the table: neither has a name that the other lacks."""
    options = {keywords.name(option) for option in submission.OPTIONS if option not in keywords.SHELL_ONLY}
    assert {*get_type_hints(keywords.ManyOptions)} | {"dry_run"} == options
    of_sweep = {keywords.name(option) for option in sweep_drafts.OPTIONS if option not in keywords.SHELL_ONLY}
    assert {*get_type_hints(sweep.SweepOptions)} - {"script"} == of_sweep | sweep.SPACE.keys()


def test_help_speaks_of_keywords_and_not_of_options() -> None:
    text = inspect.getdoc(dibs.submit) or ""
    assert "gpu_ids: Use exactly these GPUs, by index or UUID. With gpus N: any N of them." in text
    assert "--" not in text.partition(signatures.HEADING)[2]


def test_the_checked_functions_have_the_signatures_of_the_standard_library() -> None:
    assert str(inspect.signature(dibs.Executor.submit)).startswith("(self, fn:")
    assert list(inspect.signature(dibs.Executor.map).parameters)[:3] == ["self", "fn", "iterables"]


@pytest.fixture(scope="module")
def completer() -> IPCompleter:
    """The completer of IPython, which Jupyter uses too."""
    shell = InteractiveShell.instance()
    shell.user_ns["dibs"] = dibs
    found = shell.Completer
    assert isinstance(found, IPCompleter)
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("dibs.sub", {"submit", "submit_many"}),
        ('dibs.submit("true", gp', {"gpus=", "gpu_ids=", "gpu_type="}),
        ('dibs.submit("true", retry_', {"retry_on="}),
        ("dibs.Executor(max_", {"max_jobs="}),
        ("dibs.Executor(ti", {"time="}),
        ("dibs.lease(time", {"timeout=", "time="}),
        ('dibs.Sweep("echo {lr}", {}, sam', {"sample="}),
    ],
)
def test_ipython_completes_names_and_keywords(completer: IPCompleter, text: str, wanted: set[str]) -> None:
    with provisionalcompleter():
        found = {each.text for each in completer.completions(text, len(text))}
    assert wanted <= found


def test_every_public_name_completes_from_its_source() -> None:
    """As editors do it: without running anything."""
    found = {each.name for each in jedi.Script("import dibs\ndibs.").complete(2, 5)}
    assert {*dibs.__all__} <= found
