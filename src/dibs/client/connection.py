"""HTTP/1.1 over the daemon's unix socket, with the standard library only.

Starts the daemon on first use. It runs in users' own environments, so it imports little and nothing of the server.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

from dibs import errors
from dibs.client import daemon_process
from dibs.errors import MachineError, NoDaemon
from dibs.system import paths
from dibs.system.lean import closing_fd

#: Seconds until a new daemon must answer; a cold interpreter on a loaded machine needs several.
START_FOR_S = 30
#: Seconds until a request times out; long polls pass their own value.
ANSWER_FOR_S = 60
#: Seconds between checks of what nothing reports.
LOOK_EVERY_S = 0.05
#: Variables that an automatically started daemon inherits; all others belong to one shell, not to the queue.
KEPT_NAMES = ("HOME", "USER", "LOGNAME", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
KEPT_PREFIXES = ("XDG_", "DIBS_", "RAY_AUTH_TOKEN")
#: Variables of a job: a daemon that is started from inside a job must not inherit them.
JOB_NAMES = (
    "DIBS_JOB_ID", "DIBS_JOB_NAME", "DIBS_PROJECT", "DIBS_ATTEMPT", "DIBS_JOB_DIR", "DIBS_GPU_INDICES",
    "DIBS_CHECKPOINT_DIR", "DIBS_REPORT", "DIBS_PORT", "DIBS_SWEEP", "DIBS_INDEX", "DIBS_PARAMS", "DIBS_RUN_DIR",
    "DIBS_STOP", "DIBS_WARN", "DIBS_PYTHON", "DIBS_CALLS",
)  # fmt: skip

Query = Sequence[tuple[str, str]]


class Client:
    """The client of one user's daemon. Each request opens a new connection."""

    def __init__(self, home: Path, environ: Mapping[str, str], note: str | None = None) -> None:
        self.home = home
        self.note = note
        self.environ = environ
        self.socket_path = paths.socket_path(home)
        #: Whether a request may start a daemon; false while waiting for one to stop.
        self.may_start = True

    def get(self, path: str, query: Query = (), *, patience_s: float = ANSWER_FOR_S, is_poll: bool = False) -> Any:
        """Return the answer to a GET; a poll may wait for long without a note to the user."""
        return self._ask("GET", path, query, None, patience_s, is_poll)

    def post(self, path: str, body: Any, *, patience_s: float = ANSWER_FOR_S) -> Any:
        return self._ask("POST", path, (), body, patience_s)

    def begin_get(self, path: str, query: Query = ()) -> PendingResponse:
        """Send a GET and return at once; read the answer when the socket becomes readable."""
        sock = self._connect_or_start(None)
        try:
            daemon_process.require_running(daemon_process.listener_of(sock))
            sock.sendall(self._request("GET", path, query, None))
        except ConnectionError:
            sock.close()
            raise NoDaemon("the connection to the daemon was lost.") from None
        except NoDaemon:
            sock.close()
            raise
        return PendingResponse(sock)

    def stream(self, path: str, patience_s: float) -> socket.socket:
        """Send a GET whose answer does not end; never starts a daemon. The caller reads and closes the connection."""
        sock = self.connect(patience_s)
        if sock is None:
            raise NoDaemon(f"no daemon answers on {self.socket_path}.")
        try:
            daemon_process.require_running(daemon_process.listener_of(sock))
            sock.sendall(self._request("GET", path, (), None))
        except (TimeoutError, ConnectionError) as error:
            sock.close()
            raise unanswered(error, patience_s) from None
        except NoDaemon:
            sock.close()
            raise
        return sock

    def _ask(self, method: str, path: str, query: Query, body: Any, patience_s: float, is_poll: bool = False) -> Any:
        sock = self._connect_or_start(patience_s)
        try:
            daemon_process.require_running(daemon_process.listener_of(sock))
            sock.sendall(self._request(method, path, query, body))
            daemon_process.wait_for_answer(sock, patience_s, is_poll=is_poll)
            return _read_answer(sock)
        except (TimeoutError, ConnectionError) as error:
            raise unanswered(error, patience_s) from None
        finally:
            sock.close()

    def _request(self, method: str, path: str, query: Query, body: Any) -> bytes:
        target = path + ("?" + urlencode(query) if query else "")
        lines = [f"{method} {target} HTTP/1.1", "Host: dibs", "Connection: close"]
        devices = self.environ.get("DIBS_DEVICES")
        if devices is not None and devices.isprintable():
            lines.append(f"Dibs-Devices: {devices}")
        payload = b""
        if body is not None:
            payload = json.dumps(body).encode()
            lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
        return "\r\n".join([*lines, "", ""]).encode() + payload

    def _connect_or_start(self, patience_s: float | None) -> socket.socket:
        sock = self.connect(patience_s)
        if sock is None and self.may_start:
            self.start()
            sock = self.connect(patience_s)
        if sock is None:
            raise NoDaemon(f"no daemon answers on {self.socket_path}.", self._see_log())
        return sock

    def connect(self, patience_s: float | None = ANSWER_FOR_S) -> socket.socket | None:
        """Return a connection, or None if no daemon listens."""
        until = time.monotonic() + (ANSWER_FOR_S if patience_s is None else patience_s)
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(patience_s)
            try:
                sock.connect(str(self.socket_path))
                return sock
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                sock.close()
                return None
            except BlockingIOError as error:
                # Too many connections wait to be accepted: the daemon is busy, or stopped.
                sock.close()
                daemon_process.require_running(daemon_process.lock_holder(self.home))
                if time.monotonic() > until:
                    raise unanswered(TimeoutError(), patience_s or ANSWER_FOR_S) from error
                time.sleep(LOOK_EVERY_S)
            except OSError as error:
                sock.close()
                raise NoDaemon(f"cannot reach the daemon on {self.socket_path}: {error.strerror or error}.") from None

    def is_daemon_there(self, patience_s: float | None = ANSWER_FOR_S) -> bool:
        """Return whether a daemon listens; never starts one."""
        sock = self.connect(patience_s)
        if sock is not None:
            sock.close()
        return sock is not None

    def prepare_home(self) -> None:
        """Create the state folder, private to its user."""
        paths.prepare(self.home)

    def start(self, extra: Mapping[str, str] | None = None) -> None:
        """Start a daemon unless one answers; of several concurrent callers one starts it and the others wait."""
        if "DIBS_JOB_ID" in self.environ:
            # The daemon would be a child of the job, and would be killed with the job's other processes.
            raise NoDaemon("no daemon is running, and one started inside a job would end with the job.")
        if self.note and not self.home.exists():
            print(f"dibs: {self.note}", file=sys.stderr)
        self.prepare_home()
        try:
            self._start(extra or {})
        except OSError as error:
            about = f" ({error.filename})" if error.filename else ""
            why = f"{error.strerror or error}{about}"
            raise NoDaemon(f"the daemon could not be started: {why}.", paths.ELSEWHERE) from error

    def _start(self, extra: Mapping[str, str]) -> None:
        with self.start_lock():
            until = time.monotonic() + START_FOR_S
            while not self._is_answered():
                holder = daemon_process.lock_holder(self.home)
                if holder is None and self._launch(extra):
                    return
                if holder is not None:
                    # It is about to listen or to end, or its socket was deleted and it will open it again.
                    self._require_progress(holder, until)
                time.sleep(LOOK_EVERY_S)

    def _require_progress(self, holder: int, until: float) -> None:
        daemon_process.require_running(holder)
        if time.monotonic() > until:
            text = f"a daemon (pid {holder}) is running but does not listen on {self.socket_path}."
            raise NoDaemon(text, "Replace it: `dibs daemon restart --force`. Jobs keep running.")

    @contextlib.contextmanager
    def start_lock(self) -> Iterator[None]:
        """Hold the lock that lets one process at a time start or replace the daemon."""
        with closing_fd(os.open(paths.start_lock(self.home), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _is_answered(self) -> bool:
        """Return whether a daemon answers; a slow one, or one that refuses, counts too.

        A listening socket is not enough: a child that a killed daemon was forking keeps it open until its exec.
        """
        sock = self.connect()
        if sock is None:
            return False
        try:
            sock.sendall(self._request("GET", "/v1/daemon", (), None))
            _read_answer(sock)
        except ConnectionError:
            return False
        except (TimeoutError, errors.DibsError):
            pass
        finally:
            sock.close()
        return True

    def _launch(self, extra: Mapping[str, str]) -> bool:
        """Start a daemon and wait until it is ready; return False if another one took the lock first."""
        import select

        ready, tell = os.pipe()
        pid = self.spawn(daemon_environ(self.environ) | dict(extra), tell)
        os.close(tell)
        with closing_fd(ready):
            # The pipe closes when the daemon exits, so a failed start is detected at once.
            readable, _, _ = select.select([ready], [], [], START_FOR_S)
            said = os.read(ready, 4096).decode(errors="replace").strip() if readable else "it has not reported yet"
        if said == "ready":
            return True
        # Ours may still hold the lock while it ends, and has said why.
        if readable and daemon_process.lock_holder(self.home) not in (None, pid):
            return False
        why = said.rstrip(".") or "it ended at once"
        end = "" if why.endswith("?") else "."
        raise NoDaemon(f"the daemon could not be started: {why}{end}", self._see_log())

    def spawn(self, environ: Mapping[str, str], tell: int) -> int:
        """Spawn a daemon, which writes one line to `tell`: that it is ready, or why it failed; return its pid."""
        # Opened here, so that an error of the state folder is not taken for one of the interpreter.
        log = os.open(paths.daemon_log(self.home), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "dibs.daemon", "--ready-fd", "3"],
                environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                    (os.POSIX_SPAWN_DUP2, tell, 3),
                ],
                setsid=True,
                setsigmask=(),
            )
        except OSError as error:
            raise cannot_execute(error) from error
        finally:
            os.close(log)

    def _see_log(self) -> str:
        return f"Its log is {paths.daemon_log(self.home)}."


class PendingResponse:
    """A pending request: `fileno` is for select, `finish` returns the answer."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the answer arrives."""
        return self._sock.fileno()

    def finish(self) -> Any:
        """Wait for the answer and return it."""
        try:
            return _read_answer(self._sock)
        except ConnectionError:
            raise NoDaemon("the connection to the daemon was lost.") from None
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection without reading the answer."""
        self._sock.close()


def connect(environ: Mapping[str, str]) -> Client:
    """Return the client of this user's daemon; the first request starts the daemon."""
    home = paths.home(environ)
    return Client(home.path, environ, home.note)


def daemon_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of `environ` that an automatically started daemon inherits."""
    return {
        name: value
        for name, value in environ.items()
        if name not in JOB_NAMES and (name in KEPT_NAMES or name.startswith(KEPT_PREFIXES))
    }


def unanswered(error: OSError, patience_s: float = ANSWER_FOR_S) -> MachineError:
    """Return the error for a request without an answer; the daemon may or may not have processed it."""
    if isinstance(error, TimeoutError):
        return MachineError(
            f"the daemon did not answer within {patience_s:.0f} s.", "See `dibs daemon status` and its log."
        )
    return NoDaemon("the connection to the daemon was lost.", "Try again; `dibs status` shows what was saved.")


def cannot_execute(error: OSError) -> NoDaemon:
    """Return the error for an interpreter that the system does not start."""
    is_limit = error.errno in (errno.EAGAIN, errno.ENOMEM)
    hint = "Too many processes or too little memory: see `ulimit -u`." if is_limit else "Install dibs again."
    return NoDaemon(f"the daemon could not be started: cannot execute {sys.executable}: {error.strerror}.", hint)


def _read_answer(sock: socket.socket) -> Any:
    with sock.makefile("rb") as stream:
        payload = _read_body(stream, read_head(stream))
    return json.loads(payload) if payload else None


def read_head(stream: BinaryIO) -> int:
    """Read the head of an answer; return the length of its body, 0 if that is not known. Raise if it is an error."""
    status = stream.readline()
    if not status.startswith(b"HTTP/1.1 "):
        raise ConnectionResetError(errno.ECONNRESET, "no answer")
    code, length = int(status.split()[1]), 0
    while (line := stream.readline()) != b"\r\n":
        if not line:
            raise ConnectionResetError(errno.ECONNRESET, "incomplete answer")
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    if code >= 400:
        raise refusal(code, _read_body(stream, length))
    return length


def _read_body(stream: BinaryIO, length: int) -> bytes:
    payload = stream.read(length)
    if len(payload) < length:
        raise ConnectionResetError(errno.ECONNRESET, "incomplete answer")
    return payload


def refusal(code: int, payload: bytes) -> errors.DibsError:
    """Return the error that an error response describes."""
    answer = json.loads(payload) if payload else None
    told = answer.get("error", {}) if isinstance(answer, dict) else {}
    kind = errors.KINDS.get(str(told.get("kind")), MachineError)
    return kind(str(told.get("message", f"the daemon answered {code}.")), str(told.get("hint") or ""))
