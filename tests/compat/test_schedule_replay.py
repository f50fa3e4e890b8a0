"""The old scheduler's command lines, replayed: its recorded behaviour, and improvements (`now_...`).

A case has the arguments, the state file before (which GPUs were available; null: no file) and after, and the whole
output. `waits` instead of an exit code means that it has to wait for ever.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from old_tools import OldTools, is_watching, normal

CASES = json.loads((Path(__file__).parent.parent / "data" / "schedule_cases.json").read_text())


@pytest.fixture
def tools(bench: Bench) -> OldTools:
    return OldTools(bench)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["code"] != "waits"], ids=lambda case: f"{case['tool']}-{case['name']}"
)
def test_it_behaves_as_recorded_from_the_old_tool(tools: OldTools, case: dict[str, Any]) -> None:
    if case["before"] is not None:
        tools.set_aside(case["before"])
    done = tools.run(case["tool"], *case["words"])
    seen = (done.returncode, normal(done.stdout, case["tool"]), normal(done.stderr, case["tool"]))
    assert seen == (case["code"], normal(case["stdout"], "<PROG>"), normal(case["stderr"], "<PROG>"))
    assert (tools.state()["avail"] if tools.path.exists() else None) == case["after"]
    assert {name: (tools.folder / name).read_text() for name in case["files"]} == case["files"]
    assert tools.held() == set()


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["code"] == "waits"], ids=lambda case: f"{case['tool']}-{case['name']}"
)
def test_it_waits_where_the_old_tool_waits(tools: OldTools, case: dict[str, Any]) -> None:
    """It continues when the GPUs that were set aside are released, and is not shown as a holder before."""
    tools.set_aside(case["before"])
    with tools.started(case["tool"], *case["words"]) as call:
        wait_for(lambda: is_watching(call.process.pid) and normal(call.stdout, "") == case["stdout"])
        assert call.process.poll() is None
        assert tools.held() == set()
        assert tools.state()["avail"] == case["before"]
        busy = [str(number) for number, avail in enumerate(case["before"]) if not avail]
        assert tools.run("sch", "-r", *busy).returncode == 0
        assert call.end() == 0
        assert normal(call.stdout, "").startswith(f"{case['stdout']}GPU: ")


@pytest.mark.parametrize("words", [("echo hi",), ("-fg", "0", "echo hi")])
def test_ctrl_c_while_waiting_ends_it_as_an_interrupt(tools: OldTools, words: tuple[str, ...]) -> None:
    tools.set_aside([False, True] if "-fg" in words else [False])
    with tools.started("schedule", *words) as call:
        wait_for(lambda: is_watching(call.process.pid))
        call.send(signal.SIGINT)
        assert call.end() == -signal.SIGINT
        assert call.stderr.splitlines()[-1] == "KeyboardInterrupt"
        assert ("is waiting for GPU 0." in call.stdout) == ("-fg" in words)
