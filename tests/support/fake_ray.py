"""A server that answers like Ray's dashboard, or as nobody should: it hangs, trickles, breaks off, sends garbage."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

#: Reads the request (method, path, body) and returns status and document, or raw bytes, or never returns.
Reply = Callable[[str, str, Any], "tuple[int, Any] | bytes"]


class FakeRay:
    """One server on loopback. `reply` may be replaced at any time; `requests` has what was asked."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        """Return the address for the settings."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """End the server; requests that hang are dropped."""
        self.closing.set()
        # A thread waits for the next connection; only this wakes it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            method, path, _ = lines.readline().decode().split()
            headers = {}
            while line := lines.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            size = int(headers.get("content-length", 0))
            body = json.loads(lines.read(size)) if size else None
            self.requests.append((method, path, body))
            self.headers.append(headers)
            found = self.reply(method, path, body)
            with contextlib.suppress(OSError):
                connection.sendall(found if isinstance(found, bytes) else _encoded(*found))


def _encoded(status: int, document: Any) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    content = text.encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(content)) + content
