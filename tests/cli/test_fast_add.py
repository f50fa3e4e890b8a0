"""The fast path of `dibs add`: it does as the full command line does, or leaves it alone, and loads next to nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bench import Bench
from dibs.cli import fast_add
from dibs.cli import main as cli
from dibs.client import connection
from dibs.submission import job_options
from dibs.system import paths, settings
from terminal import Terminal

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "src" / "bin" / "dibs"
NOTES = ["first note", "second \x1b[2J note ü"]


class Request(NamedTuple):
    """What came over the socket."""

    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def is_fast(self) -> bool:
        """Tell who sent it."""
        return self.headers.get("accept") == "text/plain"

    @property
    def job(self) -> dict[str, Any]:
        """Return the job that is meant, without what says nothing."""
        whole = {**self.body.get("defaults", {}), **self.body.get("jobs", [self.body])[0]}
        return {name: value for name, value in whole.items() if value not in (None, [], {}) and name != "jobs"}


class Ear:
    """Listens where a daemon would, keeps what it hears, and answers as told."""

    def __init__(self, path: Path, answer: bytes | None = None) -> None:
        self.heard: list[Request] = []
        self.answer = answer
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            with peer, peer.makefile("rb") as stream:
                if stream.readline():
                    self._hear(peer, stream)

    def _hear(self, peer: socket.socket, stream: io.BufferedIOBase) -> None:
        lines = iter(lambda: stream.readline().decode().strip(), "")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        request = Request(headers, json.loads(stream.read(int(headers["content-length"]))))
        self.heard.append(request)
        peer.sendall(_accepted(request.is_fast) if self.answer is None else self.answer)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


def _accepted(is_plain: bool) -> bytes:
    notes = "".join(f"Dibs-Note: {json.dumps(note)}\r\n" for note in NOTES) if is_plain else ""
    body = "7\n" if is_plain else json.dumps({"ids": [7], "notes": NOTES, "receipt": "7 queued"})
    return f"HTTP/1.1 201 Created\r\n{notes}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.fixture
def ear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    """A listener in place of the daemon, in an environment in which the fast path is taken."""
    for name in [name for name in os.environ if name.startswith("DIBS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.sh").write_text("#!/bin/sh\n#DIBS -g 3\n")
    (tmp_path / "train.sh").chmod(0o755)
    monkeypatch.setenv("DIBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    own = Ear(tmp_path / "home" / "dibs.sock")
    yield own
    own.close()


class Done(NamedTuple):
    """How a command line ended."""

    code: int | None
    out: str
    err: str


def run_fast(*words: str) -> Done:
    """Try the fast path inside this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = fast_add.add(["dibs", *words], os.environ)
    return Done(code, out.getvalue(), err.getvalue())


def run_full(*words: str) -> Done:
    """Run the full command line inside this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.execute(words)
    return Done(code, out.getvalue(), err.getvalue())


SIMPLE = [
    ["true"],
    ["--", "true"],
    ["true", "--", "-g", "2"],
    ["-g", "2", "true"],
    ["--gpus=0", "true", "-g", "7"],
    ["--gpus", "1", "-g", "3", "true"],
    ["-n", "vit lr=3", "-P", "proj", "--priority", "5", "true"],
    ["--name=a=b", "--project=x", "true"],
    ["-e", "A=1", "--env=B=2=3", "-e", "A=", "true"],
    ["-e", "A=ü €", "true"],
    ["--tag", "x", "--tag=y", "--tag", "x", "true"],
    ["-C", "sub", "true"],
    ["--chdir=/tmp/../tmp", "true"],
    ["echo hi; exit 3"],
    ["echo", "a b", "$HOME", "*", "", 'ü\n\t\x01\U0001f600"\\'],
    ["python3", "-c", "print('x')"],
    ["no such program but a string"],
    ["echo|cat"],
    ["/bin/sh", "-c", "true"],
    ["/bin/true"],
    ["-g", "4096", "true"],
    ["-g", "999999999", "true"],
]

#: Left to the full command line, whether it takes them or says what is wrong.
NOT_SIMPLE = [
    [],
    [""],
    [" "],
    ["-"],
    ["--"],
    ["--", "-x"],
    ["A=1", "true"],
    ["A=1 true"],
    ["-g2", "true"],
    ["-g=2", "true"],
    ["-g", "two", "true"],
    ["-g", "2:a100", "true"],
    ["-g", "-1", "true"],
    ["-g", "\u0662", "true"],
    ["-g", "1234567890", "true"],
    ["-g"],
    ["-g", "1"],
    ["--priority", "high", "true"],
    ["--priority", "-5", "true"],
    ["-n", "", "true"],
    ["-n", "--", "true"],
    ["-J", "x", "true"],
    ["-e", "A", "true"],
    ["-e", "=1", "true"],
    ["-e", "DIBS_X=1", "true"],
    ["-e", "CUDA_VISIBLE_DEVICES=0", "true"],
    ["-e", "PATH=/nowhere", "true"],
    ["-C", "nowhere", "true"],
    ["-C", "/etc/passwd", "true"],
    ["--json", "true"],
    ["--help"],
    ["--debug", "true"],
    ["-t", "1h", "true"],
    ["--file", "x"],
    ["nosuchprogram"],
    ["./nosuchprogram", "x"],
    ["x" * 200_000 + " y"],
    ["true", "x" * 200_000],
    ["true", os.fsdecode(b"\xff")],
    ["-n", os.fsdecode(b"\xff"), "true"],
    ["-e", os.fsdecode(b"A=\xff"), "true"],
    ["cd", "sub"],
    ["bash"],
    ["./sub"],
    ["./train.sh", "x"],
    ["train.sh"],
    ["./train.sh"],
    ["--script", "train.sh"],
    ["--array", "0-3", "true"],
]


@pytest.mark.parametrize("words", SIMPLE, ids=str)
@pytest.mark.parametrize("verb", fast_add.VERBS)
def test_what_it_takes_is_asked_and_told_as_by_the_full_command_line(ear: Ear, verb: str, words: list[str]) -> None:
    quick, full = run_fast(verb, *words), run_full(verb, *words)
    assert quick == full
    assert (quick.code, quick.out) == (0, "7\n")
    assert [request.is_fast for request in ear.heard] == [True, False]
    assert ear.heard[0].job == ear.heard[1].job
    assert ear.heard[0].headers.get("dibs-devices") == ear.heard[1].headers.get("dibs-devices")


@pytest.mark.parametrize("words", NOT_SIMPLE, ids=lambda words: str(words)[:40])
def test_what_is_not_simple_is_left_alone(ear: Ear, words: list[str]) -> None:
    assert run_fast("add", *words) == Done(None, "", "")
    assert not ear.heard


def test_every_other_option_is_left_alone(ear: Ear) -> None:
    for option in cli.load("add").OPTIONS:
        for name in (*option.names, *option.habits):
            if name not in fast_add.OPTIONS:
                assert run_fast("add", name, "1", "true").code is None
                assert run_fast("add", f"{name}=1", "true").code is None
    assert not ear.heard


def test_what_it_knows_of_options_is_what_the_table_says() -> None:
    known = {name for option in cli.load("add").OPTIONS for name in (*option.names, *option.habits)}
    assert fast_add.OPTIONS.keys() <= known


def test_devices_chosen_in_the_shell_are_left_to_those_who_tell(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert run_fast("add", "true").code is None
    first = run_full("add", "true")
    assert "CUDA_VISIBLE_DEVICES=7 is set here" in first.err
    assert run_fast("add", "true") == run_full("add", "true")
    assert ear.heard[1].is_fast
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8")
    assert run_fast("add", "true").code is None


@pytest.mark.parametrize("argv", [[], ["status"], ["run", "true"], ["--debug", "add", "true"], ["ad", "true"]], ids=str)
def test_other_verbs_are_left_alone(ear: Ear, argv: list[str]) -> None:
    assert run_fast(*argv).code is None


TOKENS = [
    *("-g", "2", "--gpus=1", "-n", "x", "--name=y", "--", "-", "-e", "A=1", "true", "echo hi", "--tag", "-C", "sub"),
    *("--priority", "5", "", "-q", "--json", "--tag=", "-P", "a b", "-g0", "--env", "B=$x", "nope", "=", "--gpus"),
    *("train.sh", "./train.sh", "bash", "cd", "--array", "0-3", "--hold", "-l", "--repeat=2", "--dry-run"),
]


def test_whatever_it_takes_the_full_command_line_would_have_done_the_same(ear: Ear) -> None:
    @hypothesis_settings(deadline=None, max_examples=300)
    @given(st.lists(st.sampled_from(TOKENS), max_size=7))
    def check(words: list[str]) -> None:
        ear.heard.clear()
        quick = run_fast("add", *words)
        if quick.code is None:
            assert not ear.heard
            return
        assert quick == run_full("add", *words)
        assert ear.heard[0].job == ear.heard[1].job

    check()


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("DIBS_DEVICES", "fake:4", True),
        ("DIBS_DEVICES", "", True),
        ("DIBS_DEVICES", "fake\n4", True),
        ("DIBS_LEASE_DIR", "/tmp", True),
        ("DIBS_CPU_SLOTS", "4", True),
        ("WORD", "ü €", True),
        ("CUDA_VISIBLE_DEVICES", "7", False),
        ("DIBS_LEASE_DIR", "tmp", False),
        ("DIBS_CPU_SLOTS", "0", False),
        ("DIBS_CPU_SLOTS", "many", False),
        ("DIBS_GRACE", "30s", False),
        ("DIBS_CONFIG", "/nowhere", False),
        ("DIBS_ENV_EXCLUDE", "A*", False),
        ("DIBS_JOB_ID", "3", False),
    ],
)
def test_only_an_environment_without_doubts_is_taken(
    ear: Ear, monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_taken: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert run_fast("add", "true").code == (0 if is_taken else None)
    if is_taken:
        assert run_full("add", "true").code == 0
        assert ear.heard[0].job == ear.heard[1].job
        assert ear.heard[0].headers.get("dibs-devices") == ear.heard[1].headers.get("dibs-devices")
    else:
        assert not ear.heard


def test_an_environment_that_is_not_utf8_is_kept_as_it_is(ear: Ear) -> None:
    os.environb[b"ODD"] = b"\xff\xfe"
    try:
        assert run_fast("add", "true") == run_full("add", "true")
    finally:
        del os.environb[b"ODD"]
    assert ear.heard[0].job == ear.heard[1].job


@pytest.mark.parametrize("folder", [".config", "elsewhere"])
def test_a_file_of_settings_is_left_to_those_who_can_read_it(
    ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    if folder != ".config":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / folder))
    (tmp_path / folder / "dibs").mkdir(parents=True)
    assert run_fast("add", "true").code == 0
    (tmp_path / folder / "dibs" / "config.toml").write_text("env_exclude = ['HOME']\n")
    assert run_fast("add", "true").code is None


def test_a_folder_that_was_deleted_is_left_alone(ear: Ear, tmp_path: Path) -> None:
    os.chdir(tmp_path / "sub")
    (tmp_path / "sub").rmdir()
    assert run_fast("add", "true").code is None


def test_without_a_daemon_it_leaves_the_start_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_HOME", str(tmp_path / "home"))
    assert run_fast("add", "true").code is None
    (tmp_path / "home").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "home" / "dibs.sock"))
    server.close()
    assert run_fast("add", "true").code is None


ERROR = json.dumps({"error": {"kind": "impossible", "message": "asks for \x1b too much.", "hint": "Ask less."}})


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", 5),
        (b"HTTP/1.1 201 Cre", 5),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\n1", 5),
        (f"HTTP/1.1 422 No\r\nContent-Length: {len(ERROR)}\r\n\r\n{ERROR}".encode(), 69),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 125),
    ],
)
def test_an_answer_that_is_bad_news_is_told_and_nothing_is_asked_twice(ear: Ear, answer: bytes, code: int) -> None:
    ear.answer = answer
    quick = run_fast("add", "true")
    assert len(ear.heard) == 1
    assert quick == run_full("add", "true")
    assert (quick.code, quick.out, quick.err.count("\n")) == (code, "", 1)


# -- what it knows is what others know --


def test_its_verbs_and_options_are_those_of_the_full_command_line() -> None:
    assert {*fast_add.VERBS} == {"add", *(alias for alias, verb in cli.ALIASES.items() if verb == "add")}
    known = {name: option for option in job_options.OPTIONS for name in option.names}
    fields = {
        "gpus": job_options.GPUS, "priority": job_options.PRIORITY, "name": job_options.NAME, "env": job_options.ENV,
        "project": job_options.PROJECT, "cwd": job_options.CHDIR, "tags": job_options.TAG,
    }  # fmt: skip
    assert {name: known[name] for name in fast_add.OPTIONS} == {
        name: fields[key] for name, key in fast_add.OPTIONS.items()
    }


def test_its_constants_are_those_of_their_owners() -> None:
    assert fast_add.SOCKET_BYTES == paths.SOCKET_BYTES
    assert fast_add.ANSWER_FOR_S == connection.ANSWER_FOR_S
    assert str(settings.SITE_CONFIG) == fast_add.SITE_CONFIG
    assert paths.MACHINE_ID_FILES[0] == fast_add.MACHINE_ID
    assert {*fast_add.KNOWN_VARIABLES} <= {"DIBS_HOME", *(setting.variable for setting in settings.SETTINGS)}


@pytest.mark.parametrize(
    "environ",
    [
        {"DIBS_HOME": "/var/lib/x"},
        {"DIBS_HOME": "/var//lib/../x/"},
        {"DIBS_HOME": "~/x", "HOME": "/var"},
        {"DIBS_HOME": "x"},
        {"DIBS_HOME": "/" + "x" * 85},
        {"DIBS_HOME": "/" + "x" * 95},
        {"DIBS_HOME": "/" + "ü" * 50},
        {"DIBS_HOME": "", "HOME": "/var/ann"},
        {"HOME": "/var/ann"},
        {"HOME": "/var/ann/"},
        {"HOME": "/var/ann", "XDG_STATE_HOME": "/var/state"},
        {"HOME": "/var/ann", "XDG_STATE_HOME": "state"},
        {"XDG_STATE_HOME": "/var/state"},
        {"HOME": "ann"},
        {},
    ],
    ids=str,
)
def test_the_socket_is_where_everybody_looks_for_it(environ: dict[str, str]) -> None:
    try:
        path = fast_add.socket_path(environ)
    except (fast_add.NotSimple, OSError):
        return
    assert path == str(paths.socket_path(paths.home(environ).path))


# -- as a process --


def script(bench: Bench, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run the script that is installed as `dibs`."""
    command = [sys.executable, *kwargs.pop("flags", ()), str(SCRIPT), *words]
    environ = bench.environ | kwargs.pop("environ", {})
    return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=bench.folder, **kwargs)


def loaded(stderr: str) -> set[str]:
    """Return the modules in what `-X importtime` prints."""
    return {line.rpartition("|")[2].strip() for line in stderr.splitlines() if line.startswith("import time:")}


DEAR = {
    *("json", "re", "typing", "asyncio", "argparse", "subprocess", "socket", "dataclasses", "pathlib", "enum"),
    *("collections", "contextlib", "functools", "datetime", "dibs.cli.main", "dibs.client.connection", "dibs.errors"),
}


def test_an_add_loads_next_to_nothing(bench: Bench) -> None:
    bench.start()
    bare = subprocess.run([sys.executable, "-X", "importtime", "-c", "pass"], capture_output=True, text=True)
    words = ["add", "-g", "1", "-n", "x", "-P", "p", "-e", "A=1", "--tag", "t", "sh", "-c", "exit 0"]
    done = script(bench, *words, flags=("-X", "importtime"))
    assert (done.returncode, done.stdout) == (0, "1\n")
    more = loaded(done.stderr) - loaded(bare.stderr)
    assert not more & DEAR
    assert len(more) <= 10, sorted(more)
    assert bench.until(1)["state"] == "done"


def test_the_script_does_what_the_module_does(bench: Bench) -> None:
    assert script(bench, "add", "true").stdout == "1\n", "it starts a daemon like everybody"
    assert script(bench, "add", "true").stdout == "2\n"
    assert script(bench, "status", "-q").stdout == bench.cli("status", "-q").stdout
    assert script(bench, "--version").stdout == bench.cli("--version").stdout
    wrong = script(bench, "ad")
    assert (wrong.returncode, wrong.stderr) == (2, bench.cli("ad").stderr)


def test_a_daemon_refuses_the_fast_path_as_it_refuses_others(bench: Bench) -> None:
    bench.start()
    for words, environ in ((["-g", "5", "true"], {}), (["true"], {"DIBS_DEVICES": "fake:2"})):
        quick = script(bench, "add", *words, environ=environ)
        full = bench.cli("--debug", "add", *words, environ=environ)
        assert (quick.returncode, quick.stdout) == (full.returncode, "")
        assert quick.stderr == full.stderr.splitlines(keepends=True)[-1]
    assert bench.cli("status", "-q").stdout == ""


def test_notes_and_receipts_are_those_of_the_full_command_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path, devices="none")
    try:
        bench.start()
        bench.client.post("/v1/queue", {"paused": True})
        with Terminal(bench, "add", "true") as quick, Terminal(bench, "--debug", "add", "true") as full:
            shown = [person.end()[1].replace("\r", "") for person in (quick, full)]
    finally:
        bench.close()
    first, second = sorted(shown)
    assert "this machine has no GPU" in first
    assert "1 queued: no GPU, waits: the queue is paused; dibs follow 1\n" in first
    assert second == first.replace("1\n1 queued", "2\n2 queued").replace("follow 1", "follow 2")


def test_a_reader_that_leaves_is_no_trouble(bench: Bench) -> None:
    bench.start()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, SCRIPT, "add", "true"], env=bench.environ, stdout=write, stderr=-1)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
    full = os.open("/dev/full", os.O_WRONLY)
    done = subprocess.run([sys.executable, SCRIPT, "add", "true"], env=bench.environ, stdout=full, stderr=-1)
    os.close(full)
    assert (done.returncode, done.stderr) == (125, b"dibs: the system refused: No space left on device.\n")


def test_the_script_is_what_gets_installed() -> None:
    """An entry point of the same name would take its place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-scripts"] == {str(SCRIPT.relative_to(ROOT)): "dibs"}
    assert "dibs" not in project["project"].get("scripts", {})
    # Installers put the path of their interpreter in place of this line.
    assert SCRIPT.read_text().startswith("#!python\n")
    assert os.access(SCRIPT, os.X_OK)
