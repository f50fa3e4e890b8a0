"""The parts of GPUTaskScheduler that need no process: marks in folders, hidden GPUs, logs, classes and their files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dibs import errors
from dibs_compat.gpu_tasks import gpu_visibility, journals, messages, result_folders, sources, workers
from dibs_compat.gpu_tasks.orders import Place, Task
from dibs_compat.gpu_tasks.result_folders import Marks
from gpu_task_scheduler.gpu_task import GPUTask

MARKS = Marks("m.Task", "run-1")
LATER = Marks("m.Task", "run-2")
SECOND_PHASE = Marks("m.Evaluate", "run-3")


def claimed(folder: Path, marks: Marks = MARKS, is_forced: bool = False) -> result_folders.Claim:
    """Claim a folder that can be had."""
    claim = marks.claim(str(folder), is_forced)
    assert claim is not None
    return claim


# -- folders


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "a-1," / "b"
    claimed(folder).close()
    assert [path.name for path in folder.iterdir()] == [".unfinished.m.Task"]
    assert [path.name for path in folder.parent.iterdir()] == ["b"]


def test_an_end_with_a_slash_means_the_same_folder(tmp_path: Path) -> None:
    claimed(Path(f"{tmp_path}/results/")).close()
    assert MARKS.claim(f"{tmp_path}/results/", False) is None


def test_success_leaves_a_folder_as_the_old_tool_would(tmp_path: Path) -> None:
    claimed(tmp_path / "a").close()
    MARKS.succeeded(str(tmp_path / "a"))
    assert list((tmp_path / "a").iterdir()) == []
    assert LATER.is_done(str(tmp_path / "a"))
    assert LATER.claim(str(tmp_path / "a"), False) is None


@pytest.mark.parametrize("is_told", [True, False], ids=["failed", "killed"])
def test_what_did_not_succeed_runs_again_but_not_in_the_same_run(tmp_path: Path, is_told: bool) -> None:
    folder = str(tmp_path / "a")
    claimed(tmp_path / "a").close()
    if is_told:
        MARKS.failed(folder, "exit code 1")
    assert MARKS.is_done(folder)
    assert MARKS.claim(folder, False) is None
    assert not LATER.is_done(folder)
    claimed(tmp_path / "a", LATER).close()


def test_somebody_who_is_at_it_is_left_alone(tmp_path: Path) -> None:
    claim = claimed(tmp_path / "a")
    assert LATER.is_done(str(tmp_path / "a"))
    assert LATER.claim(str(tmp_path / "a"), False) is None
    # Told to run it whatever is there, it does.
    assert claimed(tmp_path / "a", LATER, is_forced=True).fd is None
    claim.close()
    assert not LATER.is_done(str(tmp_path / "a"))


def test_a_second_phase_does_not_touch_what_the_first_says(tmp_path: Path) -> None:
    folder = str(tmp_path / "a")
    claimed(tmp_path / "a").close()
    MARKS.failed(folder, "exit code 1")
    claimed(tmp_path / "a", SECOND_PHASE, is_forced=True).close()
    SECOND_PHASE.succeeded(folder)
    assert not LATER.is_done(folder)


def test_a_second_phase_that_fails_does_not_make_the_first_run_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "a")
    claimed(tmp_path / "a").close()
    MARKS.succeeded(folder)
    claimed(tmp_path / "a", SECOND_PHASE, is_forced=True).close()
    SECOND_PHASE.failed(folder, "exit code 1")
    assert LATER.is_done(folder)


def test_a_task_that_empties_its_folder_and_fails_is_not_done(tmp_path: Path) -> None:
    claimed(tmp_path / "a").close()
    for path in (tmp_path / "a").iterdir():
        path.unlink()
    MARKS.failed(str(tmp_path / "a"), "exit code 1")
    assert not LATER.is_done(str(tmp_path / "a"))


def test_a_task_that_removes_its_folder_may(tmp_path: Path) -> None:
    MARKS.succeeded(str(tmp_path / "gone"))
    MARKS.failed(str(tmp_path / "gone"), "exit code 1")
    assert not MARKS.is_done(str(tmp_path / "gone"))


def test_a_file_in_place_of_the_folder_counts_as_it_did(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert MARKS.is_done(str(tmp_path / "a"))
    assert MARKS.claim(str(tmp_path / "a"), False) is None


def test_a_name_that_is_too_long_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long") as caught:
        MARKS.claim(str(tmp_path / ("x" * 300)), False)
    assert str(caught.value.filename).endswith("xxx")
    assert list(tmp_path.iterdir()) == []


def test_the_mark_says_what_it_is(tmp_path: Path) -> None:
    claimed(tmp_path / "a").close()
    MARKS.failed(str(tmp_path / "a"), "exit code 1")
    assert (tmp_path / "a" / ".unfinished.m.Task").read_text() == "run-1\nexit code 1" + result_folders.EXPLANATION


# -- hidden GPUs


@pytest.mark.parametrize("before", [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_gpus_are_hidden_and_shown_again_as_they_were(before: dict[str, str]) -> None:
    environ = dict(before)
    gpu_visibility.hide(environ, is_up=False)
    gpu_visibility.hide(environ, is_up=False)
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    gpu_visibility.show(environ)
    assert environ == before
    gpu_visibility.show(environ)
    assert environ == before


def test_what_somebody_chose_meanwhile_stays() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0"}
    gpu_visibility.hide(environ, is_up=False)
    environ["CUDA_VISIBLE_DEVICES"] = "3"
    gpu_visibility.show(environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "3"}


@pytest.mark.parametrize(
    ("environ", "is_up"), [({}, True), ({gpu_visibility.WORKER: "gpu0"}, False)], ids=["up", "task"]
)
def test_where_it_would_be_wrong_nothing_is_hidden(environ: dict[str, str], is_up: bool) -> None:
    before = dict(environ)
    gpu_visibility.hide(environ, is_up)
    assert environ == before


@pytest.mark.parametrize(
    ("files", "is_up"),
    [
        ([], False),
        (["/dev/nvidiactl", "/dev/nvidia0"], False),
        (["/dev/null", "/dev/nvidia-uvm"], True),
        (["/dev/kfd"], True),
    ],
)
def test_who_merely_looks_at_gpus_does_not_use_them(files: list[str], is_up: bool) -> None:
    assert gpu_visibility.uses_cuda(files) is is_up


def test_this_process_uses_no_gpu() -> None:
    assert not gpu_visibility.is_cuda_up()


# -- what a task sees


def test_the_environment_of_a_task() -> None:
    task = Task(Place("gpu0,1", "0,1", ("0", "1")), "a", None, -1, ())
    assert workers.environ(task, {"X": "1", "CUDA_VISIBLE_DEVICES": "5"}) == {
        "X": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MPLBACKEND": "Agg",
        "DIBS_GPU_TASK": "gpu0,1",
    }
    chosen = {"MPLBACKEND": "TkAgg", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert chosen.items() <= workers.environ(task, chosen).items()


def test_the_plain_task_does_nothing() -> None:
    task = GPUTask({"a": 1}, "folder")
    task.main()
    assert (task._config, task._work_dir, task.required_env()) == ({"a": 1}, "folder", {})


# -- classes


def test_a_class_is_known_by_its_module_and_its_file() -> None:
    source = sources.source_of_class(GPUTask)
    assert (source.module, source.qualname) == ("gpu_task_scheduler.gpu_task", "GPUTask")
    assert source.path == os.path.abspath(sys.modules["gpu_task_scheduler.gpu_task"].__file__ or "")
    assert sources.find(source) is GPUTask


def test_a_class_may_be_inside_another() -> None:
    assert (
        sources.find(sources.source_of_class("dibs_compat.gpu_tasks.sources:Source.__init__"))
        is sources.Source.__init__
    )


def test_a_class_that_was_typed_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    monkeypatch.setitem(sys.modules, "typed", types.ModuleType("typed"))
    own = type("Own", (GPUTask,), {"__module__": "typed"})
    with pytest.raises(errors.UserError, match=r"expected the class Own in a file.*Write it into a module"):
        raise_with_hint(own)


def raise_with_hint(own: type) -> None:
    """Raise what people see."""
    try:
        sources.source_of_class(own)
    except errors.UserError as error:
        raise errors.UserError(error.line()) from error


def test_a_module_is_found_by_its_file_where_its_name_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "far_task.py").write_text("class Far: pass\n")
    source = sources.Source("far_task", "Far", str(tmp_path / "far_task.py"))
    try:
        assert sources.find(source).__module__ == "far_task"
    finally:
        del sys.modules["far_task"]


# -- the log


def test_the_lines_of_the_log_name_the_lines_of_the_old_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = journals.Journal(str(tmp_path / "scheduler.log"))
    journal.tell("gpu0", journals.TaskEvent.RECEIVES, "a-1,")
    journal.tell("gpu0", journals.TaskEvent.SKIPS, "a-1,")
    journal.tell("gpu0", journals.TaskEvent.FINISHES, "a-1,")
    journal.tell("gpu0", journals.TaskEvent.FINISHED)
    journal.tell("gpu0", journals.TaskEvent.FAILS, "a-1,", "exit code 1")
    lines = (tmp_path / "scheduler.log").read_text().splitlines()
    assert [line.split(" gpu_task_scheduler.py")[1] for line in lines] == [
        "[line:53] INFO gpu0 receives task a-1,",
        "[line:56] INFO gpu0 skips task a-1,",
        "[line:93] INFO gpu0 finishes task a-1,",
        "[line:46] INFO gpu0 finished",
        "[line:93] ERROR gpu0 fails task a-1,: exit code 1",
    ]
    assert capsys.readouterr().err.splitlines()[0].endswith(" INFO gpu0 receives task a-1,")


def test_an_instance_without_parameters_has_the_old_line(tmp_path: Path) -> None:
    journal = journals.Journal(str(tmp_path / "scheduler.log"))
    journal.tell("gpu0", journals.TaskEvent.RECEIVES, "")
    assert (tmp_path / "scheduler.log").read_text().endswith("INFO gpu0 receives task \n")


def test_a_log_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        journals.Journal(str(tmp_path / "no" / "scheduler.log"))


# -- packets


def test_the_last_words_of_somebody_who_did_not_listen_are_heard() -> None:
    """The kernel tells first that something was left unread, and only then what was sent before."""
    ours, its = messages.pair()
    with ours:
        messages.send(ours, "never read")
        messages.send(its, "last words", 3)
        its.close()
        assert messages.receive(ours) == (("last words", 3), [])
        assert messages.receive(ours) is None
        assert not messages.send(ours, "anybody?")


def test_descriptors_come_with_a_packet() -> None:
    ours, its = messages.pair()
    with ours, its:
        fd = messages.file(b"content")
        messages.send(ours, "file", fds=[fd])
        os.close(fd)
        got = messages.receive(its)
        assert got is not None
        with open(got[1][0], "rb") as file:
            assert file.read() == b"content"
