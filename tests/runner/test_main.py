"""A runner starts its command as specified, waits for it, ends it when ordered, and records the true result."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_bench import DEADLINE_S, ROOT, RUNNER, Bench, give, until
from dibs.leases import device_lease
from dibs.runner import attempts, records
from dibs.runner import main as runner
from dibs.system import processes, refusals


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def python(code: str) -> tuple[bytes, ...]:
    """Return the argv that runs a piece of Python."""
    return (os.fsencode(sys.executable), b"-I", b"-S", b"-c", code.encode())


# -- results


@pytest.mark.parametrize("code", [0, 1, 7, 137, 255])
def test_the_exit_code_is_recorded(bench: Bench, code: int) -> None:
    final = bench.run(f"exit {code}")
    assert (final.kind, final.code, final.signal, final.stopped, final.timed_out) == ("exited", code, 0, False, False)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_signal_is_not_an_exit_code(bench: Bench, signum: int) -> None:
    final = bench.run(f"kill -{int(signum)} $$")
    assert (final.kind, final.signal, final.code, final.stopped) == ("signalled", signum, 0, False)


def test_times_and_usage_are_recorded(bench: Bench) -> None:
    before = time.time_ns()
    final = bench.run(python("sum(range(3_000_000)); b = bytearray(60_000_000)"))
    assert before <= final.started_at_ns <= final.ended_at_ns <= time.time_ns()
    assert final.max_rss_kib > 50_000
    assert 0.01 < final.utime_s + final.stime_s < 60


@pytest.mark.parametrize(
    ("argv", "code", "why"),
    [
        ((b"no-such-program",), 127, "no-such-program: No such file or directory"),
        ((b"/no/such/program",), 127, "/no/such/program: No such file or directory"),
        ((b"",), 127, ": No such file or directory"),
        ((b"./plain",), 126, "./plain: Permission denied"),
        ((b"/",), 126, "/: Permission denied"),
        ((b"./bad-shebang",), 126, "./bad-shebang: No such file or directory"),
        ((b"true", b"x" * 140_000), 126, "true: Argument list too long"),
    ],
)
def test_a_command_that_cannot_start_gives_the_reason(
    bench: Bench, argv: tuple[bytes, ...], code: int, why: str
) -> None:
    (bench.tmp / "plain").write_text("echo hello\n")
    (bench.tmp / "bad-shebang").write_text("#!/no/such/interpreter\n")
    (bench.tmp / "bad-shebang").chmod(0o755)
    final = bench.run(argv)
    assert (final.kind, final.code, final.why, final.started_at_ns) == ("failed", code, why, 0)
    assert final.ended_at_ns > 0


def test_a_script_without_shebang_is_run_by_sh(bench: Bench) -> None:
    (bench.tmp / "script").write_text('echo "$1"; exit 3\n')
    (bench.tmp / "script").chmod(0o755)
    assert bench.run((b"./script", b"hello")).code == 3
    assert bench.read() == "hello\n"


def test_the_program_is_searched_in_the_jobs_own_path_relative_to_its_folder(bench: Bench) -> None:
    for name, mode in (("first", 0o644), ("second", 0o755)):
        (bench.tmp / name).mkdir()
        (bench.tmp / name / "tool").write_text(f"#!/bin/sh\necho {name}\n")
        (bench.tmp / name / "tool").chmod(mode)
    assert bench.run((b"tool",), env=(b"PATH=first:second",)).code == 0
    assert bench.read() == "second\n"


def test_the_error_about_a_missing_folder_names_it(bench: Bench) -> None:
    gone = bench.tmp / "gone"
    final = bench.run("true", cwd=os.fsencode(gone))
    assert (final.kind, final.code, final.why) == ("failed", 126, f"{gone}: No such file or directory")


def test_the_error_about_an_unwritable_output_names_it(bench: Bench) -> None:
    (bench.tmp / "file").write_text("")
    final = bench.run("true", output=os.fsencode(bench.tmp / "file" / "log"), output_mode=0o644)
    assert (final.kind, final.code) == ("failed", 126)
    assert final.why.endswith(": Not a directory")


@pytest.mark.parametrize("more", [{}, {"output_mode": 0o666}])
def test_a_fifo_as_output_fails_the_job_at_once(bench: Bench, more: dict[str, int]) -> None:
    """It held its GPUs while it waited for a reader, and could not be cancelled."""
    os.mkfifo(bench.tmp / "log")
    final = bench.run("true", **more)
    assert (final.kind, final.code) == ("failed", 126)
    assert final.why.endswith("log: expected a regular file or a terminal, but it is a FIFO")


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a link to another user needs root")
def test_our_log_is_not_written_through_a_link_of_another_user(bench: Bench) -> None:
    """The folder was checked when the daemon started; somebody may have replaced it since."""
    (bench.tmp / "stolen").mkdir()
    link = bench.tmp / "logs"
    link.symlink_to("stolen")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    final = bench.run("echo secret", output=os.fsencode(link / "7" / "log"))
    assert f"the link {link} belongs to another user (uid 65534)" in final.why
    assert list((bench.tmp / "stolen").iterdir()) == []


def test_output_may_be_discarded(bench: Bench) -> None:
    assert bench.run("echo hello", output=b"/dev/null", output_mode=0o666).code == 0


def test_our_own_log_that_cannot_be_opened_is_not_the_jobs_failure(bench: Bench) -> None:
    """Only this job waits: its log is in a folder of its own."""
    (bench.tmp / "file").write_text("")
    final = bench.run("echo ran", output=os.fsencode(bench.tmp / "file" / "log"))
    assert (final.kind, final.scope) == ("refused", "job")
    assert final.why == f"Not a directory ({bench.tmp}/file/log)"


def test_a_log_folder_that_cannot_be_made_is_named(bench: Bench) -> None:
    (bench.tmp / "file").write_text("")
    final = bench.run("echo ran", folders=(os.fsencode(bench.tmp / "file" / "checkpoint"),))
    assert (final.kind, final.scope) == ("refused", "job")
    assert final.why == f"Not a directory ({bench.tmp}/file/checkpoint)"
    assert bench.complaints() == ""


def test_too_few_descriptors_for_the_command_are_an_error_of_the_machine(bench: Bench) -> None:
    bench.spec("echo ran")
    bench.run_from('ulimit -n 40; exec "$@"')
    final = bench.examine().final  # type: ignore[attr-defined]
    assert isinstance(bench.examine(), attempts.Refused)
    assert (final.kind, final.scope, final.why) == ("refused", "queue", "Too many open files (/bin/sh)")
    assert bench.read() == ""


def test_an_internal_error_before_the_command_is_recorded_as_ours(bench: Bench) -> None:
    final = bench.run("true", shares=("nonsense",), lease_dir=str(bench.tmp))
    assert (final.kind, final.code) == ("failed", 125)
    assert final.why.startswith("ValueError: ")
    assert "Traceback" in bench.complaints()


# -- the environment of the command


def test_arguments_and_environment_arrive_byte_for_byte(bench: Bench) -> None:
    odd = bytes(range(1, 256))
    code = "import os, sys; print(os.environb[b'ODD'].hex(), os.fsencode(sys.argv[1]).hex())"
    bench.run((*python(code), odd), env=(b"ODD=" + odd, b"PATH=/bin", bench.marker))
    assert bench.read().split() == [odd.hex(), odd.hex()]


def test_the_environment_is_exactly_that_of_the_spec(bench: Bench) -> None:
    bench.spec((b"/usr/bin/env",), env=(b"A=1", b"B=x=y\nz", b"EMPTY="))
    bench.finish(bench.begin(DIBS_LEAK="1"))
    assert bench.read() == "A=1\nB=x=y\nz\nEMPTY=\n"


def test_stdout_and_stderr_share_one_log_in_order(bench: Bench) -> None:
    bench.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    assert bench.read() == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert (bench.tmp / "log").stat().st_mode & 0o777 == 0o600


def test_stderr_may_have_a_separate_file(bench: Bench) -> None:
    bench.run("echo out; echo err >&2", stderr=b"deep/er/errors", output_mode=0o666, umask=0o022)
    assert (bench.read("log"), bench.read("deep/er/errors")) == ("out\n", "err\n")
    assert (bench.tmp / "log").stat().st_mode & 0o777 == 0o644


def test_a_separate_file_for_stderr_is_the_users_also_beside_our_own_log(bench: Bench) -> None:
    (bench.tmp / "errors").symlink_to(bench.tmp / "target")
    bench.run("echo out; echo err >&2", stderr=b"errors", umask=0o022)
    assert (bench.read("log"), bench.read("target")) == ("out\n", "err\n")
    modes = [(bench.tmp / name).stat().st_mode & 0o777 for name in ("log", "target")]
    assert modes == [0o600, 0o644]


def test_a_folder_as_the_file_for_stderr_fails_the_job(bench: Bench) -> None:
    """It is not the machine's trouble: the next try would end alike."""
    (bench.tmp / "errors").mkdir()
    final = bench.run("echo out", stderr=b"errors")
    assert (final.kind, final.code) == ("failed", 126)


def test_output_is_appended(bench: Bench) -> None:
    (bench.tmp / "log").write_text("before\n")
    bench.run("echo after")
    assert bench.read() == "before\nafter\n"


def test_the_default_log_is_never_written_through_a_link(bench: Bench) -> None:
    (bench.tmp / "log").symlink_to(bench.tmp / "target")
    assert bench.run("echo hello").code == 126
    assert not (bench.tmp / "target").exists()


def test_a_chosen_output_may_be_a_link(bench: Bench) -> None:
    (bench.tmp / "log").symlink_to(bench.tmp / "target")
    assert bench.run("echo hello", output_mode=0o666).code == 0
    assert bench.read("target") == "hello\n"


def test_folder_umask_session_and_stdin_are_as_specified(bench: Bench) -> None:
    code = (
        "import os, sys\n"
        "mask = os.umask(0)\n"
        "print(os.getcwd(), oct(mask), os.getsid(0) == os.getpid() == os.getpgid(0), os.readlink('/proc/self/fd/0'))"
    )
    (bench.tmp / "folder").mkdir()
    bench.run(python(code), cwd=os.fsencode(bench.tmp / "folder"), umask=0o027)
    assert bench.read() == f"{bench.tmp}/folder 0o27 True /dev/null\n"


def test_no_signal_is_blocked_or_ignored(bench: Bench) -> None:
    bench.run("grep -E '^Sig(Blk|Ign)' /proc/self/status")
    # 32 and 33 are reserved by the C library; its posix_spawn ignores them, and its threads set them when needed.
    theirs = 1 << 31 | 1 << 32
    assert [int(mask, 16) & ~theirs for mask in bench.read().split()[1::2]] == [0, 0]


def test_a_command_writing_to_a_broken_pipe_ends_quietly(bench: Bench) -> None:
    """Python ignores SIGPIPE, and the command would inherit that."""
    bench.run("yes | head -n 1")
    assert bench.read() == "y\n"


def test_only_the_lock_of_the_process_tree_is_inherited(bench: Bench) -> None:
    code = (
        "import os\n"
        "for fd in range(3, 1000):\n"
        "    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n"
        "    except OSError: pass"
    )
    bench.run(python(code))
    assert bench.read() == f"100 {bench.folder}\n"


def test_a_stray_descriptor_of_the_caller_does_not_reach_the_command(bench: Bench) -> None:
    bench.spec("ls /proc/self/fd/9 2>/dev/null; exit 0")
    shell = 'exec 9</dev/null; "$@"'
    bench.run_from(shell)
    assert bench.read() == ""


def test_a_runner_started_without_stdin_stdout_stderr_still_works(bench: Bench) -> None:
    bench.spec("echo out; echo err >&2; exit 5")
    shell = 'exec 0<&- 1>&- 2>&-; exec "$@"'
    bench.run_from(shell)
    verdict = bench.examine()
    assert isinstance(verdict, attempts.Ended)
    assert (verdict.final.kind, verdict.final.code, bench.read()) == ("exited", 5, "out\nerr\n")


def test_a_caller_that_ignores_sigchld_does_not_lose_the_result(bench: Bench) -> None:
    bench.spec("exit 5")
    shell = 'trap "" CHLD; exec "$@"'
    bench.run_from(shell)
    assert bench.examine().final.code == 5  # type: ignore[attr-defined]


# -- leases


def test_a_lease_lasts_as_long_as_the_command(bench: Bench) -> None:
    place = device_lease.Folder(str(bench.tmp))
    bench.spec("echo up; exec sleep 60", devices=("FAKE-0", "FAKE-1"), lease_dir=str(bench.tmp), note_job="12")
    runner = bench.begin()
    bench.wait_for("up")
    with pytest.raises(device_lease.Refused):
        device_lease.take(place, ["FAKE-1"], device_lease.Note())
    bench.order("stop 5")
    bench.finish(runner)
    for lease in device_lease.take(place, ["FAKE-0", "FAKE-1"], device_lease.Note()):
        lease.close()


def test_a_command_without_its_runner_keeps_the_lease(bench: Bench) -> None:
    place = device_lease.Folder(str(bench.tmp))
    bench.spec("echo up; exec sleep 60", devices=("FAKE-0",), lease_dir=str(bench.tmp))
    runner = bench.begin()
    bench.wait_for("up")
    runner.kill()
    bench.finish(runner)
    with pytest.raises(device_lease.Refused):
        device_lease.take(place, ["FAKE-0"], device_lease.Note())


def test_a_refused_device_is_named_with_its_holder_and_nothing_runs(bench: Bench) -> None:
    held = device_lease.take(device_lease.Folder(str(bench.tmp)), ["FAKE-1"], device_lease.Note())
    final = bench.run("echo ran", devices=("FAKE-0", "FAKE-1"), lease_dir=str(bench.tmp))
    assert (final.kind, final.device, final.why, final.holder) == ("nolease", "FAKE-1", "leased", os.getpid())
    assert isinstance(bench.examine(), attempts.NoLease)
    assert bench.read() == ""
    held[0].close()


def test_a_share_that_does_not_fit_is_refused(bench: Bench) -> None:
    place = device_lease.Folder(str(bench.tmp))
    held = device_lease.take_shared(place, "FAKE-0", 700, 1000, 4, device_lease.Note())
    assert bench.run("true", shares=("FAKE-0 400 1000 4",), lease_dir=str(bench.tmp)).kind == "nolease"
    held.close()


# -- messages to the daemon


def test_a_listener_is_notified_when_the_command_runs(bench: Bench) -> None:
    path = os.fsencode(bench.tmp / "ears")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.settimeout(DEADLINE_S)
        ears.bind(path)
        bench.spec("sleep 600", notify=path)
        runner = bench.begin()
        running, *words = ears.recv(1000).decode().split()
        assert (running, words[:3]) == ("running", ["12", "1", "1"])
        record = bench.wait_running()
        assert words[3:] == [str(record.pid), str(record.started_at_ns)]
        os.killpg(record.pid, signal.SIGKILL)
        bench.finish(runner)


def test_a_missing_or_full_listener_does_not_matter(bench: Bench) -> None:
    assert bench.run("exit 4", notify=b"/no/such/socket").code == 4


# -- ending a process tree

#: Forks twice into its own session, closes everything, ignores TERM and restarts itself every few milliseconds.
HYDRA = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def head():
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    os.closerange(0, 300)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.002)
        if os.fork(): os._exit(0)
        os.setsid()
    os._exit(0)
for _ in range(4): head()
print('up', flush=True)
time.sleep(60)
"""


def test_a_process_tree_that_ignores_term_and_respawns_is_killed_after_the_grace(bench: Bench) -> None:
    bench.spec(python(HYDRA))
    runner = bench.begin()
    bench.wait_for("up")
    began = time.monotonic()
    bench.order("stop 0.3")
    bench.finish(runner)
    assert bench.is_over()
    assert 0.3 <= time.monotonic() - began < 25
    verdict = bench.examine()
    assert isinstance(verdict, attempts.Ended)
    assert (verdict.final.kind, verdict.final.signal, verdict.final.stopped) == ("signalled", signal.SIGKILL, True)


def test_a_stopped_command_has_its_grace_and_its_own_exit_code(bench: Bench) -> None:
    bench.spec("trap 'echo saving; exit 3' TERM; echo up; while :; do sleep 0.01; done")
    runner = bench.begin()
    bench.wait_for("up")
    bench.order("stop 30")
    bench.finish(runner)
    verdict = bench.examine()
    assert isinstance(verdict, attempts.Ended)
    assert (verdict.final.kind, verdict.final.code, verdict.final.stopped) == ("exited", 3, True)
    assert verdict.final.leftovers == ""


def test_a_helper_process_started_during_the_grace_gets_no_sigterm(bench: Bench) -> None:
    bench.spec("trap '/bin/sh -c \"sleep 0.3; echo saved\"; exit 0' TERM; echo up; while :; do sleep 0.01; done")
    runner = bench.begin()
    bench.wait_for("up")
    bench.order("stop 30")
    bench.finish(runner)
    assert "saved" in bench.read()


def test_a_plain_sigterm_is_a_stop_with_the_default_grace(bench: Bench) -> None:
    bench.spec("trap '' TERM; echo up; while :; do sleep 0.01; done", grace_s=0.2)
    runner = bench.begin()
    bench.wait_for("up")
    runner.terminate()
    bench.finish(runner)
    verdict = bench.examine()
    assert isinstance(verdict, attempts.Ended)
    assert (verdict.final.signal, verdict.final.stopped) == (signal.SIGKILL, True)


def test_the_runner_ignores_sigint_and_sighup(bench: Bench) -> None:
    bench.spec("echo up; read x < fifo; exit 6")
    os.mkfifo(bench.tmp / "fifo")
    runner = bench.begin()
    bench.wait_for("up")
    runner.send_signal(signal.SIGINT)
    runner.send_signal(signal.SIGHUP)
    (bench.tmp / "fifo").write_text("go\n")
    bench.finish(runner)
    assert bench.examine().final.code == 6  # type: ignore[attr-defined]


def test_a_second_stop_may_shorten_the_grace_but_not_lengthen_it(bench: Bench) -> None:
    bench.spec("trap '' TERM; echo up; while :; do sleep 0.01; done")
    runner = bench.begin()
    bench.wait_for("up")
    bench.order("stop 600")
    bench.order("stop 0")
    bench.order("stop 600")
    bench.finish(runner)
    assert bench.is_over()


def test_a_stop_ordered_before_the_command_started_is_executed(bench: Bench) -> None:
    bench.spec("exec sleep 60")
    attempts.append_order(bench.folder, 1, "stop 0")
    bench.finish(bench.begin())
    verdict = bench.examine()
    assert isinstance(verdict, attempts.Ended)
    assert verdict.final.stopped


def test_a_stop_resumes_a_paused_process_tree(bench: Bench) -> None:
    # It starts no processes: a shell that is stopped while it waits for a vfork shows as D, not as T.
    bench.spec("trap 'exit 3' TERM; echo up; while :; do :; done")
    runner = bench.begin()
    bench.wait_for("up")
    bench.order("pause")
    until(lambda: all(proc.is_stopped for proc in bench.living()), "a paused tree")
    bench.order("stop 30")
    bench.finish(runner)
    assert bench.examine().final.code == 3  # type: ignore[attr-defined]


def test_any_signal_reaches_the_whole_process_tree(bench: Bench) -> None:
    child = "sh -c 'trap \"echo child; exit\" USR2; while :; do sleep 0.01; done' & "
    bench.spec(f"trap 'echo main; wait; exit' USR2; {child} sleep 0.05; echo up; while :; do sleep 0.01; done")
    runner = bench.begin()
    bench.wait_for("up")
    until(lambda: len([proc for proc in bench.living() if proc.comm == "sh"]) == 2)
    bench.order(f"signal {int(signal.SIGUSR2)}")
    bench.wait_for("main")
    bench.wait_for("child")
    bench.finish(runner)


def test_unknown_and_broken_orders_are_ignored(bench: Bench) -> None:
    bench.spec("echo up; exec sleep 60")
    runner = bench.begin()
    bench.wait_for("up")
    for line in ("dance 3", "stop soon", "stop nan", "signal", "signal 4711", "limit", "limit x y", "\udce4"):
        path = Path(bench.folder) / "orders.1"
        with path.open("ab") as file:
            file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    runner.send_signal(signal.SIGUSR1)
    bench.order("stop 0")
    bench.finish(runner)
    assert bench.examine().final.stopped  # type: ignore[attr-defined]


def test_unreadable_orders_do_not_stop_the_runner(bench: Bench) -> None:
    os.mkdir(f"{bench.folder}/orders.1")
    final = bench.run("sleep 60 & exec sleep 60", time_limit_s=0.2)
    assert (final.timed_out, final.signal) == (True, signal.SIGTERM)
    assert "IsADirectoryError" in bench.complaints()


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="LEFT OUT: an unkillable process needs root and setpriv"
)
def test_an_unkillable_process_is_reported_and_waited_for(bench: Bench) -> None:
    """Without CAP_KILL even root cannot signal a process of another user: as if stuck in a driver."""
    os.mkfifo(bench.tmp / "fifo")
    code = "import os; fd = os.open('fifo', os.O_RDWR); os.setuid(65534); print('up', flush=True); os.read(fd, 1)"
    path = os.fsencode(bench.tmp / "ears")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.settimeout(DEADLINE_S)
        ears.bind(path)
        bench.spec(python(code), notify=path)
        with bench.served() as its:
            words = [sys.executable, "-I", "-S", "-c", RUNNER, str(its.fileno())]
            words = ["setpriv", "--bounding-set", "-kill", *words]
            bench.started.append(runner := subprocess.Popen(words, pass_fds=[its.fileno()]))
        bench.wait_for("up")
        running = ears.recv(1000).split()[4].decode()
        bench.order("stop 0")
        assert ears.recv(1000).decode().startswith(f"stuck 12 1 1 {running} python")
        assert isinstance(bench.examine(), attempts.Alive)
        (bench.tmp / "fifo").write_text("x")
        bench.finish(runner)
    verdict = bench.examine()
    assert isinstance(verdict, attempts.Ended)
    assert (verdict.final.kind, verdict.final.code, verdict.final.stopped) == ("exited", 0, True)
    assert verdict.final.note.startswith(f"survived KILL for 5 s: {running} python")


# -- leftovers

#: Leaves a process in a new session with everything closed, as a daemon does.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.closerange(0, 300)
    time.sleep(float(sys.argv[1]))
    open('finished', 'w').close()
    os._exit(0)
os.wait()
sys.exit(9)
"""


def test_a_job_ends_with_its_first_process_and_leftovers_are_ended_and_named(bench: Bench) -> None:
    final = bench.run((*python(DAEMON), b"60"))
    assert (final.kind, final.code, final.stopped) == ("exited", 9, False)
    assert "python" in final.leftovers
    assert bench.is_over()


def test_a_stubborn_leftover_is_killed_after_its_grace(bench: Bench) -> None:
    final = bench.run(
        "sh -c 'trap \"\" TERM; echo deaf; while :; do sleep 0.01; done' & sleep 0.3", leftover_grace_s=0.3
    )
    assert (final.kind, final.code) == ("exited", 0)
    assert " sh" in final.leftovers
    assert bench.is_over()


def test_the_end_time_is_that_of_the_first_process(bench: Bench) -> None:
    began = time.time_ns()
    final = bench.run("sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' &", leftover_grace_s=1.0)
    assert final.ended_at_ns - began < time.time_ns() - began - 900_000_000


def test_a_helper_process_that_exits_at_once_is_no_leftover(bench: Bench) -> None:
    os.mkfifo(bench.tmp / "fifo")
    final = bench.run("exec 3<>fifo; (sleep 0.02) & exit 0")
    assert final.leftovers == ""


def test_wait_tree_waits_for_all_processes(bench: Bench) -> None:
    final = bench.run((*python(DAEMON), b"0.5"), wait_tree=True)
    assert (final.kind, final.code, final.leftovers) == ("exited", 9, "")
    assert (bench.tmp / "finished").exists()


def test_wait_tree_still_respects_the_limit(bench: Bench) -> None:
    final = bench.run((*python(DAEMON), b"60"), wait_tree=True, time_limit_s=0.6)
    assert (final.kind, final.code, final.timed_out) == ("exited", 9, True)
    assert bench.is_over()


def test_wait_tree_still_respects_a_stop(bench: Bench) -> None:
    bench.spec((*python(DAEMON), b"60"), wait_tree=True)
    runner = bench.begin()
    main = bench.wait_running()
    until(lambda: processes.identity(main.pid) is None, "the end of the first process")
    bench.order("stop 5")
    bench.finish(runner)
    final = bench.examine().final  # type: ignore[attr-defined]
    assert (final.code, final.stopped) == (9, True)


# -- limits and pauses


def test_the_time_limit_ends_the_process_tree(bench: Bench) -> None:
    final = bench.run("sleep 60 & exec sleep 60", time_limit_s=0.2)
    assert (final.kind, final.signal, final.timed_out, final.stopped) == ("signalled", signal.SIGTERM, True, False)
    assert bench.is_over()


def test_a_command_that_ends_in_time_did_not_time_out(bench: Bench) -> None:
    assert not bench.run("true", time_limit_s=20.0).timed_out


def test_an_order_changes_the_limit(bench: Bench) -> None:
    bench.spec("echo up; exec sleep 60", time_limit_s=3600.0)
    runner = bench.begin()
    bench.wait_for("up")
    bench.order("limit 0.1")
    bench.finish(runner)
    assert bench.examine().final.timed_out  # type: ignore[attr-defined]


def test_a_limit_can_be_removed(bench: Bench) -> None:
    bench.spec("echo up; read x < fifo; exit 6", time_limit_s=1.0)
    os.mkfifo(bench.tmp / "fifo")
    attempts.append_order(bench.folder, 1, "limit none")
    runner = bench.begin()
    running = bench.wait_running()
    until(lambda: time.time_ns() > running.started_at_ns + 1_300_000_000)
    (bench.tmp / "fifo").write_text("go\n")
    bench.finish(runner)
    final = bench.examine().final  # type: ignore[attr-defined]
    assert (final.code, final.timed_out) == (6, False)


def test_paused_time_does_not_count(bench: Bench) -> None:
    bench.spec("sleep 60 & echo up; exec sleep 60", time_limit_s=2.0)
    runner = bench.begin()
    bench.wait_for("up")
    bench.order("pause")
    until(lambda: all(proc.is_stopped for proc in bench.living()), "a paused tree")
    running = bench.wait_running()
    until(lambda: time.time_ns() > running.started_at_ns + 2_500_000_000)
    assert len(bench.living()) == 2
    bench.order("resume")
    until(lambda: not any(proc.is_stopped for proc in bench.living()), "a tree that goes on")
    bench.finish(runner)
    final = bench.examine().final  # type: ignore[attr-defined]
    assert final.timed_out
    assert final.ended_at_ns - final.started_at_ns > 2_500_000_000


def test_processes_forked_during_a_pause_are_paused_too(bench: Bench) -> None:
    bench.spec("while :; do sleep 0.001 & sleep 0.001 & wait; done")
    runner = bench.begin()
    bench.wait_running()
    bench.order("pause")
    until(lambda: bench.living() and all(proc.is_stopped for proc in bench.living()), "a paused tree")
    bench.order("stop 1")
    bench.finish(runner)
    assert bench.is_over()


# -- which runner may run


def test_two_runners_for_one_start_run_it_once(bench: Bench) -> None:
    bench.spec("echo ran; sleep 0.3; exit 2")
    for process in [bench.begin() for _ in range(4)]:
        assert bench.finish(process) == 0
    assert bench.read() == "ran\n"
    assert bench.examine().final.code == 2  # type: ignore[attr-defined]


def test_a_late_runner_finds_the_tombstone_and_leaves(bench: Bench) -> None:
    bench.spec("echo ran")
    runner = bench.begin(DIBS_DELAY="started:written:300")
    until(lambda: os.listdir(bench.folder), "a runner about to claim")
    assert attempts.give_up(bench.folder, 1)
    assert bench.finish(runner) == 0
    assert isinstance(bench.examine(), attempts.NeverStarted)
    assert bench.read() == ""


def test_a_claimed_start_cannot_be_given_up(bench: Bench) -> None:
    bench.spec("echo up; exec sleep 60")
    bench.begin()
    bench.wait_for("up")
    assert not attempts.give_up(bench.folder, 1)


def test_a_late_runner_of_an_earlier_start_does_not_disturb_the_next(bench: Bench) -> None:
    bench.spec("echo first", start=1)
    bench.spec("echo second", start=2)
    late = bench.begin(1, DIBS_DELAY="started:written:200")
    until(lambda: os.listdir(bench.folder), "a runner about to claim")
    assert attempts.give_up(bench.folder, 1)
    bench.finish(bench.begin(2))
    bench.finish(late)
    assert isinstance(bench.examine(2), attempts.Ended)
    assert bench.read() == "second\n"


def test_a_start_never_runs_beside_leftovers_of_an_earlier_one(bench: Bench) -> None:
    bench.spec("echo first; exec sleep 60", start=1)
    bench.spec("echo second", start=2)
    first = bench.begin(1)
    bench.wait_for("first")
    first.kill()
    bench.finish(first)
    bench.finish(bench.begin(2))
    final = bench.examine(2).final  # type: ignore[attr-defined]
    assert (final.kind, final.scope) == ("refused", "job")
    assert final.why == "a process of an earlier start of this attempt still runs"
    assert bench.read() == "first\n"


def test_an_unreadable_spec_counts_as_never_started(bench: Bench) -> None:
    bench.specs[1] = b"dibs-spec 99\0job=1"
    assert bench.finish(bench.begin()) == 1
    assert isinstance(bench.examine(), attempts.NeverStarted)


# -- without its runner


def test_a_command_without_its_runner_is_orphaned_and_then_lost(bench: Bench) -> None:
    os.mkfifo(bench.tmp / "fifo")
    bench.spec("echo up; read x < fifo; exit 0")
    runner = bench.begin()
    bench.wait_for("up")
    running = bench.wait_running()
    assert isinstance(bench.examine(), attempts.Alive)
    runner.kill()
    bench.finish(runner)
    assert attempts.has_tree(bench.folder)
    assert bench.examine() == attempts.Orphaned(running)
    (bench.tmp / "fifo").write_text("go\n")
    until(lambda: not attempts.has_tree(bench.folder), "the end of the command")
    assert bench.examine() == attempts.Lost(running)


def test_leftovers_of_a_dead_runner_are_ended(bench: Bench) -> None:
    bench.spec(python(HYDRA))
    runner = bench.begin()
    bench.wait_for("up")
    runner.kill()
    bench.finish(runner)
    assert bench.finish(bench.launch(RUNNER, "leftovers", bench.folder, "0.2", bench.marker.decode())) == 0
    assert bench.is_over()
    assert not attempts.has_tree(bench.folder)
    assert isinstance(bench.examine(), attempts.Lost)


def test_leftovers_of_a_dead_runner_get_a_grace_and_other_processes_are_left_alone(bench: Bench) -> None:
    bench.spec("trap 'echo saving; exit' TERM; echo up; while :; do sleep 0.01; done")
    stranger = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "DIBS_BENCH": "other"})
    runner = bench.begin()
    bench.wait_for("up")
    runner.kill()
    bench.finish(runner)
    bench.finish(bench.launch(RUNNER, "leftovers", bench.folder, "30", bench.marker.decode()))
    assert "saving" in bench.read()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


# -- the machine


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="LEFT OUT: a full disk needs root and unshare"
)
def test_the_result_is_recorded_on_a_full_disk(bench: Bench) -> None:
    """The command fills the disk of its own attempt; its exit code is known afterwards all the same."""
    bench.spec("cat /dev/zero > attempt/filler; echo x >> attempt/filler && exit 1; exit 7")
    bench.run_from(f"""exec unshare -m sh -c '
        mount -t tmpfs -o size=300k none {bench.folder} || exit 99
        "$@"
        cp {bench.folder}/started.1 {bench.tmp}' sh "$@"
    """)
    assert "No space left on device" in bench.read()
    final = records.read_final(str(bench.tmp), 1)
    assert final is not None
    assert (final.kind, final.code) == ("exited", 7)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="LEFT OUT: a full disk needs root and unshare"
)
def test_a_disk_too_full_to_start_is_reported_to_the_daemon(bench: Bench) -> None:
    """No file can say so."""
    bench.spec("echo ran")
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        give(ours, bench.specs[1])
        with its:
            bench.run_from(
                f"""exec unshare -m sh -c '
                mount -t tmpfs -o size=64k none {bench.folder} || exit 99
                cat /dev/zero > {bench.folder}/filler 2>/dev/null
                "$@" || exit 98
                ls -a {bench.folder} > {bench.tmp}/seen' sh "$@"
            """,
                its,
            )
        refusal = refusals.unpack(ours.recv(refusals.LONGEST_BYTES))
    assert refusal is not None
    assert (refusal.scope, refusal.why.startswith("No space left on device")) == ("queue", True)
    assert "started" not in bench.read("seen")
    assert bench.read() == ""


# -- several starts in one runner


def test_one_runner_executes_many_starts_and_keeps_no_state(bench: Bench) -> None:
    leased = {"devices": ("FAKE-0",), "lease_dir": str(bench.tmp)}
    bench.spec("umask; exit 3", 1, umask=0o020, **leased)
    bench.spec("umask; kill -9 $$", 2, umask=0o040, **leased)
    bench.spec((b"no-such-program",), 3, **leased)
    bench.spec("umask; exit 6", 4, umask=0, cwd=b"/", **leased)
    seen = []
    with bench.runner() as (process, ours):
        for start in range(1, 5):
            give(ours, bench.specs[start])
            assert ours.recv(4096).startswith(runner.OVER)
            seen.append((len(os.listdir(f"/proc/{process.pid}/fd")), os.readlink(f"/proc/{process.pid}/cwd")))
            device_lease.take(device_lease.Folder(str(bench.tmp)), ["FAKE-0"], device_lease.Note())[0].close()
    finals = [bench.examine(start).final for start in range(1, 5)]  # type: ignore[attr-defined]
    assert [(final.code, final.signal) for final in finals] == [(3, 0), (0, 9), (127, 0), (6, 0)]
    assert bench.read().split() == ["0020", "0040", "0000"]
    assert len(set(seen)) == 1


def test_a_runner_reports_the_end_of_a_start_after_closing_everything(bench: Bench) -> None:
    bench.spec("exit 3", devices=("FAKE-0",), lease_dir=str(bench.tmp))
    with bench.runner() as (_, ours):
        give(ours, bench.specs[1])
        said = ours.recv(4096)
        assert said.startswith(runner.OVER)
        assert records.read_final_record(said[len(runner.OVER) :]) == bench.examine().final  # type: ignore[attr-defined]
        assert bench.examine().final.code == 3  # type: ignore[attr-defined]
        assert not attempts.has_tree(bench.folder)
        device_lease.take(device_lease.Folder(str(bench.tmp)), ["FAKE-0"], device_lease.Note())[0].close()


def test_a_late_stop_does_not_hit_the_next_start(bench: Bench) -> None:
    """The daemon may signal a runner that has just finished; it sends nothing new before that."""
    bench.spec("exit 3", 1)
    bench.spec("exit 4", 2)
    with bench.runner() as (process, ours):
        give(ours, bench.specs[1])
        assert ours.recv(4096).startswith(runner.OVER)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR1)
        give(ours, bench.specs[2])
        assert ours.recv(4096).startswith(runner.OVER)
    final = bench.examine(2).final  # type: ignore[attr-defined]
    assert (final.kind, final.code, final.stopped) == ("exited", 4, False)


def test_a_runner_imports_no_expensive_module() -> None:
    dear = {"json", "re", "typing", "dataclasses", "enum", "socket", "subprocess", "pathlib", "logging", "threading"}
    code = f"import sys; sys.path.append({ROOT!r}); from dibs.runner import main as runner; print(*sys.modules)"
    seen = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, text=True).stdout
    assert "dibs.runner.main" in seen.split()
    assert dear.isdisjoint(seen.split())
