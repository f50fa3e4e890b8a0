"""The fast path of `dibs add`: it does the same as the full command line or leaves it to that, and loads little."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bench import Bench
from dibs.cli import fast_add
from dibs.cli import main as cli
from dibs.client import connection
from dibs.errors import NotAllowed, UserError
from dibs.http_api import add
from dibs.submission import add_command, device_hints, remote_callers
from dibs.submission.options import Caller
from dibs.system import paths
from terminal import Terminal

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "src" / "bin" / "dibs"


class FakeDaemon:
    """Listens where a daemon would, counts the requests, and sends a fixed answer."""

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.answer = b""
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
                if first := stream.readline().decode():
                    self._hear(peer, stream, first)

    def _hear(self, peer: socket.socket, stream: io.BufferedIOBase, first: str) -> None:
        lines = iter(lambda: stream.readline().decode().strip(), "")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        stream.read(int(headers["content-length"]))
        self.asked.append(first.split()[1])
        peer.sendall(self.answer)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


def _enter(folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process a shell in `folder` with `environ`, and create some files to name."""
    for name in [name for name in os.environ if name.startswith("DIBS_")]:
        monkeypatch.delenv(name)
    for name, value in (environ | {"HOME": str(folder)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(folder)
    (folder / "sub").mkdir(exist_ok=True)
    files = {
        "train.sh": "#!/bin/sh\n#DIBS -g 3\n",
        "slurm.sh": "#!/bin/bash\n#SBATCH --gres=gpu:2 --partition=x\n#SBATCH -t 10 -o %j.log\n",
        "sub/prog": "#!/bin/sh\n",
        "choosing.py": "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n",
        "lines": "true\n# no\necho hi\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if text.startswith("#!") else 0o644)


@pytest.fixture
def ear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A listener in place of the daemon."""
    (tmp_path / "home").mkdir(mode=0o700)
    _enter(tmp_path, {"DIBS_HOME": str(tmp_path / "home")}, monkeypatch)
    own = FakeDaemon(tmp_path / "home" / "dibs.sock")
    yield own
    own.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A daemon whose queue is paused: queued jobs stay unchanged."""
    own = Bench(tmp_path_factory.mktemp("served"))
    own.start()
    own.client.post("/v1/queue", {"paused": True})
    # So that no id looks like the number of an attempt.
    own.client.post("/v1/jobs", {"jobs": [{"command": "true"}], "repeat": 9})
    yield own
    own.close()


@pytest.fixture
def queue(served: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The daemon, as this process would use it."""
    _enter(served.folder, served.environ, monkeypatch)
    return served


class Done(NamedTuple):
    """The result of a command line."""

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


TAKEN = [
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
    ["-C", "sub", "./prog", "x"],
    ["--chdir=/tmp/../tmp", "true"],
    ["echo hi; exit 3"],
    ["echo", "a b", "$HOME", "*", "", 'ü\n\t\x01\U0001f600"\\'],
    ["python3", "-c", "print('x')"],
    ["no such program but a string"],
    ["echo|cat"],
    ["/bin/sh", "-c", "true"],
    ["/bin/true"],
    ["A=1", "true"],
    ["A=1 true"],
    ["-g2", "true"],
    ["-g=2", "true"],
    ["-J", "x", "true"],
    ["--priority", "high", "true"],
    ["--priority", "-5", "true"],
    ["-t", "1h", "true"],
    ["-g", "2", "-t", "1h", "-n", "x", "--retries", "2", "--", "python3", "train.py"],
    ["--retries", "1", "--retry-on", "oom", "--mem", "2G", "--cpus", "3", "--vram", "4G", "true"],
    ["--begin", "2099-01-01T08:00", "true"],
    ["--signal", "USR1@2m", "-t", "1h", "true"],
    ["-o", "{id}.log", "--stderr", "sub/{id}.err", "--hold", "true"],
    ["--metric", "loss=loss (.*)", "--notify", "true", "--visible", "index", "true"],
    ["--wrap", "echo a | cat"],
    ["--json", "true"],
    ["--color", "never", "true"],
    ["--array", "0-3%2", "true"],
    ["--repeat", "3", "-j", "2", "--halt", "1", "true"],
    ["--json", "--repeat", "2", "true"],
    ["--file", "lines"],
    ["--file", "lines", "-j", "2", "--json"],
    ["bash"],
    ["./train.sh", "x"],
    ["train.sh"],
    ["A=1", "train.sh"],
    ["-g", "1", "./train.sh"],
    ["--script", "train.sh"],
    ["--script", "train.sh", "--", "-x", "y"],
    ["slurm.sh"],
    ["-C", "sub", "slurm.sh"],
    ["--array", "1,3", "slurm.sh"],
    ["python3", "choosing.py"],
    ["CUDA_VISIBLE_DEVICES=0 python3 x"],
]

#: Left to the full command line because they contain a mistake.
WRONG = [
    [""],
    [" "],
    ["--"],
    ["--", "-x"],
    ["-g", "two", "true"],
    ["-g", "2:a100", "true"],
    ["-g", "-1", "true"],
    ["-g", "\u0662", "true"],
    ["-g", "1234567890", "true"],
    ["-g", "4096", "true"],
    ["-g", "999999999", "true"],
    ["-g"],
    ["-g", "1"],
    ["-n", "", "true"],
    ["-n", "--", "true"],
    ["-n", "x" * 1001, "true"],
    ["-e", "A", "true"],
    ["-e", "=1", "true"],
    ["-e", "DIBS_X=1", "true"],
    ["-e", "CUDA_VISIBLE_DEVICES=0", "true"],
    ["-e", "PATH=/nowhere", "true"],
    ["-C", "nowhere", "true"],
    ["-C", "/etc/passwd", "true"],
    ["--file", "x"],
    ["--file", "sub"],
    ["--file", "lines", "true"],
    ["--script", "nowhere"],
    ["nosuchprogram"],
    ["./nosuchprogram", "x"],
    ["lines", "x"],
    ["x" * 200_000 + " y"],
    ["true", "x" * 200_000],
    ["true", os.fsdecode(b"\xff")],
    ["-n", os.fsdecode(b"\xff"), "true"],
    ["-e", os.fsdecode(b"A=\xff"), "true"],
    ["cd", "sub"],
    ["./sub"],
    ["--retry-on", "oom", "true"],
    ["--array", "0-3", "--repeat", "2", "true"],
    ["-j", "2", "true"],
    ["--after", "99999", "true"],
    ["--begin", "1999-01-01T08:00", "true"],
    ["--nosuchoption", "true"],
    ["--signal", "USR1@2m", "true"],
]
#: Left to the full command line because only the client can do it.
LEFT = [
    ["--help"],
    ["--debug", "true"],
    ["--dry-run", "true"],
    ["-"],
    ["--file", "-"],
    ["--script", "-"],
    ["--file", "/dev/stdin"],
    ["--script", "/dev/fd/0"],
    ["--file", "pipe"],
    ["--file", "large"],
]


def kept(queue: Bench, done: Done) -> list[dict[str, Any]]:
    """Return the jobs that a command line queued, without the values that differ between equal jobs."""
    ids = json.loads(done.out)["ids"] if done.out.startswith("{") else [int(line) for line in done.out.split()]
    own = ("id", "submitted_at", "reason", "hint", "unknown", "batch", "events", "expected_start", "ahead")
    found = [(job_id, queue.client.get(f"/v1/jobs/{job_id}")) for job_id in ids]
    jobs = [(job_id, {name: value for name, value in job.items() if name not in own}) for job_id, job in found]
    # Paths contain the id.
    return [json.loads(re.sub(rf"/{job_id}\b", "/#", json.dumps(job))) for job_id, job in jobs]


def renumbered(done: Done) -> Done:
    """Return an output with the ids counted from 0."""
    ids = json.loads(done.out)["ids"] if done.out.startswith("{") else [int(line) for line in done.out.split()]
    text = done.out
    for place, job_id in enumerate(ids):
        text = text.replace(str(job_id), f"#{place}")
    return Done(done.code, text, done.err)


@pytest.mark.parametrize("words", TAKEN, ids=str)
def test_the_daemon_queues_the_same_as_the_full_command_line(queue: Bench, words: list[str]) -> None:
    thin, full = run_fast("add", *words), run_full("add", *words)
    assert thin.code == 0
    assert renumbered(thin) == renumbered(full)
    assert kept(queue, thin) == kept(queue, full)


def count(queue: Bench) -> int:
    """Return how many jobs were queued so far, by queueing one more."""
    return queue.client.post("/v1/jobs", {"command": "true"})["ids"][0]


@pytest.mark.parametrize("words", WRONG, ids=lambda words: str(words)[:40])
def test_invalid_options_are_left_to_the_full_command_line(queue: Bench, words: list[str]) -> None:
    before = count(queue)
    assert run_fast("add", *words) == Done(None, "", "")
    full = run_full("add", *words)
    assert (full.code, full.err.count("\n")) != (0, 0)
    assert full.code in (2, 3, 69)
    assert count(queue) == before + 1


@pytest.mark.parametrize("words", LEFT, ids=str)
def test_what_only_the_client_can_do_is_left_to_it(queue: Bench, words: list[str]) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkfifo("pipe")
        Path("large").write_text("true\n" * 300_000)
    before = count(queue)
    assert run_fast("add", *words) == Done(None, "", "")
    assert count(queue) == before + 1


def as_the_daemon_reads(words: list[str], monkeypatch: pytest.MonkeyPatch) -> add.Draft:
    """Return the request that the daemon makes of the arguments, in another folder, environment and umask."""
    sent = msgspec.json.decode(fast_add.request(words, os.environ), type=add.AddIn)
    with monkeypatch.context() as patch:
        patch.chdir("/")
        for name in os.environ:
            patch.delenv(name)
        mask = os.umask(0)
        try:
            return asyncio.run(read(sent))
        finally:
            os.umask(mask)


async def read(sent: add.AddIn) -> add.Draft:
    """Return the request that the daemon makes of what was sent."""
    with ThreadPoolExecutor(1) as readers:
        return await add.read(readers, remote_callers.unpack(sent.argv), sent.caller())


@pytest.mark.parametrize("words", TAKEN, ids=str)
def test_the_request_equals_that_of_the_full_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    _enter(tmp_path, {}, monkeypatch)
    monkeypatch.setitem(os.environ, "ODD", os.fsdecode(b"\xff\xfe"))
    said: list[str] = []
    own = add_command.draft(add_command.parse(words, Caller()), said.append)
    draft = as_the_daemon_reads(words, monkeypatch)
    assert draft.body == own.body
    assert draft.said == said


TOKENS = [
    *("-g", "2", "--gpus=1", "-n", "x", "--name=y", "--", "-", "-e", "A=1", "true", "echo hi", "--tag", "-C", "sub"),
    *("--priority", "5", "", "-q", "--json", "--tag=", "-P", "a b", "-g0", "--env", "B=$x", "nope", "=", "--gpus"),
    *("train.sh", "./train.sh", "bash", "cd", "--array", "0-3", "--hold", "-l", "--repeat=2", "--dry-run"),
]


def test_any_accepted_arguments_give_the_result_of_the_full_command_line(queue: Bench) -> None:
    @hypothesis_settings(deadline=None, max_examples=300)
    @given(st.lists(st.sampled_from(TOKENS), max_size=7))
    def check(words: list[str]) -> None:
        thin = run_fast("add", *words)
        if thin.code is None:
            assert (thin.out, thin.err) == ("", "")
            return
        full = run_full("add", *words)
        assert renumbered(thin) == renumbered(full)
        assert kept(queue, thin) == kept(queue, full)

    check()


def test_a_cuda_visible_devices_of_the_shell_is_mentioned_once(queue: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert "CUDA_VISIBLE_DEVICES=7 is set here" in run_fast("add", "true").err
    assert run_fast("add", "true").err == run_full("add", "true").err == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8")
    assert "CUDA_VISIBLE_DEVICES=8 is set here" in run_full("add", "true").err
    assert run_fast("add", "true").err == ""


def test_warnings_and_hints_come_in_the_same_order(queue: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for run in (run_fast, run_full):
        (queue.home / device_hints.TOLD_FILE).unlink(missing_ok=True)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        shown.append(run("add", "--script", "slurm.sh", "CUDA_VISIBLE_DEVICES=0").err)
        shown.append(run("add", "python3", "choosing.py").err)
    assert shown[:2] == shown[2:]
    assert [line[:20] for line in shown[0].splitlines()] == ["dibs: slurm.sh: igno", "dibs: CUDA_VISIBLE_D"]
    assert "choosing.py sets CUDA_VISIBLE_DEVICES itself" in shown[1]


@pytest.mark.parametrize("argv", [[], ["status"], ["run", "true"], ["--debug", "add", "true"], ["ad", "true"]], ids=str)
def test_other_verbs_are_left_to_the_full_command_line(ear: FakeDaemon, argv: list[str]) -> None:
    assert run_fast(*argv).code is None
    assert not ear.asked


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("DIBS_DEVICES", "fake:4", True),
        ("DIBS_DEVICES", "fake\n4", True),
        ("DIBS_DEVICES", "fake:5", False),
        ("DIBS_DEVICES", "", False),
        ("DIBS_CPU_SLOTS", "4", True),
        ("WORD", "ü €", True),
        ("DIBS_GRACE", "30s", True),
        ("DIBS_ENV_EXCLUDE", "A*", True),
        ("DIBS_JOB_ID", "3", True),
        ("DIBS_LEASE_DIR", "tmp", False),
        ("DIBS_CPU_SLOTS", "0", False),
        ("DIBS_CPU_SLOTS", "many", False),
        ("DIBS_GRACE", "soon", False),
        ("DIBS_CONFIG", "/nowhere", False),
        ("DIBS_CONFIG", "/dev/fd/0", False),
    ],
)
def test_the_variables_of_the_client_apply(
    queue: Bench, monkeypatch: pytest.MonkeyPatch, name: str, value: str, is_taken: bool
) -> None:
    monkeypatch.setenv(name, value)
    thin, full = run_fast("add", "true"), run_full("add", "true")
    assert (thin.code, full.code == 0) == (0 if is_taken else None, is_taken)
    if is_taken:
        assert kept(queue, thin) == kept(queue, full)


@pytest.mark.parametrize("folder", [".config", "elsewhere"])
def test_the_settings_of_the_client_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    _enter(tmp_path, {"SECRET": "x", "OTHER": "y"}, monkeypatch)
    if folder != ".config":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / folder))
    (tmp_path / folder / "dibs").mkdir(parents=True)
    (tmp_path / folder / "dibs" / "config.toml").write_text("env_exclude = ['SECRET']\n")
    draft = as_the_daemon_reads(["true"], monkeypatch)
    own = add_command.draft(add_command.parse(["true"], Caller()), print)
    assert draft.body == own.body
    environ = base64.b64decode(draft.body["defaults"]["environ"])  # type: ignore[index]
    assert b"SECRET" not in environ
    assert b"OTHER=y" in environ


def test_a_begin_time_is_parsed_in_the_time_zone_of_the_client(queue: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_fast("add", "--begin", "2099-01-01T08:00", "true").code == 0
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert run_fast("add", "--begin", "2099-01-01T08:00", "true").code is None
    assert run_fast("add", "true").code == 0


def test_words_of_any_bytes_arrive_as_they_were_typed() -> None:
    words = [os.fsdecode(bytes(range(1, 256))), "", "\U0001f600", 'a "b" \\ c']
    sent = msgspec.json.decode(fast_add.request(words, {"A": words[0]}), type=add.AddIn)
    assert remote_callers.unpack(sent.argv) == words
    assert sent.caller().environ == {"A": words[0]}


def test_a_message_of_another_version_is_refused_and_queues_nothing(queue: Bench) -> None:
    body = json.loads(fast_add.request(["true"], os.environ))
    before = count(queue)
    for other in ({"words": "dHJ1ZQA="}, {"argv": "tr\u0100e\0"}):
        kept = {name: value for name, value in body.items() if name != "argv"}
        with pytest.raises(UserError):
            queue.client.post("/v1/add", kept | other)
    assert count(queue) == before + 1


def test_a_client_in_another_mount_namespace_is_refused(queue: Bench) -> None:
    body = json.loads(fast_add.request(["true"], os.environ))
    with pytest.raises(NotAllowed, match="does not see the files"):
        queue.client.post("/v1/add", body | {"file_system": "mnt:[1] 2 3"})


def test_files_that_cannot_be_read_in_time_are_left_to_the_client() -> None:
    """As on a network mount that does not answer."""
    stuck = threading.Event()

    async def ask() -> None:
        readers = ThreadPoolExecutor(1)
        blocked = readers.submit(stuck.wait)
        try:
            with pytest.raises(UserError, match="within 2 s"):
                await add.read(readers, ["true"], Caller())
        finally:
            stuck.set()
            assert blocked.result()

    asyncio.run(ask())


def test_a_deleted_working_folder_is_left_to_the_full_command_line(ear: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run_fast("add", "true").code is None
    assert not ear.asked


def test_without_a_daemon_the_full_command_line_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_HOME", str(tmp_path / "home"))
    assert run_fast("add", "true").code is None
    (tmp_path / "home").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "home" / "dibs.sock"))
    server.close()
    assert run_fast("add", "true").code is None


ERROR = json.dumps({"error": {"kind": "machine", "message": "the \x1b disk is full.", "hint": "Ask less."}})


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", 5),
        (b"HTTP/1.1 201 Cre", 5),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\n1", 5),
        (f"HTTP/1.1 503 No\r\nContent-Length: {len(ERROR)}\r\n\r\n{ERROR}".encode(), 125),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 125),
    ],
)
def test_an_error_answer_is_printed_and_the_request_is_not_repeated(ear: FakeDaemon, answer: bytes, code: int) -> None:
    ear.answer = answer
    thin = run_fast("add", "true")
    assert ear.asked == ["/v1/add"]
    assert thin == run_full("add", "true")
    assert (thin.code, thin.out, thin.err.count("\n")) == (code, "", 1)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
def test_a_refusal_and_an_older_daemon_leave_it_to_the_full_command_line(ear: FakeDaemon, status: int) -> None:
    ear.answer = f"HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    assert run_fast("add", "true") == Done(None, "", "")
    assert ear.asked == ["/v1/add"]


def test_texts_from_others_cannot_control_the_terminal(ear: FakeDaemon) -> None:
    body = b'2"dibs: \\u001b[2J note \\u00fc"\n1"7"\n'
    ear.answer = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert run_fast("add", "true") == Done(0, "7\n", "dibs: \\e[2J note ü\n")


# -- its copies equal the originals --


def test_its_verbs_equal_those_of_the_full_command_line() -> None:
    assert {*fast_add.VERBS} == {"add", *(alias for alias, verb in cli.ALIASES.items() if verb == "add")}


def test_its_constants_equal_the_originals() -> None:
    assert fast_add.SOCKET_BYTES == paths.SOCKET_BYTES
    assert fast_add.ANSWER_FOR_S == connection.ANSWER_FOR_S
    assert paths.MACHINE_ID_FILES[0] == fast_add.MACHINE_ID


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
def test_the_socket_path_equals_that_of_other_clients(environ: dict[str, str]) -> None:
    try:
        path = fast_add.socket_path(environ)
    except (ValueError, OSError):
        return
    assert path == str(paths.socket_path(paths.home(environ).path))


# -- as a process --


def script(bench: Bench, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run the script that is installed as `dibs`."""
    command = [sys.executable, *kwargs.pop("flags", ()), str(SCRIPT), *words]
    environ = bench.environ | kwargs.pop("environ", {})
    return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=bench.folder, **kwargs)


def loaded(stderr: str) -> set[str]:
    """Return the modules printed by `-X importtime`."""
    return {line.rpartition("|")[2].strip() for line in stderr.splitlines() if line.startswith("import time:")}


DEAR = {
    *("json", "re", "typing", "asyncio", "argparse", "subprocess", "socket", "dataclasses", "pathlib", "enum"),
    *("collections", "contextlib", "functools", "datetime", "dibs.cli.main", "dibs.client.connection", "dibs.errors"),
}


def test_an_add_imports_few_modules(bench: Bench) -> None:
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


def test_a_daemon_refuses_the_fast_path_with_the_same_errors(bench: Bench) -> None:
    bench.start()
    for words, environ in ((["-g", "5", "true"], {}), (["true"], {"DIBS_DEVICES": "fake:2"})):
        quick = script(bench, "add", *words, environ=environ)
        full = bench.cli("--debug", "add", *words, environ=environ)
        assert (quick.returncode, quick.stdout) == (full.returncode, "")
        assert quick.stderr == full.stderr.splitlines(keepends=True)[-1]
    assert bench.cli("status", "-q").stdout == ""


def test_warnings_and_receipts_equal_those_of_the_full_command_line(tmp_path: Path) -> None:
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


def test_a_closed_or_full_stdout_is_handled(bench: Bench) -> None:
    bench.start()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, SCRIPT, "add", "true"], env=bench.environ, stdout=write, stderr=-1)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
    full = os.open("/dev/full", os.O_WRONLY)
    done = subprocess.run([sys.executable, SCRIPT, "add", "true"], env=bench.environ, stdout=full, stderr=-1)
    os.close(full)
    assert (done.returncode, done.stderr) == (125, b"dibs: system error: No space left on device.\n")


def test_the_script_is_installed_as_dibs() -> None:
    """An entry point of the same name would replace it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-scripts"] == {str(SCRIPT.relative_to(ROOT)): "dibs"}
    assert "dibs" not in project["project"].get("scripts", {})
    # Installers put the path of their interpreter in place of this line.
    assert SCRIPT.read_text().startswith("#!python\n")
    assert os.access(SCRIPT, os.X_OK)
