"""The daemon's event stream (`GET /v1/events`) as messages; docs/events.md describes them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from dibs.client.connection import Client, read_head, unanswered

#: Seconds without a byte after which the daemon counts as gone; it sends a comment every 15 s.
SILENT_FOR_S = 40.0
PATH = "/v1/events"


class Message(NamedTuple):
    """One message: hello, job, counts, gpus or reset."""

    event: str
    data: Any


class EventStream:
    """One connection to the stream. `close` may be called from another thread, and ends the iteration."""

    def __init__(self, client: Client) -> None:
        self._sock = client.stream(PATH, SILENT_FOR_S)
        self._is_closed = False

    def close(self) -> None:
        """End the stream."""
        self._is_closed = True
        try:
            # Only this wakes a thread that reads.
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side was faster.
            pass

    def messages(self) -> Iterator[Message]:
        """Yield messages until the daemon ends; raise a DibsError if the connection is lost."""
        try:
            with self._sock, self._sock.makefile("rb") as stream:
                read_head(stream)
                yield from parse(_chunks(stream))
        except OSError as error:
            if not self._is_closed:
                raise unanswered(error, SILENT_FOR_S) from None


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the chunks of an answer without a known length."""
    while head := stream.readline():
        size = int(head, 16)
        if size == 0:
            return
        yield stream.read(size)
        stream.readline()
    raise ConnectionResetError("the answer was cut off")


def parse(chunks: Iterator[bytes]) -> Iterator[Message]:
    """Yield the messages in the text of a stream, which may be cut anywhere; comments are skipped."""
    left = b""
    for chunk in chunks:
        *blocks, left = (left + chunk).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if line and line[0] != ":")
            if "data" in fields:
                yield Message(fields["event"], json.loads(fields["data"]))
