"""A pytest plugin for `scripts/test`: reports what was left out, and fails for it with DIBS_TEST_STRICT=1."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

IS_STRICT = os.environ.get("DIBS_TEST_STRICT") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Turn a skipped test into a failed one."""
    report = yield
    # An expected failure is reported as skipped too, but it ran.
    if IS_STRICT and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Turn a module that skips itself into an error."""
    report = yield
    if IS_STRICT and report.skipped:
        _fail(report)
    return report


def _fail(report: Any) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"LEFT OUT ({reason}), which is a failure with DIBS_TEST_STRICT=1"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report how many tests did not run; pytest's own summary names them."""
    left_out = len(terminalreporter.getreports("skipped"))
    if left_out:
        terminalreporter.section(f"LEFT OUT: {left_out} (the reasons are below)", yellow=True, bold=True)
