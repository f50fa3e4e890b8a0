"""`dibs top` in tmux with a real daemon: keys are pressed and screens are read, in three sizes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import ssh_server
import tmux
from bench import Bench
from tmux import Tmux

SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_a_session_in_every_size(bench: Bench, columns: int, lines: int) -> None:
    bench.start()
    bench.cli("add", "-n", "talker", "-g", "4", "echo hello from the log; sleep 1000")
    bench.until(1, "started")
    bench.cli("add", "-n", "waiter", "-g", "1", "true")
    with Tmux(bench, "top", columns=columns, lines=lines) as user:
        # The timeline is shown where it has room.
        more = ["-6h", "now"] if lines >= 36 else []
        shown = user.until("1 running, 1 queued", "talker", "waiter", "needs 1 GPU", "q quit", *more)
        assert shown.count("job 1 talker") == 4, "each of the four GPUs names its job"
        assert ("-6h" in shown) == (lines >= 36)
        user.press("l")
        user.until("log of job 1", "hello from the log")
        user.press("Escape")
        user.until_gone("log of job 1")
        user.press("?")
        user.until("move it up", "this help")
        user.press("?")
        user.until_gone("this help")
        user.press("3")
        user.until("WAITS", "SINCE")
        user.press("2")
        user.until("-6h", "now")
        user.press("1")
        user.press("c")
        user.until("Stop job 1 talker (running)?")
        user.press("n")
        user.until_gone("Stop job 1")
        assert bench.job(1)["state"] == "running"
        user.press("c")
        user.until("Stop job 1")
        user.press("y")
        # The GPUs are given back, and the job that waited gets one.
        user.until("cancelled", "done")
        user.press("q")
        user.until("exit 0")
    assert [bench.until(each)["state"] for each in (1, 2)] == ["cancelled", "done"]


def test_a_job_is_made_searched_held_and_changed(bench: Bench) -> None:
    bench.start()
    with Tmux(bench, "top", columns=120, lines=40) as user:
        user.until("nothing queued", "q quit")
        user.press("n")
        user.until("dibs add -g 2 -t 4h python train.py")
        user.type("-n made --hold -g 0 'echo a; echo b'")
        user.press("Enter")
        user.until("1 held", "held by you")
        user.press("e")
        user.until("dibs edit 1")
        user.type("--priority 7 -t 4h")
        user.press("Enter")
        user.until("job 1: changed")
        user.press("/")
        user.until("words, or a selector")
        user.type("nothing-like-it")
        user.press("Enter")
        user.until_gone("made")
        user.press("Escape")
        user.until("made")
        user.press("h")
        user.until("done")
    job = bench.until(1)
    assert (job["state"], job["priority"], job["time_limit_s"], bench.log(1)) == ("done", 7, 14400, "a\nb\n")


def test_it_survives_a_restart_of_the_daemon_and_a_new_size(bench: Bench) -> None:
    bench.start()
    bench.cli("add", "-n", "first", "--hold", "true")
    with Tmux(bench, "top") as user:
        user.until("1 held", "first", "q quit")
        bench.kill()
        user.until("waiting for it")
        assert bench.pid() is None, "it does not start one by itself"
        bench.start()
        user.until("1 held")
        bench.cli("add", "-n", "second", "--hold", "true")
        user.until("2 held", "second")
        user.resize(120, 40)
        user.until("now", "2 held", "second")
        user.press("C-c")
        user.until("exit 0")


def test_a_terminal_without_colours_and_unicode(bench: Bench) -> None:
    bench.start()
    with Tmux(bench, "top", NO_COLOR="1", LANG="C", LC_ALL="C") as user:
        shown = user.until("dibs - ", "..........", "q quit")
        assert "·" not in shown


@ssh_server.is_needed
@pytest.mark.parametrize("term", ["xterm-256color", "screen-256color"])
def test_it_works_over_ssh(bench: Bench, tmp_path: Path, term: str) -> None:
    """In tmux on one's own computer, and on a server that knows the terminal by its name only."""
    bench.start()
    bench.cli("add", "-n", "talker", "-g", "1", "sleep 1000")
    bench.until(1, "started")
    server = ssh_server.Sshd(tmp_path / "ssh")
    try:
        environ = " ".join(f"{name}={shlex.quote(value)}" for name, value in bench.environ.items() if name != "HOME")
        command = f"env {environ} LANG=C.UTF-8 {shlex.quote(sys.executable)} -P -m dibs top"
        with Tmux(bench, command, program=("env", f"TERM={term}", "ssh", "-t", *server.options, *server.place)) as user:
            user.until("1 running", "talker", "q quit")
            user.press("?")
            user.until("this help")
            user.press("?")
            user.until_gone("this help")
            user.press("q")
            user.until("exit 0")
    finally:
        server.close()
    assert bench.job(1)["state"] == "running"


DUMB = ("env", "TERM=dumb", *tmux.DIBS)
#: A dibs that was installed without the extra.
BARE = (
    sys.executable,
    "-c",
    "import sys; sys.modules['textual'] = None; from dibs.cli import main; sys.exit(main.main())",
)


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        (DUMB, ("top",), "dibs: top needs a terminal that can move its cursor, and TERM is dumb."),
        (BARE, ("top",), "dibs: top needs Textual, which is not installed. Type: pip install 'dibs[top]'"),
        (tmux.DIBS, ("top", "now"), 'dibs: top takes no arguments, got "now".'),
    ],
)
def test_what_cannot_be_shown_gets_one_line(
    bench: Bench, program: tuple[str, ...], words: tuple[str, ...], said: str
) -> None:
    with Tmux(bench, *words, columns=200, program=program) as user:
        assert said in user.until("exit 2")
    assert not bench.home.exists(), "no daemon was started"


def test_without_a_terminal_it_says_what_to_type(bench: Bench) -> None:
    done = bench.cli("top")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dibs: top needs a terminal. For a pipe or a file: dibs status\n"
