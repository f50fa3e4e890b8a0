"""`on_stop` and `is_stopping`: real processes with the environment of a job get real signals. No daemon is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from bench import wait_for
from dibs.errors import UserError
from dibs.python_api import on_stop

#: Prints when it is called, and never waits for more.
HEAD = """
import os, signal, sys, threading, dibs
say = lambda *words: print(*words, flush=True)
"""


class Program:
    """A Python program with the environment of a job."""

    def __init__(self, text: str, **environ: str) -> None:
        env = {**os.environ, "DIBS_STOP": "TERM@30", "DIBS_WARN": "USR1@120", **environ}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + text], env=env, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )

    def reads(self) -> str:
        """Return its next line."""
        stdout: IO[str] | None = self.process.stdout
        assert stdout is not None
        return stdout.readline().strip()

    def gets(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Return its code when it has ended by itself; a signal is negative."""
        return self.process.wait(60)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    """Programs that are ended afterwards."""
    own: list[Program] = []
    yield own
    for program in own:
        program.close()


WAITING = """
dibs.on_stop(lambda left: say("saved", left))
say("ready")
while True: signal.pause()
"""


def test_the_callback_is_called_for_warning_and_stop_and_the_exit_is_unchanged(programs: list[Program]) -> None:
    programs.append(program := Program(WAITING))
    assert program.reads() == "ready"
    program.gets(signal.SIGUSR1)
    assert program.reads() == "saved 120.0"
    program.gets(signal.SIGTERM)
    assert program.reads() == "saved 30.0"
    assert program.end() == -signal.SIGTERM


def test_a_repeated_warning_is_reported_once(programs: list[Program]) -> None:
    programs.append(program := Program(WAITING))
    assert program.reads() == "ready"
    program.gets(signal.SIGUSR1)
    assert program.reads() == "saved 120.0"
    program.gets(signal.SIGUSR1)
    program.gets(signal.SIGTERM)
    assert program.reads() == "saved 30.0"


def test_a_program_that_polls_is_stopping_can_exit_by_itself(programs: list[Program]) -> None:
    text = """
dibs.is_stopping()
say("ready")
while not dibs.is_stopping(): signal.pause()
say("saved")
sys.exit(7)
"""
    programs.append(program := Program(text))
    assert program.reads() == "ready"
    program.gets(signal.SIGTERM)
    assert (program.reads(), program.end()) == ("saved", 7)


def test_an_existing_signal_handler_is_called_too(programs: list[Program]) -> None:
    text = f"signal.signal(signal.SIGTERM, lambda *_: (say('mine'), os._exit(3)))\n{WAITING}"
    programs.append(program := Program(text))
    assert program.reads() == "ready"
    program.gets(signal.SIGTERM)
    assert [program.reads(), program.reads()] == ["saved 30.0", "mine"]
    assert program.end() == 3


def test_a_forked_worker_ends_without_the_callback_of_its_parent(programs: list[Program]) -> None:
    """A data loader ends its workers with TERM; that does not stop the job."""
    text = """
dibs.on_stop(lambda left: say("saved", left))
child = os.fork()
if not child:
    say("ready")
    while True: signal.pause()
sys.stdin.readline()
os.kill(child, signal.SIGTERM)
say("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
while True: signal.pause()
"""
    programs.append(program := Program(text))
    assert program.reads() == "ready"
    assert program.process.stdin is not None
    program.process.stdin.write("go\n")
    program.process.stdin.flush()
    assert program.reads() == "child -15"
    # Had the worker's signal reached the parent, its line would come before these.
    program.gets(signal.SIGUSR1)
    assert program.reads() == "saved 120.0"
    program.gets(signal.SIGTERM)
    assert program.reads() == "saved 30.0"


def test_if_the_main_thread_is_stuck_in_c_another_thread_calls_back(programs: list[Program], tmp_path: Path) -> None:
    """A mutex that is locked twice: no signal gets the thread out of there.

    The main thread keeps the interpreter until it is in C, so it is there when another thread can print.
    """
    kept = tmp_path / "saved"
    text = """
import ctypes
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(256)
libc.pthread_mutex_lock(mutex)
def save(left):
    open(sys.argv[1] + ".new", "w").write(f"{left} {threading.current_thread().name}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
dibs.on_stop(save)
sys.setswitchinterval(1e6)
gate = threading.Lock()
gate.acquire()
threading.Thread(target=lambda: (gate.acquire(), say("ready")), daemon=True).start()
gate.release()
libc.pthread_mutex_lock(mutex)
""".replace("sys.argv[1]", repr(str(kept)))
    programs.append(program := Program(text))
    assert program.reads() == "ready"
    program.gets(signal.SIGTERM)
    wait_for(kept.exists)
    assert kept.read_text() == "30.0 dibs.on_stop"
    assert program.process.poll() is None


def test_on_stop_must_be_called_in_the_main_thread(programs: list[Program]) -> None:
    text = """
def wrong():
    try: dibs.on_stop(print)
    except dibs.errors.UserError as error: say(error)
thread = threading.Thread(target=wrong); thread.start(); thread.join()
"""
    programs.append(program := Program(text))
    assert "in the main thread" in program.reads()
    assert program.end() == 0


def test_stop_signals_are_read_from_the_environment() -> None:
    assert on_stop.stop_signals({}) == {}
    assert on_stop.stop_signals({"DIBS_STOP": "TERM@30"}) == {signal.SIGTERM: 30.0}
    told = {"DIBS_STOP": "TERM@0.5", "DIBS_WARN": "USR2@7200"}
    assert on_stop.stop_signals(told) == {signal.SIGUSR2: 7200.0, signal.SIGTERM: 0.5}
    with pytest.raises(UserError, match="DIBS_WARN: expected a signal and seconds"):
        on_stop.stop_signals({"DIBS_WARN": "soon"})


def test_a_callback_may_take_the_seconds_or_nothing(programs: list[Program]) -> None:
    """A parameter with a default of its own is not for the seconds."""
    text = """
class Trainer:
    def save(self): say('method')
dibs.on_stop(lambda: say('nothing'))
dibs.on_stop(lambda left_s: say('seconds', left_s))
dibs.on_stop(lambda path='model.pt': say('default', path))
dibs.on_stop(lambda *rest: say('rest', *rest))
dibs.on_stop(Trainer().save)
say('ready')
while True: signal.pause()
"""
    programs.append(program := Program(text, DIBS_STOP="TERM@5"))
    assert program.reads() == "ready"
    program.gets(signal.SIGTERM)
    told = [program.reads() for _ in range(5)]
    assert told == ["nothing", "seconds 5.0", "default model.pt", "rest 5.0", "method"]


@pytest.mark.parametrize("wrong", [12, lambda first, second: None, lambda *, path: None])
def test_what_cannot_be_called_so_is_refused_when_it_is_registered(wrong: Any) -> None:
    with pytest.raises(TypeError, match="on_stop expected a function") as caught:
        on_stop.on_stop(wrong)
    assert isinstance(caught.value, UserError)
