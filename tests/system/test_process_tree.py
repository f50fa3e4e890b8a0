"""The end of a process tree: one TERM, a grace period, then KILL. Each test is the parent of its own tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dibs
from attempt_bench import DEADLINE_S

PARENT = """
import os, signal, sys, time
sys.path.append(sys.argv[1])
from dibs.system import process_tree, processes
processes.become_subreaper()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
codes = []
def start(code):
    read, write = os.pipe()
    program = f"import os, signal, time\\n{code}\\nos.write({write}, b'.')\\nwhile True: time.sleep(60)"
    os.set_inheritable(write, True)
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ, setsigmask=())
    assert os.read(read, 1) == b"."
    return pid
def is_gone():
    return process_tree.reap(lambda pid, status, usage: codes.append((pid, process_tree.exit_code(status))))
def sleep(until):
    process_tree.wait_for_signal([signal.SIGCHLD], until)
termination = process_tree.Termination()
"""


def run(code: str) -> str:
    """Run code as the parent of a separate tree; return what it prints."""
    words = [sys.executable, "-c", PARENT + code, str(Path(dibs.__file__).parent.parent)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_that_obeys_term_never_gets_kill() -> None:
    assert run("start(''); termination.run(3600, is_gone, sleep); print(codes[0][1])") == "143"


def test_a_process_that_ignores_term_gets_kill_after_the_grace_period() -> None:
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    assert run(f"start({ignoring!r}); termination.run(0.05, is_gone, sleep); print(codes[0][1])") == "137"


def test_a_grace_of_zero_is_kill_at_once() -> None:
    assert run("start(''); termination.run(0, is_gone, sleep); print(codes[0][1])") == "137"


def test_each_process_gets_term_once() -> None:
    counting = "n = []; signal.signal(signal.SIGTERM, lambda *_: n.append(1) or len(n) > 1 and os._exit(9))"
    text = run(
        f"start({counting!r})\n"
        "termination.begin(3600, 0.0); termination.begin(3600, 0.0)\n"
        "print(all(map(termination.has_terminated, process_tree.living())))\n"
        "termination.run(0.2, is_gone, sleep); print(codes[0][1])"
    )
    assert text.split() == ["True", "137"]


def test_the_earliest_end_of_several_grace_periods_counts() -> None:
    text = run(
        "for grace_s, now in ((30, 0), (5, 10), (60, 11)): termination.begin(grace_s, now)\nprint(termination.kill_at)"
    )
    assert text == "15"


def test_the_whole_tree_ends_including_daemonized_processes() -> None:
    text = run(
        "start('if os.fork() or os.setsid() or os.fork(): time.sleep(3600)')\n"
        "termination.run(0, is_gone, sleep); print(len(codes), len(process_tree.living()))"
    )
    assert text == "3 0"


def test_a_tree_that_survives_kill_is_stuck_after_a_while() -> None:
    text = run(
        "print(termination.is_stuck(1e9), termination.kill(0.0) >= 0.0)\n"
        "print(termination.is_stuck(process_tree.STUCK_S), termination.is_stuck(process_tree.STUCK_S + 0.1))"
    )
    assert text.split() == ["False", "True", "False", "True"]
