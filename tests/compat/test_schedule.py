"""`schedule` and `sch`: machine-wide leases with the interface of the old tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import PATIENCE_S, Bench, wait_for
from dibs.model import devices
from dibs.model.devices import Inventory
from dibs.system import users
from dibs.system.locks import Folder
from dibs_compat.schedule import arguments, sch, screen, state_file
from dibs_compat.schedule.gpu_wait import GpuRequest
from dibs_compat.schedule.gpus import Gpus
from old_tools import OldTools, is_watching

GATE = "sh -c 'echo $GPU >> began; while [ ! -e go ]; do sleep 0.01; done'"


@pytest.fixture
def tools(bench: Bench) -> OldTools:
    return OldTools(bench)


def test_without_arguments_it_prints_its_usage(tools: OldTools) -> None:
    done = tools.run("schedule")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: schedule [-h]")
    assert done.stderr.endswith("schedule: error: expected a task, or one of -i, -rg and -s\n")
    assert tools.state()["avail"] == [True] * 4


# -- order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["schedule", "sch"])
def test_calls_are_served_in_order_of_arrival(tools: OldTools, tool: str) -> None:
    tools.run("schedule", "-i", "1")
    with ExitStack() as stack:
        first = stack.enter_context(tools.started("schedule", GATE))
        tools.file("began")
        others = []
        for number in range(4):
            script = f"echo {number} >> order"
            words = (f'sh -c "{script}"',) if tool == "schedule" else ("sh", "-c", script)
            others.append(stack.enter_context(tools.started(tool, *words)))
            tools.until_waiting(number + 1)
        (tools.folder / "go").touch()
        assert [call.end() for call in (first, *others)] == [0] * 5
    assert tools.file("order") == "0\n1\n2\n3\n"


def test_a_gpu_held_by_another_command_is_waited_for_and_shown(tools: OldTools) -> None:
    tools.run("schedule", "-i", "1")
    lease = [sys.executable, "-m", "dibs", "lease", "--gpu-ids", "0", "sh", "-c", "echo ready; read line"]
    with subprocess.Popen(lease, env=tools.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        shown = tools.run("schedule", "-s").stdout
        assert "GPU: cuda0\nUser: " in shown
        assert "Task: dibs: lease\nTask PID: " in shown
        assert shown.endswith("No GPU available.\n")
        with tools.started("sch", "true") as call:
            tools.until_waiting()
            other.communicate(b"\n", PATIENCE_S)
            assert call.end() == 0


def test_every_user_sees_who_runs_what_since_when(tools: OldTools) -> None:
    with tools.started("schedule", "-fg", "1", GATE) as call:
        tools.file("began")
        pid = call.task_pid()
        lines = tools.run("sch", "-s").stdout.splitlines()
        user = users.own()
        assert lines[:5] == ["Currently used GPU:", "-------------------", "GPU: cuda1", f"User: {user}", lines[4]]
        assert lines[4] == "Task: ['sh', '-c', 'echo $GPU >> began; while [ ! -e go ]; do sleep 0.01; done']"
        assert lines[5] == f"Task PID: {pid}"
        assert lines[8:] == ["Free GPU:", "---------", "GPU 0", "GPU 2", "GPU 3"]
        entry = {name: values[1] for name, values in tools.state().items()}
        assert (entry["avail"], entry["task_pid"], entry["user"], entry["gpu_name"]) == (False, pid, user, "cuda1")


def test_a_task_of_several_gpus_is_shown_at_each(tools: OldTools) -> None:
    tools.run("sch", "-i", "3")
    with tools.started("sch", "-n", "2", "--", "sh", "-c", "echo > began; sleep 1000") as call:
        tools.file("began")
        call.task_pid()
        assert tools.run("sch", "-s").stdout.count("GPU: 0,1\n") == 2


def test_numbers_without_a_device_are_separate_slots(tools: OldTools) -> None:
    """On a machine without GPUs, and for GPUs that exist only in the state file."""
    with tools.started("schedule", "-i", "9", "-fg", "7", GATE) as call:
        assert tools.file("began") == "cuda7\n"
        call.task_pid()
        assert "GPU 7\n" not in tools.run("schedule", "-s", DIBS_DEVICES="none").stdout
    # It was killed, and its task releases the slot shortly after.
    wait_for(lambda: tools.run("schedule", "-s", DIBS_DEVICES="none").stdout.endswith("GPU 7\nGPU 8\n"))


def test_a_new_state_file_has_no_more_gpus_than_the_machine(tools: OldTools) -> None:
    assert tools.run("schedule", "-s", DIBS_DEVICES="fake:2").stdout == "Free GPU:\n---------\nGPU 0\nGPU 1\n"


def test_an_excluded_device_is_not_handed_out_by_its_number(tmp_path: Path) -> None:
    """With DIBS_DEVICES=0 on a machine with two GPUs the number 1 would be another lease than that of the device."""
    seen = Inventory(devices.pretend(2, 1)[:1], restriction="DIBS_DEVICES=0")
    assert [Gpus(seen, Folder(str(tmp_path))).fault(n) for n in (0, 1)] == [None, "left out by DIBS_DEVICES=0"]
    nothing = Gpus(Inventory(restriction="DIBS_DEVICES=none"), Folder(str(tmp_path)))
    assert (nothing.fault(1), nothing.device(1)) == (None, "1")


# -- the end of a task --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_the_exit_status_of_the_task_is_returned_on_request(tools: OldTools, script: str, code: int) -> None:
    assert tools.run("schedule", "--exit-status", f"sh -c '{script}'").returncode == code
    assert tools.run("sch", "--exit-status", "sh", "-c", script).returncode == code
    assert tools.run("sch", "sh", "-c", script).returncode == 0


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("./plain", 126)])
def test_a_task_that_cannot_be_started_has_an_exit_status(tools: OldTools, program: str, code: int) -> None:
    (tools.folder / "plain").write_text("")
    done = tools.run("schedule", "--exit-status", program)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert tools.run("schedule", program).returncode == 1


def test_leftover_processes_of_a_task_are_ended_and_named(tools: OldTools) -> None:
    with tools.started("schedule", "sh -c 'sleep 1000 & echo $! > pid'") as call:
        assert call.end() == 0
        assert f"they were ended: {tools.file('pid').strip()} sleep" in call.stderr
        assert call.living() == []
    assert tools.held() == set()


def test_the_task_has_our_streams_and_a_separate_session(tools: OldTools) -> None:
    words = tools.command("schedule", "sh -c 'read line; echo got $line; echo bad >&2; ps -o sid= -p $$'")
    done = subprocess.run(
        words, env=tools.environ, cwd=tools.folder, input="typed\n", capture_output=True, text=True, timeout=PATIENCE_S
    )
    session = [line for line in done.stdout.splitlines() if line.strip().isdigit()]
    assert "got typed\n" in done.stdout
    assert done.stderr == "bad\n"
    assert f"TASK PGID: {session[0].strip()}\n" in done.stdout


def test_both_streams_may_go_to_one_file(tools: OldTools) -> None:
    tools.run("schedule", "-o", "log", "-e", "log", "sh -c 'echo a; echo b >&2; echo c'")
    assert tools.file("log") == "a\nb\nc\n"


def test_an_invalid_command_line_truncates_no_file(tools: OldTools) -> None:
    (tools.folder / "log").write_text("dear\n")
    assert tools.run("schedule", "-o", "log", "-fg", "x", "true").returncode == 2
    assert tools.run("schedule", "-o", "log", "no 'quote").returncode == 1
    assert tools.file("log") == "dear\n"


def test_setting_the_variable_can_be_disabled(tools: OldTools) -> None:
    """For tasks that use cuda2 as an ordinal among all GPUs."""
    script = "sh -c 'echo $GPU ${CUDA_VISIBLE_DEVICES-unset} > env'"
    tools.run("schedule", "-fg", "2", script, DIBS_COMPAT_VISIBLE="keep")
    assert tools.file("env") == "cuda2 unset\n"


def test_closed_streams_do_not_matter(tools: OldTools) -> None:
    line = " ".join(tools.command("schedule", '"echo hi"'))
    done = subprocess.run(["sh", "-c", f"{line} <&- >&- 2>&-"], env=tools.environ, cwd=tools.folder, timeout=PATIENCE_S)
    assert done.returncode == 0
    assert tools.state()["avail"] == [True] * 4


# -- release ----------------------------------------------------------------------------------------------------


def test_a_gpu_in_use_is_not_released(tools: OldTools) -> None:
    with tools.started("schedule", GATE) as call:
        tools.file("began")
        pid = call.task_pid()
        for words in (("schedule", "-rg", "0"), ("sch", "-r", "0")):
            done = tools.run(*words)
            assert (done.returncode, done.stdout) == (2, "")
            assert f"GPU 0 is in use by {users.own()} (pid {pid})." in done.stderr
        assert tools.state()["avail"][0] is False
        (tools.folder / "go").touch()
        assert call.end() == 0


@pytest.mark.parametrize("words", [("schedule", "-rg", "0", "--force", "-s"), ("sch", "-r", "0", "--force", "-s")])
def test_forced_release_ends_the_task(tools: OldTools, words: tuple[str, ...]) -> None:
    with tools.started("schedule", GATE) as call:
        tools.file("began")
        call.task_pid()
        assert tools.run(*words).stdout.startswith("Free GPU:\n---------\nGPU 0\n")
        assert call.end() == -15
        assert call.living() == []


def test_forced_release_ends_what_a_killed_scheduler_left(tools: OldTools) -> None:
    with tools.started("schedule", GATE) as call:
        tools.file("began")
        pid = call.task_pid()
        call.process.kill()
        call.end()
        assert f"Task PID: {pid}\n" in tools.run("schedule", "-s").stdout, "what lives is named"
        assert tools.run("schedule", "-rg", "0", "--force").returncode == 0
        wait_for(lambda: call.living() == [])


# -- the state file -----------------------------------------------------------------------------------------------


def test_the_state_file_is_writable_for_everybody(tools: OldTools) -> None:
    tools.run("schedule", "-s")
    assert tools.path.stat().st_mode & 0o7777 == 0o777
    assert tools.path.read_text() == json.dumps(tools.state(), indent=4, sort_keys=True)
    assert [path.name for path in tools.path.parent.glob("gpu_scheduler_info*")] == ["gpu_scheduler_info"]


@pytest.mark.parametrize("kind", ["symlink", "dangling", "hardlink", "fifo", "folder"])
def test_planted_files_are_neither_followed_nor_written(tools: OldTools, kind: str) -> None:
    dear = tools.path.parent / "dear"
    dear.write_text("mine\n")
    match kind:
        case "symlink":
            tools.path.symlink_to(dear)
        case "dangling":
            tools.path.symlink_to(dear.with_name("new"))
        case "hardlink":
            tools.path.hardlink_to(dear)
        case "fifo":
            os.mkfifo(tools.path)
        case "folder":
            tools.path.mkdir()
    done = tools.run("schedule", "-o", "out", "echo hi")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith(f"schedule: cannot use the state file {tools.path}: ")
    assert (dear.read_text(), tools.file("out")) == ("mine\n", "hi\n")
    assert not dear.with_name("new").exists()
    refused = tools.run("schedule", "-i", "2")
    assert (refused.returncode, refused.stderr.count("\n")) == (125, 2)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"avail": 3}', '{"avail": [1, 2]}', "[" * 100_000, '{"avail": [true], "user": [5]', "\0"]
)
def test_a_broken_state_file_is_recreated(tools: OldTools, text: str) -> None:
    tools.path.write_text(text)
    assert tools.run("schedule", "-s").stdout == "Free GPU:\n---------\nGPU 0\nGPU 1\nGPU 2\nGPU 3\n"
    assert tools.state()["avail"] == [True] * 4


def test_the_task_of_a_dead_process_holds_nothing(tools: OldTools) -> None:
    """Left by a scheduler that was killed together with its task."""
    child = subprocess.Popen(["true"])
    child.wait()
    tools.set_aside([False, True])
    entry = {"gpu_name": "cuda0", "task": ["x"], "task_pid": child.pid, "task_start": "2026-01-01 00:00:00"}
    tools.path.write_text(json.dumps(tools.state() | {name: [value, None] for name, value in entry.items()}))
    assert tools.run("schedule", "-s").stdout == "Free GPU:\n---------\nGPU 0\nGPU 1\n"
    assert tools.state()["task_pid"] == [None, None]


def test_a_reused_pid_holds_nothing(tools: OldTools) -> None:
    entry = state_file.Entry(False, "cuda0", ("x",), os.getpid(), "2001-01-01 00:00:00", "alice")
    tools.path.write_bytes(state_file.text((entry,)))
    assert tools.run("schedule", "-s").stdout == "Free GPU:\n---------\nGPU 0\n"


def test_a_task_of_the_old_tool_is_waited_for(tools: OldTools) -> None:
    with subprocess.Popen(["sleep", "1000"]) as old:
        entry = state_file.Entry(False, "0", ("sleep", "1000"), old.pid, screen.moment(time.time()), "alice")
        tools.path.write_bytes(state_file.text((entry,)))
        assert f"User: alice\nTask: ['sleep', '1000']\nTask PID: {old.pid}\n" in tools.run("sch", "-s").stdout
        assert tools.run("sch", "-r", "0").returncode == 2
        with tools.started("sch", "true") as call:
            wait_for(lambda: is_watching(call.process.pid))
            assert "TASK" not in call.stdout
            old.kill()
            old.wait()
            assert call.end() == 0


def test_a_deleted_state_file_is_restored(tools: OldTools) -> None:
    with tools.started("schedule", "-i", "3", "2", GATE) as call:
        tools.file("began")
        call.task_pid()
        tools.path.unlink()
        (tools.folder / "go").touch()
        assert call.end() == 0
    assert tools.state()["avail"] == [True, True, False]


def test_a_gpu_set_aside_while_a_call_waits_is_not_used(tools: OldTools) -> None:
    tools.run("schedule", "-i", "1")
    with ExitStack() as stack:
        first = stack.enter_context(tools.started("schedule", GATE))
        tools.file("began")
        second = stack.enter_context(tools.started("schedule", "touch ran"))
        tools.until_waiting()
        tools.run("schedule", "-i", "1", "0")
        (tools.folder / "go").touch()
        assert first.end() == 0
        wait_for(lambda: is_watching(second.process.pid))
        assert tools.state()["avail"] == [False]
        assert not (tools.folder / "ran").exists()
        tools.run("schedule", "-rg", "0")
        assert second.end() == 0


def test_the_state_file_cannot_free_a_leased_gpu(tools: OldTools) -> None:
    tools.run("schedule", "-i", "1")
    with ExitStack() as stack:
        stack.enter_context(tools.started("schedule", GATE))
        tools.file("began")
        tools.path.write_bytes(state_file.text((state_file.FREE,)))
        second = stack.enter_context(tools.started("schedule", GATE))
        tools.until_waiting()
        assert tools.file("began") == "cuda0\n"
        (tools.folder / "go").touch()
        assert second.end() == 0
        assert tools.file("began") == "cuda0\ncuda0\n"


def test_the_end_of_a_task_keeps_entries_written_by_others(tools: OldTools) -> None:
    with tools.started("schedule", GATE) as call:
        tools.file("began")
        call.task_pid()
        tools.run("schedule", "-i", "3", "0", "2")
        (tools.folder / "go").touch()
        assert call.end() == 0
    assert tools.state()["avail"] == [False, True, False]


# -- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "options", "task"),
    [
        ("python x.py --lr 1", "", "python x.py --lr 1"),
        ("-n 2 -- x -s", "-n 2", "x -s"),
        ("-n2 --pref=[1] x -n 3", "-n2 --pref=[1]", "x -n 3"),
        ("--num 2 --st x", "--num 2 --st", "x"),
        ("-r 0 1 x y", "-r 0 1", "x y"),
        ("-r 0 --force -s", "-r 0 --release-force -s", ""),
        ("--force [1] -r 0 x", "--force [1] -r 0", "x"),
        ("--lr x", "--lr", "x"),
        ("", "", ""),
    ],
)
def test_the_task_begins_with_the_first_unknown_argument(line: str, options: str, task: str) -> None:
    assert sch.split(line.split()) == (options.split(), task.split())


def test_options_with_numbers_do_not_consume_the_task() -> None:
    words = ["-i", "4", "2", "run it", "-v"]
    assert arguments.numbers_last(words, ("-i",)) == ["run it", "-v", "-i", "4", "2"]
    assert arguments.numbers_last(["-i", "4", "--", "-i", "5"], ("-i",)) == ["-i", "4", "--", "-i", "5"]


@pytest.mark.parametrize(
    ("asked", "usable", "free", "expected"),
    [
        (GpuRequest(1), [0, 1, 2], [2], [0, 1, 2]),
        (GpuRequest(1, preferred=(2, 0)), [0, 1, 2], [1], [2, 0, 1]),
        (GpuRequest(1, forced=(2,)), [0, 1], [0, 1], []),
        (GpuRequest(2, forced=(2, 1)), [0, 1, 2], [], [2, 1]),
        (GpuRequest(2, forced=(2,)), [0, 1, 2], [1], [2, 1]),
        (GpuRequest(2, forced=(3,)), [0, 1, 2], [1], []),
    ],
)
def test_candidates_are_sorted_best_first(
    asked: GpuRequest, usable: list[int], free: list[int], expected: list[int]
) -> None:
    assert asked.candidates(usable, free) == expected


@given(st.integers(0, 10**6))
def test_durations_over_a_day_are_complete(seconds: int) -> None:
    hours, minutes, rest = map(int, screen.duration(seconds).split(":"))
    assert hours * 3600 + minutes * 60 + rest == seconds
    assert max(minutes, rest) < 60


@given(st.lists(st.tuples(st.booleans(), st.text(), st.lists(st.text()), st.integers(1, 2**31 - 1))))
def test_a_written_state_is_read_back(rows: list[tuple[bool, str, list[str], int]]) -> None:
    entries = tuple(
        state_file.FREE if avail else state_file.Entry(False, name, tuple(task), pid, name, name)
        for avail, name, task, pid in rows
    )
    assert state_file.parse(state_file.text(entries)) == entries


@given(st.binary() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
    lambda value: json.dumps({"avail": [False, True], "task": value, "task_pid": value, "user": value}).encode()
))  # fmt: skip
def test_any_content_of_the_file_is_handled(data: bytes) -> None:
    entries = state_file.parse(data)
    assert entries is None or all(isinstance(entry, state_file.Entry) for entry in entries)


def test_a_status_cannot_control_the_terminal() -> None:
    entry = state_file.Entry(False, "\x1b[2J", ("\x1b[2J",), 5, "\x1b[2J", "\x1b[2J")
    assert "\x1b" not in screen.status((entry,), {}, {}, "cuda")


def test_the_help_mentions_new_features_on_a_terminal_only(tools: OldTools) -> None:
    assert "--exit-status" not in tools.run("schedule", "-h").stdout
    assert tools.run("schedule", "-h").stderr == ""
    assert Path(tools.command("sch")[0]).exists()
