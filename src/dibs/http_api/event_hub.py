"""The hub of the event streams: what was told last, who listens, and what each of them is given. No clock, no I/O.

An event is encoded once and its bytes go to everybody. Events are known by their numbers in the store, so a listener
can go on where it was cut off, also at another daemon. What is kept is a window over the newest numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

#: Numbers of events after which one who was away is told to load anew. It bounds the window and what one is sent.
HISTORY = 5_000
#: Bytes that may wait for a listener to read them, besides what it is sent at first.
MOST_WAITING = 512 * 1024
#: Seconds for which bytes may wait without ever being all read.
PATIENCE_S = 30.0
#: A comment, which keeps proxies from closing a quiet stream.
BEAT = b":\n\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One event of the store, as it is sent."""

    number: int
    job: int
    text: bytes


class Sink(Protocol):
    """Where the bytes of one listener go."""

    def write(self, data: bytes) -> None:
        """Send bytes, at once or when there is room for them."""

    def waiting(self) -> int:
        """Return how many bytes have not been taken yet."""

    def is_closing(self) -> bool:
        """Tell whether the other side has gone."""


@dataclass(slots=True, eq=False)
class Stream:
    """One listener."""

    sink: Sink
    #: The only job whose events it wants; None: all, and the devices.
    job: int | None
    #: Called when nothing more will be sent.
    ended: Callable[[], None]
    #: Bytes that may wait.
    room: int = MOST_WAITING
    #: When bytes were last seen to wait that were not there before; None: none did.
    waiting_since: float | None = None


@dataclass(slots=True)
class Hub:
    """Everybody who listens, and the window: all events with a number above `floor`, up to `top`."""

    streams: set[Stream] = field(default_factory=set)
    floor: int = 0
    top: int = 0
    is_awake: bool = False
    #: What was last told of the queue and of the devices, for those who come.
    counts: bytes = b""
    gpus: bytes = b""
    _window: deque[Message] = field(default_factory=deque)

    def wake(self, top: int, counts: bytes) -> None:
        """Begin to tell what happens after the event `top`."""
        self.floor = self.top = top
        self.counts, self.gpus, self.is_awake = counts, b"", True

    def sleep(self) -> None:
        """Forget everything: nobody listens."""
        self._window.clear()
        self.is_awake = False

    def tell(self, messages: Sequence[Message], top: int, counts: bytes) -> None:
        """Give everybody what happened up to the event `top`, and how the queue stands now."""
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
        """Let everybody load anew: more has happened than is told one by one."""
        self._window.clear()
        self.floor = self.top = top
        self.counts = counts
        self._write(reset(top) + counts, list(self.streams))

    def tell_gpus(self, gpus: bytes) -> None:
        """Give those who listen to everything the devices, if something about them has changed."""
        if gpus != self.gpus:
            self.gpus = gpus
            self._send(gpus)

    def beat(self) -> None:
        """Show everybody that the stream is alive."""
        self._write(BEAT, list(self.streams))

    def prepend(self, older: Sequence[Message], since: int) -> None:
        """Widen the window to all events after `since`, given those up to where it began."""
        self._window.extendleft(reversed([one for one in older if one.number <= self.floor]))
        self.floor = min(self.floor, since)

    def is_within(self, since: int) -> bool:
        """Tell whether one who has heard of everything up to `since` can be told the rest."""
        return self.top - HISTORY <= since <= self.top

    def missed(self, since: int, job: int | None = None) -> bytes:
        """Return what happened after `since`, of one job or all; it must lie in the window."""
        return _joined([message for message in self._window if message.number > since], job)

    def sweep(self, now: float) -> None:
        """End the streams of those who have gone or do not read."""
        for stream in list(self.streams):
            waiting = stream.sink.waiting()
            if not waiting:
                stream.waiting_since = None
            elif stream.waiting_since is None:
                stream.waiting_since = now
            is_stuck = stream.waiting_since is not None and now - stream.waiting_since > PATIENCE_S
            if stream.sink.is_closing() or waiting > stream.room or is_stuck:
                self.end(stream)

    def end(self, stream: Stream) -> None:
        """Send no more to somebody."""
        if stream in self.streams:
            self.streams.remove(stream)
            stream.ended()

    def end_all(self) -> None:
        """Send no more to anybody."""
        for stream in list(self.streams):
            self.end(stream)

    def _send(self, data: bytes, job: int | None = None) -> None:
        """Write to those who listen to one job; None: to everything."""
        self._write(data, [stream for stream in self.streams if stream.job == job])

    def _write(self, data: bytes, streams: Iterable[Stream]) -> None:
        framed = frame(data)
        for stream in streams:
            # One that has too much already is ended, not passed over: it comes back for what it missed.
            if stream.sink.waiting() > stream.room or stream.sink.is_closing():
                self.end(stream)
            else:
                stream.sink.write(framed)


def message(event: str, data: Any, number: int | None = None) -> bytes:
    """Return one message of a stream."""
    # JSON has no line ends, and what it says cannot become a field of the stream.
    mark = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (mark, event.encode(), msgspec.json.encode(data))


def reset(top: int) -> bytes:
    """Return what tells a listener to load anew, and to listen on from the event `top`."""
    return message("reset", {"last": top}, top)


def frame(data: bytes) -> bytes:
    """Return a chunk of an HTTP/1.1 answer: made once for all, where the server would make it for each."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _joined(messages: Iterable[Message], job: int | None = None) -> bytes:
    return b"".join(one.text for one in messages if job is None or one.job == job)
