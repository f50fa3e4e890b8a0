"""The hub of the event streams: the listeners, the latest events, and what each listener receives. No clock, no I/O.

An event is encoded once for all listeners. Events are identified by their numbers in the store, so a listener can
resume after a disconnect, also with a restarted daemon. The hub keeps a window of the newest events.
"""

from __future__ import annotations

from asyncio import WriteTransport
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

#: A listener that missed more events than this must reload. Bounds the window and the bytes sent to one listener.
HISTORY = 5_000
#: Bytes that may be buffered for a listener, besides the first message.
MOST_WAITING = 512 * 1024
#: Seconds for which a listener's buffer may stay non-empty.
PATIENCE_S = 30.0
#: A comment, so that proxies do not close an idle stream.
BEAT = b":\n\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One event of the store, encoded."""

    number: int
    job: int
    text: bytes


@dataclass(slots=True, eq=False)
class Stream:
    """One listener."""

    #: Its connection. Written to directly, because aiohttp's write costs a task switch each time.
    sink: WriteTransport
    #: The job whose events it receives; None: all events, and the GPUs.
    job: int | None
    #: Called when nothing more will be sent.
    ended: Callable[[], None]
    #: Bytes that may be buffered.
    room: int = MOST_WAITING
    #: When the buffer became non-empty; None: it was empty at the last check.
    waiting_since: float | None = None


@dataclass(slots=True)
class Hub:
    """The listeners, and the window of events with numbers above `floor` up to `top`."""

    streams: set[Stream] = field(default_factory=set)
    floor: int = 0
    top: int = 0
    is_awake: bool = False
    #: The latest messages about the queue and the GPUs, for new listeners.
    counts: bytes = b""
    gpus: bytes = b""
    _window: deque[Message] = field(default_factory=deque)

    def wake(self, top: int, counts: bytes) -> None:
        """Start the window after the event `top`."""
        self.floor = self.top = top
        self.counts, self.gpus, self.is_awake = counts, b"", True

    def sleep(self) -> None:
        """Drop the window while there are no listeners."""
        self._window.clear()
        self.is_awake = False

    def tell(self, messages: Sequence[Message], top: int, counts: bytes) -> None:
        """Send the events up to `top` and the current queue counts to all listeners."""
        self._window.extend(messages)
        self.top = top
        while self._window and self._window[0].number <= top - HISTORY:
            self._window.popleft()
        self.floor = max(self.floor, top - HISTORY)
        is_news = bool(messages) or counts != self.counts
        self.counts = counts
        if is_news:
            self._send(_joined(messages) + counts)
        wanted = {stream.job for stream in self.streams if stream.job is not None}
        for job in wanted.intersection(message.job for message in messages):
            self._send(_joined(messages, job) + counts, job)

    def skip(self, top: int, counts: bytes) -> None:
        """Tell all listeners to reload, because there are too many new events to send."""
        self._window.clear()
        self.floor = self.top = top
        self.counts = counts
        self._write(reset(top) + counts, list(self.streams))

    def tell_gpus(self, gpus: bytes) -> None:
        """Send the GPUs to the listeners to all events, if anything changed."""
        if gpus != self.gpus:
            self.gpus = gpus
            self._send(gpus)

    def beat(self) -> None:
        """Send a keep-alive to all listeners."""
        self._write(BEAT, list(self.streams))

    def prepend(self, older: Sequence[Message], since: int) -> None:
        """Extend the window back to `since` with the older events."""
        self._window.extendleft(reversed([one for one in older if one.number <= self.floor]))
        self.floor = min(self.floor, since)

    def is_within(self, since: int) -> bool:
        """Return whether a listener that has everything up to `since` can get the rest."""
        return self.top - HISTORY <= since <= self.top

    def missed(self, since: int, job: int | None = None) -> bytes:
        """Return the events after `since`, of one job or all; `since` must be within the window."""
        return _joined([message for message in self._window if message.number > since], job)

    def sweep(self, now: float) -> None:
        """End the streams of listeners that have disconnected or do not read."""
        for stream in list(self.streams):
            waiting = stream.sink.get_write_buffer_size()
            if not waiting:
                stream.waiting_since = None
            elif stream.waiting_since is None:
                stream.waiting_since = now
            is_stuck = stream.waiting_since is not None and now - stream.waiting_since > PATIENCE_S
            if stream.sink.is_closing() or waiting > stream.room or is_stuck:
                self.end(stream)

    def end(self, stream: Stream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)
            stream.ended()

    def end_all(self) -> None:
        for stream in list(self.streams):
            self.end(stream)

    def _send(self, data: bytes, job: int | None = None) -> None:
        """Write to the listeners to one job; None: to the listeners to all events."""
        self._write(data, [stream for stream in self.streams if stream.job == job])

    def _write(self, data: bytes, streams: Iterable[Stream]) -> None:
        framed = frame(data)
        for stream in streams:
            # A listener that is too slow is disconnected, not skipped: it reconnects and gets what it missed.
            if stream.sink.get_write_buffer_size() > stream.room or stream.sink.is_closing():
                self.end(stream)
            else:
                stream.sink.write(framed)


def message(event: str, data: Any, number: int | None = None) -> bytes:
    """Return one server-sent event."""
    # Encoded JSON contains no newline, so the data cannot inject other fields.
    mark = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (mark, event.encode(), msgspec.json.encode(data))


def reset(top: int) -> bytes:
    """Return the message that tells a listener to reload and to resume after the event `top`."""
    return message("reset", {"last": top}, top)


def frame(data: bytes) -> bytes:
    """Return an HTTP/1.1 chunk; made once for all listeners, where the server would make one for each."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _joined(messages: Iterable[Message], job: int | None = None) -> bytes:
    return b"".join(one.text for one in messages if job is None or one.job == job)
