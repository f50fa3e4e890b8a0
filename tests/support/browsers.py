"""A browser without a window: sends requests to the port for browsers, or whatever a test wants to try."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench import Bench
from forking import PATIENCE_S

JSON = {"Content-Type": "application/json"}


@dataclass
class Answer:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return its body as JSON."""
        return json.loads(self.body)


def converse(sock: socket.socket, sent: bytes) -> bytes:
    """Send bytes that are a whole request, or can never become one; return everything that comes back."""
    told = b""
    # Of a long one the server reads the beginning, and hangs up.
    with sock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.sendall(sent)
        while piece := sock.recv(65536):
            told += piece
    return told


@dataclass
class Browser:
    """An HTTP client on TCP."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None
    _kept: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Answer:
        """Send a request."""
        connection = self._kept or self._connect()
        try:
            headers = self.headers | (JSON if body is not None else {}) | more
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            if self._kept is None:
                connection.close()

    @contextlib.contextmanager
    def keeping(self) -> Iterator[Browser]:
        """Send all requests over one connection, as browsers do."""
        self._kept = self._connect()
        try:
            yield self
        finally:
            self._kept.close()
            self._kept = None

    def _connect(self) -> http.client.HTTPConnection:
        place = urlsplit(self.address).netloc
        if self.context is None:
            return http.client.HTTPConnection(place, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(place, timeout=PATIENCE_S, context=self.context)

    def raw(self, sent: bytes) -> bytes:
        """Send bytes; return everything that comes back."""
        where = urlsplit(self.address)
        return converse(socket.create_connection((where.hostname, where.port), timeout=PATIENCE_S), sent)

    def sign_in(self, code: str) -> None:
        """Exchange a code for the token."""
        token = self.ask("POST", "/v1/session", {"code": code}).json["token"]
        self.headers["Authorization"] = f"Bearer {token}"


def quiet_port() -> int:
    """Return a free port outside the ephemeral range, so that it stays free."""
    for port in random.sample(range(20000, 30000), 100):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


def link(bench: Bench, *words: str) -> tuple[str, str]:
    """Return the address and the code of a new login link."""
    address, _, code = json.loads(bench.cli("web", "--json", *words).stdout)["link"].partition("#code=")
    return address, code
