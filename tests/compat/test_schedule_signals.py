"""What ends `schedule` and `sch`, and what happens to their tasks: nothing is left behind unnamed."""

from __future__ import annotations

import os
import signal
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import pytest

from bench import Bench, wait_for
from dibs_compat.schedule.task import IGNORE_S, PATIENT_S, Step, StopSignals
from old_tools import Call, OldTools

#: A task that prints that it runs, and continues until it is killed by a signal it does not ignore.
LONG = ("sh", "-c", "echo > began; sleep 1000 & wait")
#: The same, ignoring TERM.
DEAF = ("sh", "-c", "trap '' TERM; echo > began; while :; do sleep 0.01; done")


@pytest.fixture
def tools(bench: Bench) -> OldTools:
    return OldTools(bench)


def words(tool: str, task: tuple[str, ...]) -> list[str]:
    """Return a task as the tool expects it."""
    return [f'{task[0]} {task[1]} "{task[2]}"'] if tool == "schedule" else list(task)


def run(tools: OldTools, tool: str, task: tuple[str, ...]) -> Call:
    """Return a call whose task runs."""
    tools.run("schedule", "-s")
    call = Call(tools, tools.command(tool, *words(tool, task)), {})
    tools.file("began")
    call.task_pid()
    return call


def is_all_free(tools: OldTools) -> bool:
    """Return whether nothing is held, and the next call agrees."""
    shown = tools.run("schedule", "-s").stdout
    return tools.held() == set() and shown == "Free GPU:\n---------\nGPU 0\nGPU 1\nGPU 2\nGPU 3\n"


@pytest.mark.parametrize("tool", ["schedule", "sch"])
@pytest.mark.parametrize("number", [SIGTERM, SIGHUP])
def test_sigterm_ends_the_task_and_then_the_call(tools: OldTools, tool: str, number: signal.Signals) -> None:
    call = run(tools, tool, LONG)
    call.send(number)
    assert call.end() == -number
    assert "was terminated." in call.stdout
    assert call.living() == []
    assert is_all_free(tools)


@pytest.mark.parametrize("tool", ["schedule", "sch"])
def test_a_second_sigterm_kills_the_task(tools: OldTools, tool: str) -> None:
    call = run(tools, tool, DEAF)
    call.send(SIGTERM)
    call.until("was terminated.")
    assert tools.held() == {"FAKE-0"}, "the GPU is not free while its task is dying"
    call.send(SIGTERM)
    assert call.end() == -SIGTERM
    assert "was killed." in call.stdout
    assert call.living() == []
    assert is_all_free(tools)


def test_in_schedule_one_ctrl_c_warns_and_two_end_the_task(tools: OldTools) -> None:
    call = run(tools, "schedule", LONG)
    group = call.task_pid()
    call.send(SIGINT)
    call.until(f"\nNext Ctrl-C terminate the task (PGID: {group}).\n")
    assert tools.held() == {"FAKE-0"}
    call.send(SIGINT)
    assert call.end() == 0
    assert call.stdout.endswith(f"\n\nThe task (PGID: {group}) was terminated.\n")
    assert call.living() == []
    assert is_all_free(tools)


def test_in_sch_one_ctrl_c_ends_the_task(tools: OldTools) -> None:
    call = run(tools, "sch", LONG)
    group = call.task_pid()
    call.send(SIGINT)
    assert call.end() == 0
    assert f"\nThe task (PGID: {group}) was terminated.\n\ntask: ['sh', '-c', " in call.stdout
    assert call.living() == []
    assert is_all_free(tools)


@pytest.mark.parametrize("tool", ["schedule", "sch"])
def test_repeated_ctrl_c_kills_a_task_that_does_not_end(tools: OldTools, tool: str) -> None:
    call = run(tools, tool, DEAF)

    def is_over_after_one_more() -> bool:
        if call.process.poll() is None:
            call.send(SIGINT)
        return call.process.poll() is not None

    wait_for(is_over_after_one_more)
    assert call.end() == 0
    assert call.stdout.count("was terminated.") == 1
    assert call.stdout.count("was killed.") == 1
    assert call.living() == []
    assert is_all_free(tools)


@pytest.mark.parametrize("tool", ["schedule", "sch"])
def test_the_task_of_a_killed_scheduler_keeps_its_gpu_and_is_named(tools: OldTools, tool: str) -> None:
    call = run(tools, tool, LONG)
    pid = call.task_pid()
    call.send(SIGKILL)
    assert call.end() == -SIGKILL
    assert tools.held() == {"FAKE-0"}
    assert f"Task PID: {pid}\n" in tools.run("schedule", "-s").stdout
    os.killpg(pid, SIGKILL)
    wait_for(lambda: tools.held() == set())
    assert is_all_free(tools)


def test_a_scheduler_killed_with_its_task_leaves_no_waiting_process(tools: OldTools) -> None:
    call = run(tools, "schedule", LONG)
    tools.run("schedule", "-i", "1")
    with tools.started("schedule", "true") as second:
        tools.until_waiting()
        pid = call.task_pid()
        call.send(SIGKILL)
        os.killpg(pid, SIGKILL)
        call.end()
        assert second.end() == 0


@pytest.mark.parametrize("number", [SIGINT, SIGTERM, SIGHUP, SIGKILL])
def test_a_waiting_call_leaves_the_line_on_sigterm(tools: OldTools, number: signal.Signals) -> None:
    call = run(tools, "schedule", LONG)
    tools.run("schedule", "-i", "1")
    with tools.started("schedule", "true") as second:
        tools.until_waiting()
        second.send(number)
        assert second.end() == -number
        tools.until_waiting(0)
    call.clear()


def test_nohup_is_respected(tools: OldTools) -> None:
    tools.run("schedule", "-s")
    command = ["nohup", *tools.command("schedule", "sh -c 'echo > began; while [ ! -e go ]; do sleep 0.01; done'")]
    call = Call(tools, command, {})
    tools.file("began")
    call.task_pid()
    call.send(SIGHUP)
    assert call.process.poll() is None
    (tools.folder / "go").touch()
    assert call.end() == 0


def test_the_task_does_not_get_ctrl_c(tools: OldTools) -> None:
    """It starts with SIGINT ignored, so that the scheduler alone decides."""
    script = "grep SigIgn /proc/self/status > ignored"
    assert tools.run("schedule", f"sh -c '{script}'").returncode == 0
    ignored = int(tools.file("ignored").split()[1], 16)
    assert ignored & 1 << (SIGINT - 1)
    assert not ignored & (1 << (SIGTERM - 1) | 1 << (SIGHUP - 1) | 1 << (signal.SIGPIPE - 1))


def test_the_task_has_no_blocked_signals(tools: OldTools) -> None:
    tools.run("schedule", "sh -c 'grep SigBlk /proc/self/status > blocked'")
    assert int(tools.file("blocked").split()[1], 16) == 0


def test_each_ctrl_c_has_its_effect() -> None:
    signals = StopSignals(7, Step.WARN, 30.0)
    answers = [signals.answer(SIGINT, now) for now in (0.0, 1.0, 1.0 + IGNORE_S - 0.1, 1.0 + IGNORE_S, 9.0)]
    assert answers == [None, PATIENT_S, None, 0.0, None]


def test_a_first_sigterm_has_a_grace_and_a_second_one_none() -> None:
    signals = StopSignals(7, Step.WARN, 30.0)
    assert [signals.answer(number, 0.0) for number in (SIGTERM, SIGHUP)] == [30.0, 0.0]
    assert signals.stop_signal == SIGTERM
