"""The progress of many calls."""

from __future__ import annotations

import io
from concurrent.futures import Future

import pytest

import chores
import dibs
from bench import Bench
from dibs.python_api.calls import progress
from dibs.python_api.calls.progress import Progress


def test_every_end_is_counted_and_the_last_line_is_whole() -> None:
    drawn: list[tuple[str, bool]] = []
    shown = Progress(4, "train", lambda text, is_last: drawn.append((text, is_last)))
    futures: list[Future[int]] = [Future() for _ in range(3)]
    for future, calls in zip(futures, (1, 2, 1), strict=True):
        shown.watch(future, calls)
    futures[0].set_result(1)
    futures[1].set_exception(ValueError())
    assert not any(is_last for _, is_last in drawn)
    futures[2].cancel()
    futures[2].set_running_or_notify_cancel()
    shown.close()
    text, is_last = drawn[-1]
    assert is_last
    assert text.startswith(f"train [{'#' * progress.WIDTH}] 4/4, 3 failed, 0:0")
    assert sum(is_last for _, is_last in drawn) == 1


def test_a_line_shows_how_far_it_is() -> None:
    assert progress.line("f", 12, 24, 1, 102) == f"f [{'#' * 15}{' ' * 15}] 12/24, 1 failed, 1:42"
    assert progress.line("f", 0, 0, 0, 0).endswith("] 0/0, 0:00")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_map_draws_on_a_terminal_and_nowhere_else(
    user_queue: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with dibs.Executor(gpus=0) as pool:
        assert list(pool.map(chores.square, [1, 2, 3], progress=True)) == [1, 4, 9]
        assert capsys.readouterr().err == ""
        screen = Terminal()
        monkeypatch.setattr("sys.stderr", screen)
        assert list(pool.map(chores.square, range(5), chunksize=2, progress=True)) == [0, 1, 4, 9, 16]
    last = screen.getvalue().rpartition("\r")[2]
    assert last.startswith("square [")
    assert last.endswith("\n")
    assert "] 5/5, 0:" in last
