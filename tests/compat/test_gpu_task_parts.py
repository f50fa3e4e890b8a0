"""The parts of GPUTaskScheduler that need no process: marks in folders, GPU visibility, logs, task classes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dibs import errors
from dibs_compat.gpu_tasks import gpu_visibility, journals, messages, result_folders, sources, workers
from dibs_compat.gpu_tasks.messages import Place, Task
from dibs_compat.gpu_tasks.result_folders import Marks
from gpu_task_scheduler.gpu_task import GPUTask

MARKS = Marks("m.Task", "run-1")
LATER = Marks("m.Task", "run-2")
SECOND_PHASE = Marks("m.Evaluate", "run-3")


def claimed(folder: Path, marks: Marks = MARKS, is_forced: bool = False) -> result_folders.Claim:
    """Claim a folder that is free."""
    claim = marks.claim(str(folder), is_forced)
    assert claim is not None
    return claim


# -- folders


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "a-1," / "b"
    claimed(folder).close()
    assert [path.name for path in folder.iterdir()] == [".unfinished.m.Task"]
    assert [path.name for path in folder.parent.iterdir()] == ["b"]


def test_a_trailing_slash_means_the_same_folder(tmp_path: Path) -> None:
    claimed(Path(f"{tmp_path}/results/")).close()
    assert MARKS.claim(f"{tmp_path}/results/", False) is None


def test_after_a_success_a_folder_looks_as_the_old_tool_left_it(tmp_path: Path) -> None:
    claimed(tmp_path / "a").close()
    MARKS.succeeded(str(tmp_path / "a"))
    assert list((tmp_path / "a").iterdir()) == []
    assert LATER.is_done(str(tmp_path / "a"))
    assert LATER.claim(str(tmp_path / "a"), False) is None


@pytest.mark.parametrize("is_told", [True, False], ids=["failed", "killed"])
def test_a_task_that_did_not_succeed_runs_again_in_the_next_run_only(tmp_path: Path, is_told: bool) -> None:
    folder = str(tmp_path / "a")
    claimed(tmp_path / "a").close()
    if is_told:
        MARKS.failed(folder, "exit code 1")
    assert MARKS.is_done(folder)
    assert MARKS.claim(folder, False) is None
    assert not LATER.is_done(folder)
    claimed(tmp_path / "a", LATER).close()


def test_a_folder_claimed_by_a_running_task_is_skipped(tmp_path: Path) -> None:
    claim = claimed(tmp_path / "a")
    assert LATER.is_done(str(tmp_path / "a"))
    assert LATER.claim(str(tmp_path / "a"), False) is None
    # A forced run ignores the claim.
    assert claimed(tmp_path / "a", LATER, is_forced=True).fd is None
    claim.close()
    assert not LATER.is_done(str(tmp_path / "a"))


def test_the_success_of_a_second_phase_keeps_the_failure_of_the_first(tmp_path: Path) -> None:
    folder = str(tmp_path / "a")
    claimed(tmp_path / "a").close()
    MARKS.failed(folder, "exit code 1")
    claimed(tmp_path / "a", SECOND_PHASE, is_forced=True).close()
    SECOND_PHASE.succeeded(folder)
    assert not LATER.is_done(folder)


def test_the_failure_of_a_second_phase_does_not_rerun_the_first(tmp_path: Path) -> None:
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


def test_a_task_may_remove_its_folder(tmp_path: Path) -> None:
    MARKS.succeeded(str(tmp_path / "gone"))
    MARKS.failed(str(tmp_path / "gone"), "exit code 1")
    assert not MARKS.is_done(str(tmp_path / "gone"))


def test_a_file_in_place_of_the_folder_counts_as_done(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert MARKS.is_done(str(tmp_path / "a"))
    assert MARKS.claim(str(tmp_path / "a"), False) is None


def test_a_name_that_is_too_long_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long") as caught:
        MARKS.claim(str(tmp_path / ("x" * 300)), False)
    assert str(caught.value.filename).endswith("xxx")
    assert list(tmp_path.iterdir()) == []


def test_the_mark_explains_itself(tmp_path: Path) -> None:
    claimed(tmp_path / "a").close()
    MARKS.failed(str(tmp_path / "a"), "exit code 1")
    assert (tmp_path / "a" / ".unfinished.m.Task").read_text() == "run-1\nexit code 1" + result_folders.EXPLANATION


# -- GPU visibility


@pytest.mark.parametrize("before", [{}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_gpus_are_hidden_and_shown_again(before: dict[str, str]) -> None:
    environ = dict(before)
    gpu_visibility.hide(environ, is_up=False)
    gpu_visibility.hide(environ, is_up=False)
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    gpu_visibility.show(environ)
    assert environ == before
    gpu_visibility.show(environ)
    assert environ == before


def test_a_value_set_meanwhile_is_kept() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0"}
    gpu_visibility.hide(environ, is_up=False)
    environ["CUDA_VISIBLE_DEVICES"] = "3"
    gpu_visibility.show(environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": "3"}


@pytest.mark.parametrize(
    ("environ", "is_up"), [({}, True), ({gpu_visibility.WORKER: "gpu0"}, False)], ids=["up", "task"]
)
def test_gpus_are_not_hidden_from_a_process_that_uses_them_or_was_restricted(
    environ: dict[str, str], is_up: bool
) -> None:
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
def test_a_process_that_only_queries_gpus_does_not_use_them(files: list[str], is_up: bool) -> None:
    assert gpu_visibility.uses_cuda(files) is is_up


def test_this_process_uses_no_gpu() -> None:
    assert not gpu_visibility.is_cuda_up()


# -- the environment of a task


def test_a_task_gets_its_environment() -> None:
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


def test_the_base_class_task_does_nothing() -> None:
    task = GPUTask({"a": 1}, "folder")
    task.main()
    assert (task._config, task._work_dir, task.required_env()) == ({"a": 1}, "folder", {})


# -- task classes


def test_a_class_is_identified_by_its_module_and_file() -> None:
    source = sources.source_of_class(GPUTask)
    assert (source.module, source.qualname) == ("gpu_task_scheduler.gpu_task", "GPUTask")
    assert source.path == os.path.abspath(sys.modules["gpu_task_scheduler.gpu_task"].__file__ or "")
    assert sources.find(source) is GPUTask


def test_a_class_may_be_nested() -> None:
    assert (
        sources.find(sources.source_of_class("dibs_compat.gpu_tasks.sources:Source.__init__"))
        is sources.Source.__init__
    )


def test_a_class_from_an_interactive_session_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    monkeypatch.setitem(sys.modules, "typed", types.ModuleType("typed"))
    own = type("Own", (GPUTask,), {"__module__": "typed"})
    with pytest.raises(errors.UserError, match=r"expected the class Own in a file.*Put it into a module"):
        raise_with_hint(own)


def raise_with_hint(own: type) -> None:
    """Raise the error with its hint."""
    try:
        sources.source_of_class(own)
    except errors.UserError as error:
        raise errors.UserError(error.line()) from error


def test_a_module_is_found_by_its_file_if_its_name_is_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "far_task.py").write_text("class Far: pass\n")
    source = sources.Source("far_task", "Far", str(tmp_path / "far_task.py"))
    try:
        assert sources.find(source).__module__ == "far_task"
    finally:
        del sys.modules["far_task"]


# -- the log


def test_log_lines_have_the_line_numbers_of_the_old_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_instance_without_parameters_has_the_old_log_line(tmp_path: Path) -> None:
    journal = journals.Journal(str(tmp_path / "scheduler.log"))
    journal.tell("gpu0", journals.TaskEvent.RECEIVES, "")
    assert (tmp_path / "scheduler.log").read_text().endswith("INFO gpu0 receives task \n")


def test_an_unwritable_log_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        journals.Journal(str(tmp_path / "no" / "scheduler.log"))


# -- packets


def test_the_last_packet_of_a_peer_that_closed_early_is_received() -> None:
    """The kernel first reports that something was left unread, and only then what was sent before."""
    ours, its = messages.pair()
    with ours:
        messages.send(ours, "never read")
        messages.send(its, "last words", 3)
        its.close()
        assert messages.receive(ours) == (("last words", 3), [])
        assert messages.receive(ours) is None
        assert not messages.send(ours, "anybody?")


def test_descriptors_are_received_with_a_packet() -> None:
    ours, its = messages.pair()
    with ours, its:
        fd = messages.file(b"content")
        messages.send(ours, "file", fds=[fd])
        os.close(fd)
        got = messages.receive(its)
        assert got is not None
        with open(got[1][0], "rb") as file:
            assert file.read() == b"content"
