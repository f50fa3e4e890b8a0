"""Folders made in advance: a start from a spare leaves the same files as any other, and a spare decides nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_bench import Bench, give
from dibs.runner import attempts, records, spares
from dibs.runner import main as runner

SHIM = "shim 1 2 boot"
OWNER = "1.2"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def spec_of(home: Path, job: int, attempt: int = 1, start: int = 1, **more: object) -> records.Spec:
    """Return a spec with its files in the usual places of jobs."""
    folder = home / "jobs" / str(job)
    values = {
        "argv": (b"true",),
        "env": (b"PATH=/usr/bin:/bin",),
        "cwd": b"/",
        "output": os.fsencode(folder / str(attempt) / "log"),
        "folders": (os.fsencode(folder / "checkpoint"),),
        "latest": os.fsencode(folder / "log"),
        **more,
    }
    return records.Spec(job, attempt, start, str(folder / str(attempt)), **values)  # type: ignore[arg-type]


def warm(home: Path, shim: str = SHIM) -> spares.Spares:
    """Return the spares of a runner that has one: it had two starts."""
    (home / "jobs").mkdir(exist_ok=True)
    mine = spares.Spares(shim)
    mine.make(spec_of(home, 1))
    mine.make(spec_of(home, 2))
    return mine


def names(home: Path) -> list[str]:
    """Return the existing spares."""
    return os.listdir(home / "spares") if (home / "spares").exists() else []


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Return everything in a folder: mode, and content or target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        text = os.readlink(path) if path.is_symlink() else path.read_text() if path.name == "log" else ""
        found[str(path.relative_to(folder))] = path.lstat().st_mode, text
    return found


def test_a_start_from_a_spare_leaves_the_same_files_as_any_other(bench: Bench) -> None:
    specs = [spec_of(bench.tmp, job, argv=(b"sh", b"-c", b"echo $0; exit 3", b"hello")) for job in (1, 2, 3)]
    with bench.runner() as (_, ours):
        for spec in specs:
            before = [os.stat(bench.tmp / "spares" / name).st_ino for name in names(bench.tmp)]
            give(ours, records.pack(spec))
            assert ours.recv(4096).startswith(runner.OVER)
    homes = [bench.tmp / "jobs" / str(job) for job in (1, 2, 3)]
    assert before == [homes[2].stat().st_ino]
    assert tree(homes[0]) == tree(homes[1]) == tree(homes[2])
    assert tree(homes[2])["1/log"] == (0o100600, "hello\n")
    for spec in specs:
        verdict = attempts.examine(spec.folder, 1)
        assert isinstance(verdict, attempts.Ended)
        assert verdict.final.code == 3
    # The runner exited and removed the spare for a start that never came.
    assert names(bench.tmp) == []


def test_stderr_may_have_a_separate_file(bench: Bench) -> None:
    errors = os.fsencode(bench.tmp / "errors")
    with bench.runner() as (_, ours):
        for job in (1, 2, 3):
            give(ours, records.pack(spec_of(bench.tmp, job, argv=(b"sh", b"-c", b"echo o; echo e >&2"), stderr=errors)))
            assert ours.recv(4096).startswith(runner.OVER)
    assert (bench.tmp / "jobs/3/1/log").read_text() == "o\n"
    assert (bench.tmp / "errors").read_text() == "e\n" * 3


def test_a_runner_makes_a_spare_after_its_second_start(tmp_path: Path) -> None:
    mine = spares.Spares(SHIM)
    mine.make(spec_of(tmp_path, 1))
    assert names(tmp_path) == []
    mine.make(spec_of(tmp_path, 2))
    assert len(names(tmp_path)) == 1
    mine.make(spec_of(tmp_path, 3))
    assert len(names(tmp_path)) == 1


def test_the_link_is_the_commit_point_with_a_spare_too(tmp_path: Path) -> None:
    """The start is given up between the rename and the link."""
    spec = spec_of(tmp_path, 3)
    spare = warm(tmp_path).take(spec)
    assert spare is not None
    assert attempts.read_started(spec.folder, 1) is None
    assert attempts.give_up(spec.folder, 1)
    assert attempts.decide(spare.claim, spec.folder, 1) is None
    assert attempts.read_started(spec.folder, 1) == attempts.Tombstone()
    assert sorted(os.listdir(spec.folder)) == ["log", "started.1"]
    os.close(spare.log)


def test_a_claim_from_a_spare_is_locked_from_the_beginning(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 3)
    spare = warm(tmp_path).take(spec)
    assert spare is not None
    started = attempts.decide(spare.claim, spec.folder, 1)
    assert started is not None
    assert not attempts.give_up(spec.folder, 1)
    assert attempts.read_started(spec.folder, 1) == attempts.Shim(1, 2, "boot")
    assert attempts.has_runner(spec.folder, 1)
    assert os.stat(f"{spec.folder}/started.1").st_blocks * 512 >= records.SIZE
    os.close(started)
    os.close(spare.log)
    assert not attempts.has_runner(spec.folder, 1)


def test_a_start_uses_the_folder_that_the_daemon_prepared(bench: Bench) -> None:
    (bench.tmp / "jobs").mkdir()
    path = spares.create(str(bench.tmp / "spares"), OWNER)
    inode = os.stat(path).st_ino
    with bench.runner() as (_, ours):
        give(ours, records.pack(spec_of(bench.tmp, 1, argv=(b"echo", b"hello"), spare=path)))
        assert ours.recv(4096).startswith(runner.OVER)
    home = bench.tmp / "jobs/1"
    assert home.stat().st_ino == inode
    assert sorted(os.listdir(home / "1")) == ["log", "started.1"]
    assert (home / "log").read_text() == "hello\n"
    assert isinstance(attempts.examine(str(home / "1"), 1), attempts.Ended)


@pytest.mark.parametrize("gone", ["", "1", "1/.blank", "1/log", "checkpoint", "log"])
def test_a_prepared_folder_that_is_removed_meanwhile_fails_no_start(bench: Bench, gone: str) -> None:
    """Another daemon takes the one that prepared it for dead, and removes it piece by piece."""
    (bench.tmp / "jobs").mkdir()
    path = spares.create(str(bench.tmp / "spares"), OWNER)
    if gone in ("", "1"):
        spares.remove(path)
        if gone:
            os.mkdir(path)
    elif gone == "checkpoint":
        os.rmdir(f"{path}/{gone}")
    else:
        os.unlink(f"{path}/{gone}")
    with bench.runner() as (_, ours):
        give(ours, records.pack(spec_of(bench.tmp, 1, argv=(b"echo", b"hello"), spare=path)))
        assert ours.recv(4096).startswith(runner.OVER)
    assert (bench.tmp / "jobs/1/1/log").read_text() == "hello\n"


def test_a_prepared_folder_that_the_job_does_not_need_is_removed(tmp_path: Path) -> None:
    path = spares.create(str(tmp_path / "spares"), OWNER)
    spec = spec_of(tmp_path, 3, spare=path)
    assert attempts.give_up(spec.folder, 1)
    assert warm(tmp_path).take(spec) is None
    assert not os.path.exists(path)


def test_an_existing_job_folder_is_kept(tmp_path: Path) -> None:
    """The start was given up, or its script is there; the spare is for another job."""
    mine = warm(tmp_path)
    spec = spec_of(tmp_path, 3)
    assert attempts.give_up(spec.folder, 1)
    assert mine.take(spec) is None
    assert attempts.read_started(spec.folder, 1) == attempts.Tombstone()
    assert mine.take(spec_of(tmp_path, 4)) is not None
    assert mine.take(spec_of(tmp_path, 5)) is None


def test_a_folder_that_is_still_being_made_is_reused(tmp_path: Path) -> None:
    """Giving up a start makes the job's folder first and the attempt's next; both sides accept an existing one."""
    mine = warm(tmp_path)
    spec = spec_of(tmp_path, 3)
    (tmp_path / "jobs/3").mkdir()
    spare = mine.take(spec)
    assert spare is not None
    assert attempts.give_up(spec.folder, 1)
    assert attempts.decide(spare.claim, spec.folder, 1) is None
    os.close(spare.log)


@pytest.mark.parametrize(
    "other",
    [
        {"attempt": 2},
        {"output": b"/elsewhere/log"},
        {"output_mode": 0o644},
        {"latest": None},
        {"folders": (b"/elsewhere/checkpoint",)},
    ],
)
def test_a_start_with_its_files_elsewhere_uses_no_spare(tmp_path: Path, other: dict[str, object]) -> None:
    mine = warm(tmp_path)
    assert mine.take(spec_of(tmp_path, 3, **other)) is None  # type: ignore[arg-type]
    assert len(names(tmp_path)) == 1


def test_a_deleted_state_folder_is_not_created_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spares.create(str(tmp_path / "deleted" / "spares"), OWNER)
    assert not (tmp_path / "deleted").exists()


def test_where_no_spare_can_be_made_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "spares").write_text("")
    assert warm(tmp_path).take(spec_of(tmp_path, 3)) is None


def test_spares_of_dead_runners_are_removed_and_those_of_live_ones_kept(tmp_path: Path) -> None:
    living = warm(tmp_path, runner.own_shim())
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    # Our pid, before it was ours; and the name that release 0.1 gave.
    others = [f"{int(dead.stdout)}.77.cafe", f"{os.getpid()}.1.cafe", f"{int(dead.stdout)}.cafe"]
    for name in others:
        (tmp_path / "spares" / name / "1").mkdir(parents=True)
        (tmp_path / "spares" / name / "1" / ".started.x").write_text("")
    spares.remove_dead(str(tmp_path))
    assert not {*others} & {*names(tmp_path)}
    assert living.take(spec_of(tmp_path, 3)) is not None
    spares.remove_dead(str(tmp_path / "nowhere"))
