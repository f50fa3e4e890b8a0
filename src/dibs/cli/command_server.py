"""The command server: a process that has the whole command line loaded, and forks a child for each command.

Importing the modules of a verb takes longer than the verb itself. The daemon starts this process beside itself; it
ends with the daemon. One child waits for the next client, so that no client waits for a fork. A child takes over the
client's words, environment, folder and standard streams, so verbs run in it unchanged. Only the owner's own client is
served, and only if it is the same release of dibs in the same files.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from importlib import import_module
from typing import Any, NoReturn

from dibs.cli import fast_add, fast_verbs, main, screen
from dibs.client import stand_in
from dibs.errors import DibsError, UserError
from dibs.submission import options, remote_callers
from dibs.system import paths

#: Commands that may run at once; more are left to their clients.
MOST_CHILDREN = 32
#: Connections that may wait to be accepted.
BACKLOG = 32
#: Seconds until a client must have sent its request.
REQUEST_FOR_S = 5.0
#: Bytes of the longest request: an environment and a command line of the kernel's limit.
LONGEST_REQUEST = 2**23
#: Seconds until a child follows one that was killed.
PAUSE_S = 0.5
#: Standard input: a pipe whose other end the daemon holds.
DAEMON_FD = 0
#: Modules that the verbs import only when they need them, but often do.
PRELOADED = (
    "dibs.client.stand_in", "dibs.cli.screen", "dibs.cli.status_view", "dibs.cli.job_action", "dibs.cli.results_table",
    "dibs.logs.files", "rich.console", "rich.table", "rich.text", "rich.cells", "textwrap", "traceback", "shlex",
    "http.client",
)  # fmt: skip


#: A table that is drawn before there is a client.
WARM_UP_COLUMNS = (screen.Column("ID"), screen.Column("STATE", is_state=True), screen.Column("REASON", least=8))


class _CannedClient(stand_in.ReadingClient):
    """A client whose daemon is this process and always gives the same answer."""

    def connect(self, patience_s: float | None = None) -> socket.socket:
        """Return a connection on which the answer is already there."""
        ours, self._its = socket.socketpair()
        ours.settimeout(REQUEST_FOR_S)
        body = json.dumps({"counts": {"queued": 1}, "jobs": [{"id": 1, "state": "queued", "gpus": []}]}).encode()
        self._its.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return ours


def preload() -> None:
    """Import what the verbs need."""
    for name in (*(f"dibs.cli.verbs.{verb}" for verb in sorted(fast_verbs.VERBS)), *PRELOADED):
        import_module(name)


def serve(path: str) -> None:
    """Answer clients until the daemon ends."""
    preload()
    # Keep the garbage collector of the children from touching, and so copying, what they share with this process.
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    temporary = f"{path}.{os.getpid()}"
    listener.bind(temporary)
    os.chmod(temporary, 0o600)
    listener.listen(BACKLOG)
    os.rename(temporary, path)
    children: set[int] = set()
    is_over = False
    while not is_over:
        children = {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0}
        if len(children) < MOST_CHILDREN:
            ours, its = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                ours.close()
                _await_client(listener, its)
            children.add(pid)
            its.close()
            # The child says when it has a client.
            is_over = DAEMON_FD in select.select([ours.fileno(), DAEMON_FD], [], [])[0]
            if not is_over and not ours.recv(1):
                # It was killed; whatever did that must not keep us busy.
                time.sleep(PAUSE_S)
            ours.close()
        else:
            is_over = DAEMON_FD in select.select([listener.fileno(), DAEMON_FD], [], [])[0]
            if not is_over:
                listener.accept()[0].close()
    os.unlink(path)


def _await_client(listener: socket.socket, server: socket.socket) -> NoReturn:
    """Wait in this child process for a client and run its command; end if the daemon or the server ends first."""
    with contextlib.suppress(OSError, DibsError):
        _warm_up()
    found = select.select([listener.fileno(), server.fileno(), DAEMON_FD], [], [])[0]
    if listener.fileno() not in found:
        os._exit(0)
    client, _ = listener.accept()
    try:
        server.send(b"+")
    except OSError:
        # The server is gone, and this child with it: the client runs the command itself.
        os._exit(0)
    server.close()
    listener.close()
    _answer(client)


def _warm_up() -> None:
    """Do once what most verbs do, without any effect, before there is a client.

    The first use of an object after a fork copies a page of memory, because its count of references changes. A verb
    uses about a thousand pages; to copy them takes as long as the verb itself.
    """
    identity = fast_add.packed(fast_verbs.identity())
    request = json.loads(fast_add.request(["status"], os.environ, identity=identity))
    _adopt(_environ(request))
    remote_callers.file_system()
    with contextlib.redirect_stdout(io.StringIO()):
        _, name, rest = main.split(remote_callers.unpack(request["argv"]))
        args = options.parse(name, main.load(name).OPTIONS, rest)
        queue = _CannedClient(paths.home(os.environ).path, os.environ)
        jobs = queue.get("/v1/jobs", [("select", "unfinished")])["jobs"]
        rows = [[str(job["id"]), job["state"], screen.clean("first in the queue")] for job in jobs]
        print(screen.table(screen.screen_of_stream(sys.stdout, args), WARM_UP_COLUMNS, rows), flush=True)
        screen.now()


def _answer(client: socket.socket) -> NoReturn:
    """Run the command of a client in this child process, and end."""
    code = main.BUG
    try:
        request, streams = _receive(client)
        _become(request, streams)
        _end_with(client)
        client.sendall(fast_verbs.ACCEPTED)
    except (OSError, ValueError, KeyError, UserError):
        # The client runs the command itself.
        os._exit(0)
    try:
        code = main.main()
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else main.BUG
    finally:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        try:
            client.sendall(bytes([code & 0xFF]))
        finally:
            os._exit(0)


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the request of a client and its standard streams; raise ValueError if it is not ours."""
    _, uid, _ = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    until = time.monotonic() + REQUEST_FOR_S
    client.settimeout(REQUEST_FOR_S)
    fds = array.array("i")
    header, rights, _, _ = client.recvmsg(8, socket.CMSG_LEN(3 * fds.itemsize))
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    size = int.from_bytes(header, "big")
    if uid != os.geteuid() or len(header) != 8 or len(fds) != len(fast_verbs.STREAMS) or size > LONGEST_REQUEST:
        raise ValueError
    body = bytearray()
    while len(body) < size:
        more = client.recv(min(size - len(body), 2**16))
        if not more or time.monotonic() > until:
            raise ValueError
        body += more
    client.settimeout(None)
    return json.loads(body), list(fds)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Take over the process of the client: streams, environment, folder, umask and words."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    version, folder, executable, *encodings = remote_callers.unpack(request["identity"])
    if [version, folder, executable] != fast_verbs.identity()[:3] or request[
        "file_system"
    ] != remote_callers.file_system():
        raise ValueError
    (cwd,) = remote_callers.unpack(request["cwd"])
    os.chdir(cwd)
    os.umask(request["umask"])
    _adopt(_environ(request))
    time.tzset()
    sys.argv[1:] = remote_callers.unpack(request["argv"])
    sys.stdin, sys.stdout, sys.stderr = (
        _stream(number, *how.split(" ")) for number, how in zip(fast_verbs.STREAMS, encodings, strict=True)
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _environ(request: dict[str, Any]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in remote_callers.unpack(request["environ"]))


def _adopt(environ: dict[str, str]) -> None:
    """Make an environment that of this process; most of it usually is already."""
    for name in [name for name in os.environ if name not in environ]:
        del os.environ[name]
    for name, value in environ.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _stream(number: int, encoding: str, errors: str) -> io.TextIOWrapper:
    file = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115 - it lives as long as the process
    return io.TextIOWrapper(file, encoding, errors, line_buffering=number == 2 or file.isatty())


def _end_with(client: socket.socket) -> None:
    """Interrupt this process when its client ends, as Ctrl-C would."""

    def look(number: int, frame: object) -> None:
        try:
            if client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                raise KeyboardInterrupt
        except BlockingIOError:
            return

    signal.signal(signal.SIGIO, look)
    fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)


if __name__ == "__main__":
    serve(sys.argv[1])
