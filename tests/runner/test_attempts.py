"""The files of an attempt are never ambiguous: whichever process dies at any point, the command runs at most once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attempt_bench import EXAMINER, Bench, crash_points, until
from dibs.runner import attempts, records

#: Where a runner can die, and where an examiner can.
RUNNER_POINTS = [
    point for point in crash_points("main", "spawn", "supervision", "attempts") if not point.startswith("examine:")
]
EXAMINE_POINTS = crash_points("attempts")
#: A runner that is slow before, at or after its claim.
DELAYS = ["", "runner:begin:30", "started:written:30", "started:linked:30", "runner:spawned:30"]
#: All pairs of deaths, each with another delay, and each delay without a death of the runner.
PAIRS = [
    (runner, examiner, DELAYS[(row + column) % len(DELAYS)])
    for row, runner in enumerate(RUNNER_POINTS)
    for column, examiner in enumerate(EXAMINE_POINTS)
] + [("nowhere", examiner, delay) for examiner in EXAMINE_POINTS for delay in DELAYS]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def command(start: int) -> str:
    """Return a command that leaves a trace of its start and exits with a distinct code."""
    return f"echo {start} >> ran; exit {10 + start}"


def settle(bench: Bench, start: int) -> object:
    """Return the verdict once nobody works on this start any more."""

    def verdict() -> object:
        seen = bench.examine(start)
        return None if isinstance(seen, attempts.Alive | attempts.Orphaned) else seen

    return until(verdict, "a verdict")


# -- one crash


def test_there_are_crash_points_to_test() -> None:
    assert len(RUNNER_POINTS) >= 12
    assert len(EXAMINE_POINTS) >= 4
    assert len(PAIRS) >= 60


@pytest.mark.parametrize("point", RUNNER_POINTS)
def test_a_runner_may_die_at_any_point(bench: Bench, point: str) -> None:
    """The command ran at most once, `lost` means that the start was claimed, and a known result is the right one."""
    bench.spec(command(1))
    assert bench.finish(bench.begin(DIBS_CRASH=point)) == -signal.SIGKILL
    was_claimed = isinstance(attempts.read_started(bench.folder, 1), attempts.Shim)
    verdict = settle(bench, 1)
    match verdict:
        case attempts.Lost():
            assert was_claimed
        case attempts.Ended(final):
            assert (final.kind, final.code, bench.read("ran")) == ("exited", 11, "1\n")
        case attempts.NeverStarted():
            assert not was_claimed
            assert bench.read("ran") == ""
        case _:
            pytest.fail(f"not a verdict for a dead runner: {verdict}")
    before = bench.read("ran")
    bench.finish(bench.begin())
    assert bench.read("ran") == before, "a second runner of the same start ran it again"
    if isinstance(verdict, attempts.NeverStarted):
        bench.spec(command(2), start=2)
        bench.finish(bench.begin(2))
        assert bench.read("ran") == "2\n"
        assert bench.examine(2).final.code == 12  # type: ignore[attr-defined]


@pytest.mark.parametrize("point", RUNNER_POINTS)
def test_a_refused_runner_may_die_at_any_point(bench: Bench, point: str) -> None:
    """Whether its record was written or not, its command never ran, and a refused start is followed by the next."""
    full = {"output": b"/dev/full/log", "folder": bench.folder}
    bench.spec(command(1), **full)
    bench.finish(bench.begin(DIBS_CRASH=point))
    verdict = settle(bench, 1)
    assert isinstance(verdict, attempts.NeverStarted | attempts.Refused | attempts.Lost)
    bench.finish(bench.begin())
    assert bench.read("ran") == ""
    assert settle(bench, 1) == verdict
    if not isinstance(verdict, attempts.Lost):
        bench.spec(command(2), start=2)
        bench.finish(bench.begin(2))
        assert bench.read("ran") == "2\n"


@pytest.mark.parametrize(("wanted", "passes"), [("here", 0), ("here:1", 0), ("here:3", 2), ("there", 5), ("here:9", 5)])
def test_a_crash_point_strikes_at_the_requested_pass(bench: Bench, wanted: str, passes: int) -> None:
    program = EXAMINER.partition("attempts.examine")[0] + (
        "import os\nfrom dibs.system.crash_points import crash_point\n"
        "for _ in range(5): crash_point('here'); os.write(2, b'x')"
    )
    bench.finish(bench.launch(program, DIBS_CRASH=wanted))
    assert bench.complaints() == "x" * passes


# -- two crashes


@pytest.mark.parametrize(("runner_dies", "examiner_dies", "delay"), PAIRS)
def test_runner_and_examiner_may_both_die(bench: Bench, runner_dies: str, examiner_dies: str, delay: str) -> None:
    """Whichever process recovers next, even with a late runner, the command runs at most once."""
    bench.spec(command(1))
    bench.spec(command(2), start=2)
    first = bench.begin(DIBS_CRASH=runner_dies, DIBS_DELAY=delay)
    bench.finish(bench.launch(EXAMINER, bench.folder, DIBS_CRASH=examiner_dies))
    verdict = settle(bench, 1)
    if isinstance(verdict, attempts.NeverStarted):
        bench.finish(bench.begin(2))
        second = settle(bench, 2)
        assert isinstance(second, attempts.Ended), (second, bench.complaints())
        assert second.final.code == 12
    bench.finish(first)
    ran = bench.read("ran").split()
    match verdict:
        case attempts.NeverStarted():
            assert ran == ["2"]
        case attempts.Ended(final):
            assert (ran, final.code) == (["1"], 11)
        case attempts.Lost():
            assert first.returncode == -signal.SIGKILL
            assert ran in ([], ["1"])
        case _:
            pytest.fail(f"not a verdict: {verdict}")


def test_concurrent_give_ups_and_a_start_agree(bench: Bench) -> None:
    """In ten rounds of a race for the commit point, the one answer is what happened."""
    for start in range(1, 11):
        bench.spec(command(start), start=start)
        runner = bench.begin(start)
        # Spread over the time a runner needs to begin.
        time.sleep(0.004 * start)
        with ThreadPoolExecutor(3) as racers:
            given_up = set(racers.map(attempts.give_up, [bench.folder] * 3, [start] * 3))
        bench.finish(runner)
        assert given_up == {str(start) not in bench.read("ran").split()}


# -- verdicts


def test_an_abandoned_start_never_ran_and_never_will(folder: str) -> None:
    assert attempts.examine(folder, 1) == attempts.NeverStarted()
    assert attempts.read_started(folder, 1) == attempts.Tombstone()
    assert attempts.claim(folder, 1, "shim 1 2 boot") is None


def test_each_start_is_decided_separately(folder: str) -> None:
    assert attempts.give_up(folder, 1)
    os.close(claim(folder, 2))
    assert attempts.examine(folder, 1) == attempts.NeverStarted()
    assert attempts.examine(folder, 2) == attempts.Lost(None)


def test_giving_up_twice_is_the_same_as_once(folder: str) -> None:
    assert attempts.give_up(folder, 1)
    assert attempts.give_up(folder, 1)


def test_a_start_can_be_given_up_before_its_folder_exists(folder: str) -> None:
    assert attempts.give_up(f"{folder}/not/yet", 1)
    assert attempts.examine(f"{folder}/not/yet", 1) == attempts.NeverStarted()


def test_a_missing_folder_gives_no_verdict(folder: str) -> None:
    assert attempts.examine(f"{folder}/gone", 1) == attempts.Missing()


def claim(folder: str, start: int = 1, text: str = "shim 12 34 boot") -> int:
    """Claim a start as a runner does, and return the descriptor that keeps it locked."""
    fd = attempts.claim(folder, start, text)
    assert fd is not None
    return fd


def test_a_held_lock_means_that_the_runner_is_alive(folder: str) -> None:
    fd = claim(folder)
    assert attempts.examine(folder, 1) == attempts.Alive(attempts.Shim(12, 34, "boot"), None)
    os.close(fd)
    assert attempts.examine(folder, 1) == attempts.Lost(None)


def test_concurrent_examinations_agree(folder: str) -> None:
    os.close(claim(folder))
    with ThreadPoolExecutor(4) as lookers:
        verdicts = list(lookers.map(attempts.examine, [folder] * 200, [1] * 200))
    assert verdicts == [attempts.Lost(None)] * 200


def test_examining_releases_its_lock(folder: str) -> None:
    os.close(claim(folder))
    attempts.examine(folder, 1)
    assert not attempts.has_runner(folder, 1)
    assert not attempts.has_tree(folder)


def test_no_temporary_file_is_left(folder: str) -> None:
    os.close(claim(folder))
    assert not attempts.bury(folder, 1)
    assert attempts.claim(folder, 1, "shim 1 2 boot") is None
    assert sorted(os.listdir(folder)) == ["started.1"]


def test_all_files_are_private(bench: Bench) -> None:
    before = os.umask(0o022)
    bench.spec("true")
    attempts.append_order(bench.folder, 1, "resume")
    bench.finish(bench.begin())
    os.umask(before)
    modes = {entry.name: entry.stat().st_mode & 0o077 for entry in os.scandir(bench.folder)}
    assert set(modes) == {"started.1", "orders.1"}
    assert not any(modes.values())


# -- formats


def build_spec(**more: object) -> records.Spec:
    values = {"job": 1, "attempt": 1, "start": 1, "folder": "/x", "argv": (b"true",), "env": ()}
    return records.Spec(**{**values, "cwd": b"/", "output": b"/log", **more})  # type: ignore[arg-type]


#: Any bytes but NUL, which no argument, variable or path can contain.
raw = st.binary(max_size=40).map(lambda text: text.replace(b"\0", b"x"))
text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
seconds = st.floats(0, 1e9)


@given(
    argv=st.lists(raw).map(tuple),
    env=st.lists(raw).map(tuple),
    devices=st.lists(text).map(tuple),
    paths=st.tuples(raw, raw, st.none() | raw, st.none() | raw),
    numbers=st.tuples(seconds, seconds, st.none() | seconds),
    mode=st.none() | st.integers(0, 0o7777),
    wait_tree=st.booleans(),
)
def test_a_spec_survives_a_round_trip(argv, env, devices, paths, numbers, mode, wait_tree) -> None:  # type: ignore[no-untyped-def]
    cwd, output, stderr, notify = paths
    grace_s, leftover_grace_s, time_limit_s = numbers
    more = {"argv": argv, "env": env, "devices": devices, "cwd": cwd, "output": output, "stderr": stderr}
    more |= {"notify": notify, "grace_s": grace_s, "leftover_grace_s": leftover_grace_s, "wait_tree": wait_tree}
    spec = build_spec(**more, time_limit_s=time_limit_s, output_mode=mode, umask=mode or 0, start=3, note_job="ä")
    assert records.unpack(records.pack(spec)) == spec


def test_unknown_keys_of_a_spec_are_ignored() -> None:
    packed = records.pack(build_spec()) + b"\0colour=green\0argv\0=\0\0"
    assert records.unpack(packed) == build_spec(argv=(b"true", b""))


def test_a_nul_byte_in_a_spec_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        records.pack(build_spec(argv=(b"a\0b",)))


def test_a_spec_with_a_missing_key_is_refused() -> None:
    with pytest.raises(TypeError, match="Spec needs attempt, start"):
        records.unpack(b"dibs-spec 1\0job=1\0")


def test_a_record_refuses_a_name_that_it_does_not_have() -> None:
    with pytest.raises(TypeError, match="Final needs no colour"):
        records.Final("exited", colour="green")  # type: ignore[call-arg]


def test_a_final_record_says_only_what_differs_from_its_default(folder: str) -> None:
    status = claim(folder)
    record = records.write_final(status, records.Final("exited", ended_at_ns=7))
    os.close(status)
    assert record.split(b"\0")[1:-1] == [b"kind=exited", b"ended_at_ns=7"]
    assert records.read_final_record(record) == records.Final("exited", ended_at_ns=7)


whole = st.integers(0, 2**63)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(records.FINAL_KINDS),
    numbers=st.tuples(whole, whole, whole, whole, whole, whole),
    times=st.tuples(seconds, seconds),
    texts=st.tuples(text, text, text, text, text),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_a_final_record_survives_a_round_trip(folder, kind, numbers, times, texts, flags) -> None:  # type: ignore[no-untyped-def]
    texts = tuple(one.replace("\n", " ") for one in texts)
    final = records.Final(
        kind,
        **dict(zip(("code", "signal", "holder", "started_at_ns", "ended_at_ns", "max_rss_kib"), numbers, strict=True)),
        **dict(zip(("utime_s", "stime_s"), times, strict=True)),
        **dict(zip(("why", "device", "leftovers", "note", "scope"), texts, strict=True)),
        **dict(zip(("timed_out", "stopped"), flags, strict=True)),
    )
    Path(folder, "started.1").unlink(missing_ok=True)
    status = claim(folder)
    running = records.RunningCommand(1, 2, 3)
    records.write_running(status, running)
    records.write_final(status, final)
    os.close(status)
    assert records.read_final(folder, 1) == final
    assert records.read_running(folder, 1) == running
    assert os.path.getsize(f"{folder}/started.1") == records.SIZE


def test_long_texts_are_truncated_so_that_the_record_fits(folder: str) -> None:
    Path(folder, "started.1").unlink(missing_ok=True)
    status = claim(folder)
    longest = "ä" * 5000
    records.write_final(status, records.Final("failed", why=longest, device=longest, leftovers=longest, note=longest))
    os.close(status)
    final = records.read_final(folder, 1)
    assert final is not None
    assert final.why.startswith("äää")
    assert os.path.getsize(f"{folder}/started.1") == records.SIZE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flip=st.integers(0, records.SIZE * 8 - 1))
def test_one_flipped_bit_never_gives_another_result(folder: str, flip: int) -> None:
    Path(folder, "started.1").unlink(missing_ok=True)
    status = claim(folder)
    written = records.Final("exited", code=3, why="x")
    records.write_final(status, written)
    byte, bit = divmod(flip, 8)
    old = os.pread(status, 1, byte)
    os.pwrite(status, bytes([old[0] ^ 1 << bit]), byte)
    os.close(status)
    assert records.read_final(folder, 1) in (written, None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, records.SIZE))
def test_a_torn_record_is_no_record(folder: str, length: int) -> None:
    Path(folder, "started.1").unlink(missing_ok=True)
    status = claim(folder)
    written = records.Final("exited", code=3)
    records.write_final(status, written)
    os.ftruncate(status, length)
    os.close(status)
    assert records.read_final(folder, 1) in (written, None)
    assert attempts.examine(folder, 1) in (attempts.Ended(written), attempts.Lost(None))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(decision=st.none() | st.binary(max_size=60), status=st.binary(max_size=700), orders=st.binary(max_size=60))
def test_garbage_is_never_a_result(folder: str, decision: bytes | None, status: bytes, orders: bytes) -> None:
    for name in ("started.1", "orders.1"):
        Path(folder, name).unlink(missing_ok=True)
    Path(folder, "orders.1").write_bytes(orders)
    if decision is not None:
        at = records.FINAL_AT - len(status) // 2
        Path(folder, "started.1").write_bytes(decision.ljust(at, b"\0") + status)
    attempts.Orders(folder, 1).new()
    verdict = attempts.examine(folder, 1)
    # The file exists and is no tombstone: a runner may have begun, so the command must not start again.
    is_open = decision is None or decision.partition(b"\n")[0].split() == [b"tombstone"]
    assert verdict == (attempts.NeverStarted() if is_open else attempts.Lost(None))


def test_orders_are_read_once_and_completely(folder: str) -> None:
    orders = attempts.Orders(folder, 1)
    assert orders.new() == []
    attempts.append_order(folder, 1, "stop 3")
    attempts.append_order(folder, 1, "pause")
    assert orders.new() == [["stop", "3"], ["pause"]]
    assert orders.new() == []
    with open(f"{folder}/orders.1", "ab") as file:
        file.write(b"lim")
        file.flush()
        assert orders.new() == []
        file.write(b"it none\n")
    assert orders.new() == [["limit", "none"]]
