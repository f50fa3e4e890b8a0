"""A client of `GET /v1/events` over the bare socket, and a parser of the stream."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench import PATIENCE_S, Bench


@dataclass(frozen=True)
class Heard:
    """One message of a stream."""

    event: str
    data: Any
    number: int | None = None


def parse(block: bytes) -> Heard | None:
    """Parse one message as the standard says; None: a comment."""
    fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if line and not line.startswith(":"))
    if "data" not in fields:
        return None
    number = int(fields["id"]) if "id" in fields else None
    return Heard(fields["event"], json.loads(fields["data"]), number)


@dataclass
class Ear:
    """A listener that reads everything at once, or nothing."""

    takes: bool = True
    is_gone: bool = False
    data: bytes = b""
    held: bytes = b""
    ends: list[bool] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        if self.takes:
            self.data += data
        else:
            self.held += data

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def is_closing(self) -> bool:
        return self.is_gone

    def heard(self) -> list[Heard]:
        found, rest = [], self.data
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
            found += [parse(block) for block in body.split(b"\n\n") if block]
        return [each for each in found if each is not None]

    def numbers(self) -> list[int | None]:
        return [each.number for each in self.heard() if each.event == "job"]


class Listener:
    """One stream of a queue's daemon."""

    def __init__(self, queue: Bench, since: int | None = None, job: int | None = None) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(queue.client.socket_path))
        query = "" if job is None else f"?job={job}"
        mark = "" if since is None else f"Last-Event-ID: {since}\r\n"
        self.sock.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: dibs\r\n{mark}\r\n".encode())
        self._raw = self._body = b""
        self.head = self._until(b"\r\n\r\n").decode()
        assert self.head.startswith("HTTP/1.1 200 "), self.head
        #: Everything received so far, in order.
        self.heard: list[Heard] = []

    def _until(self, end: bytes) -> bytes:
        while end not in self._raw:
            self._raw += self._receive()
        found, _, self._raw = self._raw.partition(end)
        return found

    def _receive(self) -> bytes:
        data = self.sock.recv(1 << 16)
        if not data:
            raise EOFError("the stream ended")
        return data

    def _chunk(self) -> bytes:
        size = int(self._until(b"\r\n"), 16)
        if not size:
            raise EOFError("the stream ended well")
        while len(self._raw) < size + 2:
            self._raw += self._receive()
        found, self._raw = self._raw[:size], self._raw[size + 2 :]
        return found

    def next(self) -> Heard:
        """Return the next message."""
        while True:
            while b"\n\n" not in self._body:
                self._body += self._chunk()
            block, _, self._body = self._body.partition(b"\n\n")
            found = parse(block)
            if found is not None:
                self.heard.append(found)
                return found

    def until(self, is_it: Callable[[Heard], bool]) -> Heard:
        """Return the first message of a kind."""
        while True:
            found = self.next()
            if is_it(found):
                return found

    def jobs(self) -> list[tuple[int, int, str]]:
        """Return number, job and kind of all events received so far."""
        return [(h.number or 0, h.data["job"], h.data["kind"]) for h in self.heard if h.event == "job"]

    def to_the_end(self) -> None:
        """Read until the stream ends."""
        try:
            while True:
                self.next()
        except (EOFError, ConnectionError):
            self.close()

    def is_cut(self) -> bool:
        """Return whether the daemon has closed it, even while there is something left to read."""
        poll = select.poll()
        poll.register(self.sock, 0)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the stream."""
        self.sock.close()


def is_end(job_id: int) -> Callable[[Heard], bool]:
    """Return a predicate for the message with which a job ended."""
    return lambda h: h.event == "job" and h.data["job"] == job_id and h.data["kind"] == "Ended"


def ask(queue: Bench, words: str) -> bytes:
    """Return the answer to a raw request."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(queue.client.socket_path))
        sock.sendall(f"{words}\r\nHost: dibs\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: sock.recv(65536), b""))
