"""Attackers on raw sockets and in the files: smuggled and slow requests, races for a code, readable secrets,
planted modules.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench import Bench, wait_for
from browsers import Browser, converse, link
from dibs_compat.gpupeasy.logbook import Logbook
from forking import PATIENCE_S


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Start one queue for all tests that leave nothing behind."""
    own = Bench(tmp_path_factory.mktemp("outsiders"))
    own.start()
    yield own
    own.close()


@pytest.fixture
def browser(queue: Bench) -> Browser:
    """Return a browser that is logged in."""
    address, code = link(queue)
    own = Browser(address)
    own.sign_in(code)
    return own


def unix(queue: Bench) -> socket.socket:
    """Return a connection to the daemon's own socket, as `ssh -L` makes them."""
    sock = queue.client.connect()
    assert sock is not None
    return sock


def statuses(told: bytes) -> list[int]:
    """Return the statuses of all answers."""
    return [int(part[:3]) for part in told.split(b"HTTP/1.1 ")[1:]]


# -- request smuggling --

#: What a program may send on the socket without a token.
PAUSE = (
    b"POST /v1/queue HTTP/1.1\r\nHost: dibs\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    b'{"paused":true}'
)
#: What a page of another site makes a browser send to a tunnel.
FROM_A_PAGE = b"Host: localhost:8000\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(PAUSE)
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAUSE), PAUSE)


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + LENGTH + b"\r\n" + PAUSE,
        b"POST /v1/queue HTTP/1.1\r\n" + FROM_A_PAGE + LENGTH + b"\r\n" + PAUSE,
        b"POST /v1/session HTTP/1.1\r\n" + FROM_A_PAGE + LENGTH + b"\r\n" + PAUSE,
        b"POST /v1/queue HTTP/1.1\r\n" + FROM_A_PAGE + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
        b"GET / HTTP/1.1\r\n" + FROM_A_PAGE + LENGTH + b"\r\n" + PAUSE,
        # Two lengths, two ways to state it, odd spellings: another server might count differently.
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + PAUSE,
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Content-Length: 0\r\n" + LENGTH + b"\r\n" + PAUSE,
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Content-Length: 0, %d\r\n\r\n" % len(PAUSE) + PAUSE,
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Content-Length: +0\r\n\r\n" + PAUSE,
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Transfer-Encoding: xchunked\r\n\r\n" + PAUSE,
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + PAUSE,
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Transfer-Encoding: chunked\r\n\r\n0;x\n\r\n\r\n" + PAUSE,
        b"POST / HTTP/1.1\n" + FROM_A_PAGE.replace(b"\r", b"") + b"\n" + PAUSE,
        # After a refused request nothing more is read.
        b"POST / HTTP/1.1\r\n" + FROM_A_PAGE + b"Content-Length: 0\r\n\r\n" + PAUSE,
        b"DELETE /v1/jobs HTTP/1.1\r\n" + FROM_A_PAGE + b"\r\n" + PAUSE,
        b"GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n" + PAUSE,
    ],
    ids=lambda sent: repr(sent.partition(b"\r\n")[0][:16] + sent[-180:-100]),
)
def test_a_request_body_is_never_parsed_as_another_request(queue: Bench, browser: Browser, sent: bytes) -> None:
    host = urlsplit(browser.address).netloc.encode()
    for told in (converse(unix(queue), sent), browser.raw(sent.replace(b"localhost:8000", host))):
        assert len(statuses(told)) <= 1, told
        assert all(400 <= status < 500 for status in statuses(told)), told
    assert queue.client.get("/v1/queue")["paused"] is False


def test_endless_requests_block_nobody_and_use_little_memory(queue: Bench, browser: Browser) -> None:
    """A hundred that are sent byte by byte, and some with headers that only grow."""
    where = urlsplit(browser.address)
    pid = queue.pid()

    def resident() -> int:
        words = Path(f"/proc/{pid}/statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    with contextlib.ExitStack() as stack:

        def connected(sent: bytes) -> socket.socket:
            sock = socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S)
            stack.enter_context(sock)
            # It may have read enough and hung up.
            with contextlib.suppress(ConnectionError):
                sock.sendall(sent)
            return sock

        for _ in range(100):
            connected(b"GET /v1/jobs HTTP/1.1\r\nHost: ")
        for _ in range(5):
            grown = connected(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2_000_000)
            # Refused before its end: the connection is not kept.
            assert statuses(converse(grown, b"")) in ([], [400])
        assert browser.ask("GET", "/v1/daemon").status == 200
    assert resident() - before < 64 * 2**20


# -- codes and tokens --


def test_concurrent_uses_of_a_code_succeed_once(queue: Bench) -> None:
    address, code = link(queue)
    told: list[int] = []
    start = threading.Barrier(8)

    def exchange() -> None:
        start.wait(PATIENCE_S)
        told.append(Browser(address).ask("POST", "/v1/session", {"code": code}).status)

    threads = [threading.Thread(target=exchange) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(told) == [200, *[401] * 7]


def test_commands_and_secrets_are_not_readable_by_others(queue: Bench, browser: Browser) -> None:
    """Every user can read the arguments of a process. Those of the command itself are up to the user."""
    gate, mark, secret = queue.folder / "gate", os.urandom(8).hex(), os.urandom(8).hex()
    os.mkfifo(gate)
    # It forks nothing: a child would briefly have its arguments.
    command = ["sh", "-c", f"read line < '{gate}'", mark]
    job_id = queue.add(command, name=f"name-{mark}", env={"WANDB_API_KEY": secret}, gpus=1)
    queue.until(job_id, "started")
    pid = wait_for(lambda: queue.job(job_id)["pid"])
    token = browser.headers["Authorization"].removeprefix("Bearer ").encode()
    said = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            said[int(path.parent.name)] = path.read_bytes()
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    gate.write_text("go\n")
    assert {each for each, words in said.items() if mark.encode() in words} == {pid}
    assert not [each for each, words in said.items() if secret.encode() in words or token in words]
    assert secret.encode() in environ
    assert token not in environ
    assert secret not in json.dumps(queue.job(job_id))
    queue.until(job_id)


def test_planted_modules_are_not_loaded(tmp_path: Path) -> None:
    """In the folder where everything is started, in that of the job, and on the user's own module path."""
    bench = Bench(tmp_path, devices="fake:1")
    loaded, planted = tmp_path / "loaded", tmp_path / "planted"
    planted.mkdir()
    trap = f"import sys\nwith open({str(loaded)!r}, 'a') as file: print(__name__, sys.argv, file=file)\n"
    for folder, names in ((tmp_path, ("os", "json", "socket", "dibs", "typing")), (planted, ("sitecustomize",))):
        for name in names:
            (folder / f"{name}.py").write_text(trap)
    try:
        # As the installed script does: `python -m` would search the folder itself, on request.
        line = "import sys; sys.path.pop(0); from dibs.cli import main as cli; sys.exit(cli.main())"
        environ = bench.environ | {"PYTHONPATH": str(planted), "LD_LIBRARY_PATH": str(planted)}
        words = [sys.executable, "-c", line, "run", "-g1", "true"]
        done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        pid = bench.pid()
        daemon = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PYTHONPATH" not in daemon
        assert b"LD_" not in daemon
        # The user's own program uses the user's own path; nothing else does.
        assert [text.split()[0] for text in loaded.read_text().splitlines()] == ["sitecustomize"]
    finally:
        bench.close()


# -- files --


def test_a_job_that_replaces_its_files_by_links_harms_only_itself(queue: Bench) -> None:
    """Its log becomes a link to the token, a pipe, a folder: nothing blocks, and cleaning follows no link."""
    kept = queue.folder / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    script = (
        'rm "$DIBS_JOB_DIR/log"; case $0 in link) ln -s "$1" "$DIBS_JOB_DIR/log";; pipe) mkfifo "$DIBS_JOB_DIR/log";; '
        'folder) mkdir "$DIBS_JOB_DIR/log";; esac; ln -s "$2" "$DIBS_JOB_DIR/checkpoint/x"'
    )
    ids = []
    for kind in ("link", "pipe", "folder"):
        ids.append(queue.add(["sh", "-c", script, kind, str(kept / "file"), str(kept)], gpus=0))
        queue.until(ids[-1])
        sock = unix(queue)
        told = converse(sock, b"GET /v1/jobs/%d/log HTTP/1.1\r\nHost: dibs\r\nConnection: close\r\n\r\n" % ids[-1])
        assert statuses(told)[0] in (200, 404)
    select = ",".join(map(str, ids))
    queue.client.post("/v1/jobs/actions", {"verb": "clean", "select": [select], "checkpoints": True})
    assert (kept / "file").read_text() == "mine"
    assert queue.client.get("/v1/daemon")["running"]


def test_control_characters_in_names_are_escaped_in_the_gpupeasy_log(tmp_path: Path) -> None:
    log = Logbook(tmp_path)
    log.write("Info", "Scheduling <1, \x1b]0;pwned\x07\r\n[16/Nov/2026 00:00:00] [Error   ]:  forged\u202e> on gpu  0")
    text = log.path.read_text()
    assert text.count("\n") == 1
    assert text[:-1].isprintable()
