"""The contract of an executor of `concurrent.futures`, tested with the two of Python and with ours."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from pathlib import Path
from typing import Any

import pytest

import chores
import dibs
from bench import PATIENCE_S, Bench, wait_for

#: Calls that run at once, and calls after which the next one has to wait: one of Python's counts also those as running
#: that it keeps ready for its workers, one more than it has workers.
WORKERS, FULL = 2, 5

Make = Callable[[], Executor]


def thread_pool() -> Executor:
    return ThreadPoolExecutor(WORKERS)


def process_pool() -> Executor:
    # A fork of a process with threads is a warning, and warnings are errors here.
    return ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn"))


def jobs() -> Executor:
    return dibs.Executor(gpus=0, max_jobs=WORKERS)


@pytest.fixture(scope="module", params=[thread_pool, process_pool, jobs])
def make(request: pytest.FixtureRequest, queue: Bench) -> Make:
    """Each kind of executor in turn."""
    kind: Make = request.param
    return kind


@pytest.fixture(scope="module")
def pool(make: Make) -> Iterator[Executor]:
    """An executor for all tests that do not shut it down."""
    with make() as made:
        yield made


def running(pool: Executor, gate: str) -> Future[Any]:
    """Return a running call that waits at a gate."""
    future = pool.submit(chores.pass_gate, gate, "passed")
    wait_for(future.running)
    return future


def crowd(pool: Executor, gate: str) -> list[Future[Any]]:
    """Give an executor so much work that the next call has to wait."""
    return [pool.submit(chores.pass_gate, gate, n) for n in range(FULL)]


# -- one call --


def test_a_call_returns_what_the_function_returns(pool: Executor) -> None:
    assert pool.submit(chores.square, 7).result(PATIENCE_S) == 49


def test_arguments_with_any_name_reach_the_function(pool: Executor) -> None:
    future = pool.submit(chores.told, 1, "b", fn=2, self=3, timeout=4)
    assert future.result(PATIENCE_S) == ((1, "b"), {"fn": 2, "self": 3, "timeout": 4})


def test_an_exception_is_raised_by_result_and_returned_by_exception(pool: Executor) -> None:
    future = pool.submit(chores.even, 3)
    error = future.exception(PATIENCE_S)
    assert isinstance(error, chores.Odd)
    assert error.number == 3
    with pytest.raises(chores.Odd, match="3 is odd"):
        future.result()


def test_an_exception_shows_where_in_the_function_it_was_raised(pool: Executor) -> None:
    error = pool.submit(chores.even, 3).exception(PATIENCE_S)
    text = "".join(traceback.format_exception(error))
    assert "raise Odd(x)" in text
    assert "chores.py" in text


def test_a_call_that_returned_has_no_exception(pool: Executor) -> None:
    assert pool.submit(chores.square, 2).exception(PATIENCE_S) is None


def test_waiting_for_a_result_may_time_out_and_the_call_continues(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        future = pool.submit(chores.pass_gate, f"{tmp_path}/gate", "late")
        with pytest.raises(TimeoutError):
            future.result(0.01)
        with pytest.raises(TimeoutError):
            future.exception(0)
    assert future.result(PATIENCE_S) == "late"


def test_a_running_call_is_reported_as_running_and_cannot_be_cancelled(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        future = running(pool, f"{tmp_path}/gate")
        assert not future.done()
        assert not future.cancel()
        assert not future.cancelled()
    assert future.result(PATIENCE_S) == "passed"


def test_a_finished_call_is_reported_as_done_and_cannot_be_cancelled(pool: Executor) -> None:
    future = pool.submit(chores.square, 2)
    future.result(PATIENCE_S)
    assert (future.done(), future.running(), future.cancel(), future.cancelled()) == (True, False, False, False)


def test_a_waiting_call_can_be_cancelled_and_never_runs(pool: Executor, tmp_path: Path) -> None:
    log = f"{tmp_path}/log"
    with chores.closed(f"{tmp_path}/gate"):
        before = crowd(pool, f"{tmp_path}/gate")
        future = pool.submit(chores.noting, log, "ran")
        assert future.cancel()
        assert (future.cancelled(), future.done(), future.running()) == (True, True, False)
        for ask in (future.result, future.exception):
            with pytest.raises(CancelledError):
                ask(PATIENCE_S)
    assert [each.result(PATIENCE_S) for each in before] == [*range(FULL)]
    pool.submit(chores.square, 1).result(PATIENCE_S)
    assert chores.noted(log) == []


def test_cancelling_twice_is_no_error(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        before = crowd(pool, f"{tmp_path}/gate")
        future = pool.submit(chores.square, 1)
        assert future.cancel()
        assert future.cancel()
    wait(before, PATIENCE_S)


# -- callbacks --


def test_a_callback_is_called_once_with_the_future(pool: Executor) -> None:
    called: list[Future[int]] = []
    over = threading.Event()
    future = pool.submit(chores.square, 3)
    future.add_done_callback(called.append)
    future.add_done_callback(lambda done: over.set())
    assert over.wait(PATIENCE_S)
    assert called == [future]


def test_a_callback_added_after_the_end_is_called_at_once(pool: Executor) -> None:
    future = pool.submit(chores.square, 3)
    future.result(PATIENCE_S)
    called: list[Future[int]] = []
    future.add_done_callback(called.append)
    assert called == [future]


def test_an_exception_in_a_callback_does_not_stop_the_next_one(
    pool: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()
    # The log message of the library is not for the screen.
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        future = pool.submit(chores.square, 3)
        future.add_done_callback(lambda done: 1 // 0)
        future.add_done_callback(lambda done: over.set())
        assert over.wait(PATIENCE_S)
    assert future.result() == 9


def test_a_callback_is_called_for_a_cancelled_call_too(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        before = crowd(pool, f"{tmp_path}/gate")
        future = pool.submit(chores.square, 1)
        called: list[bool] = []
        future.add_done_callback(lambda done: called.append(done.cancelled()))
        assert future.cancel()
        assert called == [True]
    wait(before, PATIENCE_S)


def test_a_callback_may_submit_the_next_call(pool: Executor) -> None:
    found: list[Future[int]] = []
    over = threading.Event()

    def go_on(done: Future[int]) -> None:
        found.append(pool.submit(chores.square, done.result()))
        over.set()

    pool.submit(chores.square, 3).add_done_callback(go_on)
    assert over.wait(PATIENCE_S)
    assert found[0].result(PATIENCE_S) == 81


# -- map --


def test_map_returns_results_in_the_order_of_the_arguments(pool: Executor, tmp_path: Path) -> None:
    """The first call ends last."""
    with chores.closed(f"{tmp_path}/gate"):
        (tmp_path / "open").touch()
        gates = [f"{tmp_path}/gate", f"{tmp_path}/open", f"{tmp_path}/open"]
        log = f"{tmp_path}/log"
        results = pool.map(chores.pass_gate, gates, range(3), [log] * 3)
        wait_for(lambda: len(chores.noted(log)) == 3)
    assert list(results) == [0, 1, 2]


def test_map_accepts_several_iterables_and_ends_with_the_shortest(pool: Executor) -> None:
    assert list(pool.map(chores.add, [1, 2, 3], iter([10, 20]))) == [11, 22]


def test_map_of_nothing_returns_nothing(pool: Executor) -> None:
    assert list(pool.map(chores.square, [])) == []


def test_map_raises_an_exception_in_its_place(pool: Executor) -> None:
    results = pool.map(chores.even, [0, 2, 3, 4])
    assert [next(results), next(results)] == [0, 2]
    with pytest.raises(chores.Odd, match="3 is odd"):
        next(results)


def test_map_may_time_out(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        results = pool.map(chores.pass_gate, [f"{tmp_path}/gate"], timeout=0.01)
        with pytest.raises(TimeoutError):
            next(results)


@pytest.mark.parametrize("chunksize", [2, 3, 100])
def test_map_may_send_several_calls_to_a_worker_at_once(pool: Executor, chunksize: int) -> None:
    assert list(pool.map(chores.add, range(5), range(5), chunksize=chunksize)) == [0, 2, 4, 6, 8]


def test_map_calls_the_function_even_if_no_result_is_read(pool: Executor, tmp_path: Path) -> None:
    log = f"{tmp_path}/log"
    results = pool.map(chores.noting, [log] * 2, range(2))
    wait_for(lambda: len(chores.noted(log)) == 2)
    del results


# -- many futures --


def test_wait_returns_when_all_calls_have_ended(pool: Executor) -> None:
    many = [pool.submit(chores.even, n) for n in (0, 1, 2)]
    done, rest = wait(many, PATIENCE_S, ALL_COMPLETED)
    assert (done, rest) == (set(many), set())


def test_wait_returns_when_the_first_call_has_ended(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        slow = pool.submit(chores.pass_gate, f"{tmp_path}/gate")
        quick = pool.submit(chores.square, 2)
        assert wait([slow, quick], PATIENCE_S, FIRST_COMPLETED) == ({quick}, {slow})


def test_wait_returns_when_the_first_call_has_raised(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        slow = pool.submit(chores.pass_gate, f"{tmp_path}/gate")
        wrong = pool.submit(chores.even, 1)
        assert wait([slow, wrong], PATIENCE_S, FIRST_EXCEPTION) == ({wrong}, {slow})


def test_wait_may_time_out(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        slow = pool.submit(chores.pass_gate, f"{tmp_path}/gate")
        assert wait([slow], 0.01) == (set(), {slow})


def test_wait_counts_a_cancelled_call_as_done(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        before = crowd(pool, f"{tmp_path}/gate")
        future = pool.submit(chores.square, 1)
        assert future.cancel()
    # At the latest when its turn would have come.
    assert wait([*before, future], PATIENCE_S).not_done == set()


def test_as_completed_returns_each_call_once(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        slow = pool.submit(chores.pass_gate, f"{tmp_path}/gate", 9)
        quick = pool.submit(chores.square, 2)
        ended = as_completed([slow, quick, quick], PATIENCE_S)
        assert next(ended) is quick
    assert [*ended] == [slow]


def test_as_completed_may_time_out(pool: Executor, tmp_path: Path) -> None:
    with chores.closed(f"{tmp_path}/gate"):
        slow = pool.submit(chores.pass_gate, f"{tmp_path}/gate", 9)
        with pytest.raises(TimeoutError):
            next(as_completed([slow], 0.01))


def test_many_threads_may_submit_at_once(pool: Executor) -> None:
    found: list[tuple[int, Future[int]]] = []

    def submit(n: int) -> None:
        found.append((n, pool.submit(chores.square, n)))

    many = [threading.Thread(target=submit, args=(n,)) for n in range(8)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join(PATIENCE_S)
    assert all(future.result(PATIENCE_S) == n * n for n, future in found)
    assert len(found) == 8


# -- shutdown --


def test_leaving_the_context_waits_for_the_calls(make: Make) -> None:
    with make() as own:
        many = [own.submit(chores.square, n) for n in range(3)]
    assert [future.done() for future in many] == [True] * 3
    assert [future.result() for future in many] == [0, 1, 4]
    for submit in (own.submit, own.map):
        with pytest.raises(RuntimeError, match="after shutdown"):
            submit(chores.square, [1])
    own.shutdown()


def test_a_shutdown_without_waiting_lets_the_calls_continue(make: Make, tmp_path: Path) -> None:
    own = make()
    with chores.closed(f"{tmp_path}/gate"):
        many = [own.submit(chores.pass_gate, f"{tmp_path}/gate", n) for n in range(FULL)]
        own.shutdown(wait=False)
        assert not any(future.done() for future in many)
    assert [future.result(PATIENCE_S) for future in many] == [*range(FULL)]


def test_a_shutdown_may_cancel_waiting_calls(make: Make, tmp_path: Path) -> None:
    own, gate = make(), f"{tmp_path}/gate"
    with chores.closed(gate):
        first = running(own, gate)
        many = [own.submit(chores.pass_gate, gate, n) for n in range(FULL + 2)]
        own.shutdown(wait=False, cancel_futures=True)
        wait_for(lambda: sum(future.cancelled() for future in many) >= 2)
    assert first.result(PATIENCE_S) == "passed"
    wait_for(lambda: all(future.done() for future in many))
    assert many[-1].cancelled()


def test_futures_outlive_their_executor(make: Make) -> None:
    own = make()
    future = own.submit(chores.square, 5)
    own.shutdown(wait=False)
    del own
    gc.collect()
    assert future.result(PATIENCE_S) == 25
