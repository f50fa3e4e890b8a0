"""HTTP to the dashboard of a Ray cluster: one request at a time, with a deadline, a bounded answer and a token.

Nothing here knows about jobs. Whatever a server does instead of answering as Ray does ends in `Unavailable`.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dibs import errors
from dibs.engines.protocol import Unavailable

DEFAULT_PORT = 8265
#: Seconds for a whole request. A busy head takes several to accept a job.
DEADLINE_S = 30.0
#: Bytes of an answer. A list of two thousand jobs has one million; decoded, it takes ten times the memory.
ANSWER_MAX = 4 << 20
#: Bytes of a token file.
TOKEN_MAX = 4096


class TooLarge(Unavailable):
    """The answer is longer than we are willing to read."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a dashboard listens."""

    host: str
    port: int
    is_tls: bool

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can be meant. Other names are not resolved: that may change."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read the setting `address`; raise an error that says what was expected."""
    expected = f'expected an address such as "http://127.0.0.1:{DEFAULT_PORT}", got "{text}".'
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise errors.UserError(expected) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
        raise errors.UserError(expected)
    return Address(parts.hostname, port or DEFAULT_PORT, parts.scheme == "https")


def find_token(token_file: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the token, as Ray's own programs find it, except that our setting comes first; None: there is none.

    Read anew for each request: a token may be replaced while the daemon runs.
    """
    if not token_file and (text := environ.get("RAY_AUTH_TOKEN")):
        return _checked_token(text, "RAY_AUTH_TOKEN")
    path = _token_path(token_file, environ)
    return None if path is None else _read_token(path)


def token_problem(token_file: str | None, environ: Mapping[str, str]) -> str:
    """Return who else can read the file with the token, and so run programs as us; empty: nobody."""
    if not token_file and environ.get("RAY_AUTH_TOKEN"):
        return ""
    path = _token_path(token_file, environ)
    try:
        is_open = path is not None and os.stat(path).st_mode & 0o077
    except OSError:
        return ""
    return f"others can read the token; type: chmod 600 {path}" if is_open else ""


def _token_path(token_file: str | None, environ: Mapping[str, str]) -> Path | None:
    if path := token_file or environ.get("RAY_AUTH_TOKEN_PATH"):
        return Path(path).expanduser()
    usual = Path(environ.get("HOME") or os.path.expanduser("~"), ".ray", "auth_token")
    return usual if usual.exists() else None


def _read_token(path: Path) -> str:
    try:
        # Non-blocking, so that a pipe cannot block us.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return _checked_token(file.read(TOKEN_MAX).decode("ascii", "replace"), str(path))
    except OSError as error:
        raise Unavailable(f"cannot read the token file {path}: {error.strerror}") from error


def _checked_token(text: str, where: str) -> str:
    token = text.strip()
    # It becomes part of a header line.
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Unavailable(f"expected one word as the token in {where}")
    return token


def check_access(name: str, address: Address, token: str | None) -> None:
    """Refuse an address that other machines can reach without a token: there anybody could run programs as us."""
    if token is None and not address.is_loopback:
        raise errors.NotAllowed(
            f"engine {name}: {address} is not on this machine, and there is no token for it.",
            f"Start Ray with RAY_AUTH_MODE=token, and set engines.{name}.token_file.",
        )


class Answer:
    """Status and text of an answer."""

    __slots__ = ("status", "text")

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text

    def decoded(self) -> Any:
        """Return the JSON document; raise `Unavailable` if it is none."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise Unavailable("its answer is not JSON") from error


def request(
    address: Address,
    token: str | None,
    method: str,
    path: str,
    body: object = None,
    deadline_s: float = DEADLINE_S,
) -> Answer:
    """Send one request and return the answer, of whatever status but those of a wrong token."""
    headers = {"Accept": "application/json", "Connection": "close"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    payload = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        payload = json.dumps(body).encode()
    try:
        with _connected(address, deadline_s) as connection:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_MAX + 1)
            if answer.length and len(content) <= ANSWER_MAX:
                raise http.client.IncompleteRead(content, answer.length)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"{address}: {_in_words(error)}") from error
    if len(content) > ANSWER_MAX:
        raise TooLarge(f"{address}: its answer is longer than {ANSWER_MAX >> 20} MiB")
    if answer.status in (401, 403):
        why = "does not accept the token" if token else "requires a token"
        raise Unavailable(f"{address} {why} (HTTP {answer.status})")
    return Answer(answer.status, content.decode("utf-8", "replace"))


@contextlib.contextmanager
def _connected(address: Address, deadline_s: float) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection that breaks at the deadline, even if the other side sends a byte now and then."""
    if address.is_tls:
        context = ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address.host, address.port, timeout=deadline_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=deadline_s)
    connection.connect()
    is_late = threading.Event()
    watch = threading.Timer(deadline_s, _break, [connection.sock, is_late])
    watch.daemon = True
    watch.start()
    try:
        yield connection
    except (OSError, http.client.HTTPException):
        if not is_late.is_set():
            raise
    finally:
        watch.cancel()
        connection.close()
    # An answer without a length ends with the connection: what was read may look complete.
    if is_late.is_set():
        raise TimeoutError


def _break(sock: socket.socket, is_late: threading.Event) -> None:
    is_late.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.HTTPException | ValueError):
        return f"expected an answer of Ray, got something else ({type(error).__name__})"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
