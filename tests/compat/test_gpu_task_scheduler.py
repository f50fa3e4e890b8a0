"""`GPUTaskScheduler`: the recorded behaviour of the old tool, without its bugs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import PATIENCE_S, wait_for
from gpu_tasks import Project, console, without_moments

SEEN = json.loads((Path(__file__).parent.parent / "data" / "gpu_task_scheduler.json").read_text())
RUNS = {case["name"]: case for case in SEEN["runs"]}

#: The main script, inside a lease.
LEASED = [sys.executable, "-m", "dibs", "lease", "--gpu-ids", "1", sys.executable, "main.py"]

MARK = ".unfinished.my_gpu_task.MyGPUTask"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project; nothing of it may be left running."""
    own = Project(tmp_path)
    yield own
    assert own.living() == []


def config(*blocks: dict[str, Any], gpus: list[Any] | None = None, **scheduler: Any) -> dict[str, Any]:
    """Return a configuration, naming only what matters."""
    return {"scheduler_config": {"gpu": gpus or ["0"], **scheduler}, "test_config": list(blocks)}


def expected(case: dict[str, Any], project: Project) -> dict[str, Any]:
    """Return the expected result of a case, with the folders of this one."""
    text = json.dumps(case["expected"]).replace("<CWD>", str(project.folder))
    return dict(json.loads(text.replace("<VENV>/bin", str(Path(sys.executable).parent))))


def files(project: Project, *but: str) -> set[str]:
    """Return the files that a run has made."""
    found = (path for path in project.folder.rglob("*") if path.is_file())
    names = {str(path.relative_to(project.folder)) for path in found}
    own = {"main.py", "config.py", "my_gpu_task.py", "pids", "stdout", "stderr", *but}
    return {name for name in names if "__pycache__" not in name and name not in own}


def check_files(project: Project, expected: dict[str, Any]) -> None:
    """Compare every file of a run with what the old tool left."""
    assert files(project) == set(expected)
    for name, content in expected.items():
        text = "" if content == "<binary>" else (project.folder / name).read_text()
        if name.endswith(".json"):
            assert {**json.loads(text), "config": content["config"]} == content
        elif name == "scheduler.log":
            assert sorted(without_moments(text).splitlines()) == sorted(content.splitlines())
        elif "<traceback>" in content:
            head, error = content.split("<traceback> ")
            assert text.startswith(f"{head}Traceback")
            assert text.rstrip().endswith(error)
        elif content != "<binary>":
            assert text == content


def test_groups_and_environment_equal_the_old_tool(project: Project) -> None:
    case = RUNS["run_groups_env"]
    wanted = expected(case, project)
    project.configure(eval(case["config"]))
    done = project.run()
    assert (done.returncode, done.stdout) == (wanted["exit"], wanted["stdout"])
    # The order in which two GPUs report is not defined.
    assert sorted(console(done)) == sorted(wanted["console_stderr_log_lines"])
    check_files(project, wanted["files"])


def test_ctrl_c_behaves_as_in_the_old_tool(project: Project) -> None:
    case = RUNS["run_sigint"]
    text = json.dumps(case).replace(",sleep-5,", ",wait-5,").replace('"sleep": 5', '"wait": 5')
    wanted = expected(json.loads(text), project)
    project.configure(config({"a": [1, 2], "wait": [5]}))
    with project.started() as scheduler:
        project.pids(1)
        scheduler.send_signal(signal.SIGINT)
        assert scheduler.wait(PATIENCE_S) == wanted["exit"]
    assert project.said("stderr")[0] == wanted["console_stderr_log_lines"][0]
    assert not any("fails" in line for line in project.said("stderr"))
    assert (project.folder / "stderr").read_text().rstrip().endswith("KeyboardInterrupt")
    mark = f"results/a-1,wait-5,/{MARK}"
    assert mark in files(project)
    (project.folder / mark).unlink()
    check_files(project, wanted["files"])


def test_every_outcome_of_a_task_is_recorded(project: Project) -> None:
    """An error, an exit code, a signal, and the tasks after them; only successful ones are done."""
    blocks = [{"a": [1], "fail": [True]}, {"a": [2], "rc": [0, 3]}, {"a": [3], "die": [9, 11]}, {"a": [4]}]
    project.configure(config(*blocks))
    done = project.run()
    assert (done.returncode, done.stdout) == (0, "MAIN DONE\n")
    results = project.folder / "results"
    assert console(done) == [
        "<TIME> INFO gpu0 receives task a-1,fail-True,",
        f"<TIME> ERROR gpu0 fails task a-1,fail-True,: exit code 1, see {results}/a-1,fail-True,/worker.log",
        "<TIME> INFO gpu0 receives task a-2,rc-0,",
        "<TIME> INFO gpu0 finishes task a-2,rc-0,",
        "<TIME> INFO gpu0 receives task a-2,rc-3,",
        f"<TIME> ERROR gpu0 fails task a-2,rc-3,: exit code 3, see {results}/a-2,rc-3,/worker.log",
        "<TIME> INFO gpu0 receives task a-3,die-9,",
        f"<TIME> ERROR gpu0 fails task a-3,die-9,: ended by SIGKILL, see {results}/a-3,die-9,/worker.log",
        "<TIME> INFO gpu0 receives task a-3,die-11,",
        f"<TIME> ERROR gpu0 fails task a-3,die-11,: ended by SIGSEGV, see {results}/a-3,die-11,/worker.log",
        "<TIME> INFO gpu0 receives task a-4,",
        "<TIME> INFO gpu0 finishes task a-4,",
        "<TIME> INFO gpu0 finished",
    ]
    assert done.stderr.endswith(
        "gpu_task_scheduler: 4 of 6 tasks failed and will run again next time: "
        "a-1,fail-True, a-2,rc-3, a-3,die-9, a-3,die-11,\n"
    )
    assert "\nValueError: as asked\n" in project.log("a-1,fail-True,")
    again = console(project.run())
    assert sum(" fails " in line for line in again) == 4
    assert [line.split()[-1] for line in again if " skips " in line] == ["a-2,rc-0,", "a-4,"]


def test_failures_raise_on_request(project: Project) -> None:
    project.configure(config({"a": [1], "fail": [True]}))
    done = project.run(GPU_TASK_EXIT_STATUS="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "1 of 1 tasks failed and will run again next time: a-1,fail-True," in done.stderr.splitlines()[-1]
    project.write(
        "asks.py",
        "import main_parts\n"
        "from gpu_task_scheduler.gpu_task_scheduler import TasksFailed\n"
        "try:\n    main_parts.scheduler.start(raise_on_failure=True)\n"
        "except TasksFailed as error:\n"
        "    report = error.report\n"
        "    print(report.finished, report.skipped, [(one.name, one.why) for one in report.failed])\n",
    )
    project.write("main_parts.py", (project.folder / "main.py").read_text().partition("scheduler.start")[0])
    assert project.run("asks.py").stdout == "0 0 [('a-1,fail-True,', 'exit code 1')]\n"


def test_a_finished_folder_of_the_old_tool_counts_as_done(project: Project) -> None:
    (project.folder / "results" / "a-1,").mkdir(parents=True)
    project.configure(config({"a": [1]}, gpus=["0", "1"]))
    assert console(project.run()) == [
        "<TIME> INFO gpu0 receives task a-1,",
        "<TIME> INFO gpu0 skips task a-1,",
        "<TIME> INFO gpu0 finished",
        "<TIME> INFO gpu1 finished",
    ]
    assert list((project.folder / "results" / "a-1,").iterdir()) == []


def test_finished_tasks_are_skipped_without_waiting_for_a_gpu(project: Project) -> None:
    project.configure(config({"a": [1]}))
    project.run()
    from dibs.leases import device_lease

    for lease in (taken := device_lease.take(project.place, ["0"], device_lease.Note())):
        assert project.held("0") == {lease.device}
    assert console(project.run())[1] == "<TIME> INFO gpu0 skips task a-1,"
    for lease in taken:
        lease.close()


def test_a_forced_run_repeats_a_task_and_truncates_the_log(project: Project) -> None:
    project.configure(config({"a": [1]}, force_rerun=True))
    for _ in range(2):
        assert console(project.run())[1] == "<TIME> INFO gpu0 finishes task a-1,"
    assert project.log("a-1,") == "err line\nhello 1\n"


def test_both_logs_can_be_disabled(project: Project) -> None:
    project.configure(config({"a": [1]}, log_file=None, scheduler_log_file_path=None))
    done = project.run()
    assert console(done)[-1] == "<TIME> INFO gpu0 finished"
    # Without a file the console has the times of the file.
    assert done.stderr[:5].rstrip(",").isalpha() or done.stderr[3] == ","
    assert files(project) == {"results/a-1,/out.json", "temp/gpu0_worker.pkl"}


def test_every_option_and_relative_folders_are_supported(project: Project) -> None:
    keys = {
        "result_root_folder": "../elsewhere",
        "temp_folder": "scratch",
        "log_file": "out.txt",
        "scheduler_log_file_path": "all.log",
        "test_config_string_indicator": "=",
        "test_config_string_separator": ";",
        "ignored_keys_for_folder_name": ["hidden"],
    }
    project.configure(config({"a": [1], "hidden": [2]}, **keys))
    assert project.run().returncode == 0
    folder = project.folder.parent / "elsewhere" / "a=1;"
    seen = json.loads((folder / "out.json").read_text())
    assert (seen["work_dir"], seen["argv"][1]) == ("../elsewhere/a=1;", "scratch/gpu0_worker.pkl")
    assert (folder / "out.txt").read_text() == "err line\nhello 1\n"
    assert project.said("all.log")[0].endswith("INFO gpu0 receives task a=1;hidden=2;")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("config['global_config'] = {'f': lambda: 1}", "its configuration cannot be pickled"),
        ("config['test_config'][0]['env'] = [{'EXTRA': 5}]", "exit code 1"),
        ("config['test_config'][0]['env'] = [{5: 'x'}]", "exit code 1"),
        ("config['test_config'][0]['env'] = [3]", "exit code 1"),
    ],
    ids=["lambda", "a number", "no name", "no dictionary"],
)
def test_what_crashed_the_old_worker_is_a_failed_task_and_the_next_one_runs(
    project: Project, text: str, why: str
) -> None:
    project.configure(f"config = {config({'a': [1]}, {'a': [2]})!r}\n{text}\n")
    done = project.run()
    assert done.returncode == 0
    failed = [line for line in console(done) if " fails task a-1," in line]
    assert len(failed) == 1
    assert why in failed[0]
    assert [line for line in console(done) if " task a-2," in line][-1].split()[2:4] == (
        ["gpu0", "fails"] if "lambda" in text else ["gpu0", "finishes"]
    )


def test_a_class_defined_in_the_script_runs_the_script_once(project: Project) -> None:
    own = (project.folder / "my_gpu_task.py").read_text()
    script = own + (project.folder / "main.py").read_text().replace("from my_gpu_task import MyGPUTask\n", "")
    project.configure(config({"a": [1, 2], "thing": [0]}))
    project.write(
        "whole.py",
        script.replace("scheduler = ", "class Thing: pass\nconfig['global_config'] = {'x': Thing}\nscheduler = "),
    )
    done = project.run("whole.py")
    assert done.stdout == "MAIN DONE\n"
    assert [line.split()[3] for line in console(done)] == ["receives", "finishes", "receives", "finishes", "finished"]
    assert project.log("a-1,thing-0,") == "err line\nhello 1\n"


def test_a_script_may_have_two_schedulers_with_its_own_classes(project: Project) -> None:
    project.write("config.py", "config = {'scheduler_config': {'gpu': ['0'], 'force_rerun': True}}\n")
    project.write(
        "two.py",
        "from config import config\n"
        "from gpu_task_scheduler.gpu_task import GPUTask\n"
        "from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n"
        "class First(GPUTask):\n    def main(self): print('first')\n"
        "GPUTaskScheduler(config, First).start()\nprint(open('results/worker.log').read(), end='')\n"
        "class Second(GPUTask):\n    def main(self): print('second')\n"
        "GPUTaskScheduler(config, Second).start()\nprint(open('results/worker.log').read(), end='')\n",
    )
    done = project.run("two.py")
    assert done.stdout == "first\nsecond\n", done.stderr
    # The script is read again for the second; the output of the first is only in the log.
    assert project.folder.joinpath("results/worker.log").read_text() == "second\n"


def test_a_class_given_by_name_is_imported_only_in_tasks(project: Project) -> None:
    own = (project.folder / "my_gpu_task.py").read_text()
    project.write("my_gpu_task.py", f"import os\nopen('imported', 'a').write(f'{{os.getpid()}}\\n')\n{own}")
    text = (project.folder / "main.py").read_text()
    text = text.replace("from my_gpu_task import MyGPUTask\n", "import os\n").replace(
        "=MyGPUTask", "='my_gpu_task:MyGPUTask'"
    )
    project.write("main.py", text.replace("MAIN DONE", "', os.getpid(), '"))
    project.configure(config({"a": [1, 2]}))
    done = project.run()
    importers = (project.folder / "imported").read_text().split()
    assert len(importers) == 2
    assert done.stdout.split()[0] not in importers
    assert project.log("a-2,") == "err line\nhello 2\n"


@pytest.mark.parametrize("given", ["'nothing'", "':X'", "'m:'", "3"])
def test_a_value_that_is_no_class_is_refused(project: Project, given: str) -> None:
    project.configure(config({"a": [1]}))
    project.write("main.py", (project.folder / "main.py").read_text().replace("=MyGPUTask", f"={given}"))
    done = project.run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        'ValueError: gpu_task_class expected a class or "module:Class", got '
    )
    assert not (project.folder / "results").exists()


def test_a_module_that_cannot_be_imported_fails_its_tasks_with_the_error_in_their_logs(project: Project) -> None:
    project.configure(config({"a": [1, 2]}))
    project.write("main.py", (project.folder / "main.py").read_text().replace("=MyGPUTask", "='no_such:Task'"))
    done = project.run()
    assert [line.split()[3] for line in console(done)] == ["receives", "fails", "receives", "fails", "finished"]
    assert project.log("a-1,").endswith("ModuleNotFoundError: No module named 'no_such'\n")


def test_leftover_processes_of_a_task_are_ended_and_named(project: Project) -> None:
    project.write(
        "my_gpu_task.py",
        "import subprocess\nfrom gpu_task_scheduler.gpu_task import GPUTask\n"
        "class MyGPUTask(GPUTask):\n    def main(self):\n"
        "        subprocess.Popen(['sleep', '1000'], start_new_session=True)\n",
    )
    project.configure(config({"a": [1]}))
    done = project.run()
    assert "gpu_task_scheduler: a-1, left processes running, now stopped: " in done.stderr
    assert project.living() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_everything_and_the_rest_runs_next_time(project: Project, number: signal.Signals) -> None:
    project.configure(config({"a": [1, 2, 3], "wait": [1]}, gpus=["0", "1"]))
    with project.started() as scheduler:
        project.pids(2)
        scheduler.send_signal(number)
        assert scheduler.wait(PATIENCE_S) == -number
        # At once: when the scheduler is gone, everything is.
        assert project.living() == []
        assert project.held("0", "1") == set()
    project.go()
    done = project.run()
    assert sum(" finishes " in line for line in console(done)) == 3


def test_a_second_ctrl_c_kills_tasks_that_ignore_the_first(project: Project) -> None:
    deaf = "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n        print("
    text = (project.folder / "my_gpu_task.py").read_text()
    project.write("my_gpu_task.py", text.replace("print(", deaf, 1))
    project.configure(config({"a": [1], "wait": [1]}))
    with project.started() as scheduler:
        project.pids(1)
        scheduler.send_signal(signal.SIGINT)
        # The first one is handled, not just pending: two at once would be one.
        wait_for(lambda: "over" if _has_answered(scheduler.pid) else "")
        scheduler.send_signal(signal.SIGINT)
        assert scheduler.wait(PATIENCE_S) == -signal.SIGINT
        assert project.living() == []


def _has_answered(pid: int) -> bool:
    """Return whether a process has no pending signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return all(int(line.split()[1], 16) == 0 for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


def test_if_the_scheduler_is_killed_its_tasks_end(project: Project) -> None:
    project.configure(config({"a": [1, 2, 3], "wait": [1]}, gpus=["0", "1"]))
    with project.started() as scheduler:
        project.pids(2)
        scheduler.kill()
        scheduler.wait(PATIENCE_S)
        project.until_gone()
    assert project.held("0", "1") == set()
    project.go()
    assert sum(" finishes " in line for line in console(project.run())) == 3


def _parent(pid: int) -> int:
    from dibs.system import processes

    proc = processes.look(pid)
    assert proc is not None
    return proc.ppid


@pytest.mark.parametrize("who", ["task", "parent", "foreman"])
def test_whichever_process_is_killed_no_task_is_lost(project: Project, who: str) -> None:
    """The task, its supervisor, or the process that starts all of them."""
    project.configure(config({"a": [1, 2, 3], "wait": [1]}, gpus=["0"]))
    with project.started() as scheduler:
        (pid,) = project.pids(1)
        victim = {"task": pid, "parent": _parent(pid), "foreman": _parent(_parent(pid))}[who]
        assert _parent(_parent(_parent(pid))) == scheduler.pid
        os.kill(victim, signal.SIGKILL)
        project.pids(2)
        project.go()
        assert scheduler.wait(PATIENCE_S) == 0
        assert project.living() == []
    why = {
        "task": "ended by SIGKILL",
        "parent": "its supervising process was killed",
        "foreman": "the process that started it was killed",
    }[who]
    said = project.said()
    assert f"gpu0 fails task a-1,wait-1,: {why}, see " in said[1]
    assert [line.split()[-1] for line in said if " finishes " in line] == ["a-2,wait-1,", "a-3,wait-1,"]
    assert [line.split()[-1] for line in console(project.run()) if " finishes " in line] == ["a-1,wait-1,"]


def test_tasks_hold_leases_of_their_gpus_and_wait_for_those_of_others(project: Project) -> None:
    project.configure(config({"a": [1], "wait": [1]}, gpus=[["0", "1"]]))
    project.configure(config({"a": [2]}, gpus=["1"]), "config2.py")
    project.write("main2.py", (project.folder / "main.py").read_text().replace("from config", "from config2"))
    with project.started() as first:
        project.pids(1)
        assert project.held("0", "1", "2") == {"0", "1"}
        with project.started("main2.py") as second:
            wait_for(project.waiting)
            wait_for(lambda: "waiting for 1: " in (project.folder / "stderr").read_text())
            assert not (project.folder / "results" / "a-2,").exists()
            project.go()
            assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
    assert project.seen("a-2,")["cvd"] == "1"


def test_inside_a_lease_a_scheduler_uses_the_leased_gpu(project: Project) -> None:
    """Otherwise it would deadlock."""
    project.configure(config({"a": [1, 2]}, gpus=["1"]))
    project.write("leased.py", f"import os, sys; os.execv(sys.executable, {LEASED!r})")
    done = project.run("leased.py", DIBS_DEVICES="fake:2")
    assert (done.returncode, done.stdout) == (0, "MAIN DONE\n")
    assert not any("waiting" in line for line in project.said())


def test_an_id_given_twice_is_two_slots_with_one_lease(project: Project) -> None:
    project.configure(config({"a": [1, 2], "wait": [1]}, gpus=["0", "0"]))
    with project.started() as scheduler:
        project.pids(2)
        project.go()
        assert scheduler.wait(PATIENCE_S) == 0


def test_two_schedulers_in_one_folder_run_each_task_once(project: Project) -> None:
    project.configure(config({"a": list(range(6)), "wait": [1]}, gpus=["0"]))
    other = (project.folder / "config.py").read_text().replace("['0']", "['1']")
    project.write("config2.py", other)
    project.write("main2.py", (project.folder / "main.py").read_text().replace("from config", "from config2"))
    with project.started() as first, project.started("main2.py") as second:
        project.pids(2)
        project.go()
        assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
    said = project.said()
    assert sorted(line.split()[-1] for line in said if " finishes " in line) == [f"a-{a},wait-1," for a in range(6)]
    assert sum(" skips " in line for line in said) == 6


def test_two_schedulers_in_one_process_log_everything_once_in_their_own_logs(project: Project) -> None:
    project.configure(config({"a": [1]}, gpus=["0"], scheduler_log_file_path="one.log"))
    project.write(
        "threads.py",
        "import threading\nfrom config import config\nfrom my_gpu_task import MyGPUTask\n"
        "from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n"
        "other = {'test_config': [{'a': [2]}]}\n"
        "other['scheduler_config'] = {'gpu': ['1'], 'scheduler_log_file_path': 'two.log'}\n"
        "threads = [threading.Thread(target=GPUTaskScheduler(one, MyGPUTask).start) for one in (config, other)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n",
    )
    done = project.run("threads.py")
    assert done.returncode == 0
    assert len(console(done)) == 6
    assert [line.split()[-1] for line in project.said("one.log")] == ["a-1,", "a-1,", "finished"]
    assert [line.split()[-1] for line in project.said("two.log")] == ["a-2,", "a-2,", "finished"]


def test_start_gpu_task_reruns_a_task_from_its_files(project: Project) -> None:
    project.configure(config({"a": [1]}))
    project.run()
    words = [str(word) for word in project.seen("a-1,")["argv"]]  # type: ignore[attr-defined]
    import subprocess

    again = subprocess.run(words, cwd=project.folder, env=project.environ, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (0, "hello 1\n")
    short = subprocess.run(words[:2], cwd=project.folder, env=project.environ, capture_output=True, text=True)
    assert (short.returncode, short.stderr) == (
        1,
        "start_gpu_task: expected PKL MODULE MODULE_PATH CWD, got 1 words.\n",
    )


def test_a_folder_that_cannot_be_created_is_a_failed_task(project: Project) -> None:
    project.configure(config({"a": ["x" * 300, "y"]}, config_string_value_maxlen=1000))
    said = console(project.run())
    assert [line.split()[3] for line in said] == ["receives", "fails", "receives", "finishes", "finished"]
    assert "its folder: [Errno 36] File name too long: " in said[1]


# -- libraries that allocate GPU memory

#: A library that uses every GPU it can see when it is imported, as some do.
GREEDY = """
import os, sys
seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all of them")
with open("occupied", "a") as file:
    file.write(f"{os.path.basename(sys.argv[0])}: {seen}\\n")
"""


def occupied(project: Project) -> list[str]:
    """Return which GPUs the greedy library used, and where it was imported."""
    return sorted((project.folder / "occupied").read_text().splitlines())


SCHEDULER_FIRST = (
    "from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\nfrom my_gpu_task import MyGPUTask\n"
)
#: As the documents of the old tool have it.
TASK_FIRST = "from my_gpu_task import MyGPUTask\nfrom gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler\n"


@pytest.mark.parametrize("given", ["", "5"])
@pytest.mark.parametrize(
    ("imports", "task"),
    [(SCHEDULER_FIRST, "import greedy\n{}"), (TASK_FIRST, "{}\nimport greedy\n")],
    ids=["scheduler first", "task first"],
)
def test_a_library_imported_by_the_task_module_uses_no_gpu_in_the_scheduler(
    project: Project, imports: str, task: str, given: str
) -> None:
    project.write("greedy.py", GREEDY)
    project.write("my_gpu_task.py", task.format((project.folder / "my_gpu_task.py").read_text()))
    project.write(
        "main.py",
        f"import os\n{imports}from config import config\n"
        "GPUTaskScheduler(config, MyGPUTask).start()\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'))\n",
    )
    project.configure(config({"a": [1, 2], "env": [{}, {"EXTRA": "x"}]}))
    done = project.run(**({"CUDA_VISIBLE_DEVICES": given} if given else {}))
    assert done.stdout == f"{given or None}\n"
    # Two of the four tasks request variables: it is imported once to ask them and once with these variables.
    assert occupied(project) == ["main.py: "] + ["start_gpu_task: 0"] * 6


def test_variables_requested_by_a_task_are_set_before_its_libraries_are_imported(project: Project) -> None:
    project.write("greedy.py", GREEDY.replace("CUDA_VISIBLE_DEVICES", "EXTRA"))
    project.write("my_gpu_task.py", "import greedy\n" + (project.folder / "my_gpu_task.py").read_text())
    project.configure(config({"a": [1], "env": [{"EXTRA": "x"}]}))
    project.run()
    assert occupied(project)[-1] == "start_gpu_task: x"
    assert project.seen("a-1,env-{'EXTRA':'x'},")["extra"] == "x"


def test_nothing_is_hidden_with_initialized_cuda_or_for_configurations_only(project: Project) -> None:
    project.write("torch.py", "class cuda:\n    is_initialized = staticmethod(lambda: True)\n")
    project.write(
        "looks.py",
        "import os\nimport gpu_task_scheduler.config_manager, gpu_task_scheduler.gpu_task\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
        "import torch\nimport gpu_task_scheduler.gpu_task_scheduler\n"
        "print(os.environ.get('CUDA_VISIBLE_DEVICES'))\n",
    )
    assert project.run("looks.py").stdout == "None\nNone\n"


def test_a_script_that_uses_cuda_already_is_warned(project: Project) -> None:
    project.write("torch.py", "class cuda:\n    is_initialized = staticmethod(lambda: True)\n")
    project.write("main.py", "import torch\n" + (project.folder / "main.py").read_text())
    project.configure(config({"a": [1]}))
    assert "this script uses GPUs itself: CUDA was in use before" in project.run().stderr


def test_importing_the_scheduler_in_a_task_hides_nothing(project: Project) -> None:
    text = (project.folder / "my_gpu_task.py").read_text()
    project.write("my_gpu_task.py", "import gpu_task_scheduler.gpu_task_scheduler\n" + text)
    project.configure(config({"a": [1]}))
    project.run()
    assert project.seen("a-1,")["cvd"] == "0"


@pytest.mark.parametrize(("given", "seen"), [({}, "Agg"), ({"MPLBACKEND": "svg"}, "svg")])
def test_figures_need_no_display_unless_the_user_chose_one(project: Project, given: dict[str, str], seen: str) -> None:
    text = (project.folder / "my_gpu_task.py").read_text()
    project.write("my_gpu_task.py", text.replace('get("EXTRA")', 'get("MPLBACKEND")'))
    project.configure(config({"a": [1]}))
    project.run(**given)
    assert project.seen("a-1,")["extra"] == seen


def test_a_task_may_start_processes_in_every_way(project: Project) -> None:
    """The task's own processes read neither the script nor the leases wrongly, however they are started."""
    project.write(
        "my_gpu_task.py",
        "import multiprocessing, os\nfrom gpu_task_scheduler.gpu_task import GPUTask\n"
        "def look(x):\n    return x, os.environ['CUDA_VISIBLE_DEVICES']\n"
        "class MyGPUTask(GPUTask):\n    def main(self):\n"
        "        for way in ('fork', 'spawn'):\n"
        "            with multiprocessing.get_context(way).Pool(1) as pool:\n"
        "                print(way, pool.map(look, [1]))\n",
    )
    project.configure(config({"a": [1]}))
    assert " finishes " in console(project.run())[1]
    assert project.log("a-1,") == "fork [(1, '0')]\nspawn [(1, '0')]\n"
