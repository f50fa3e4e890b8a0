"""`GET /v1/events`: all events as server-sent events.

One task reads the event table for all listeners. Changes in the core wake it, and bursts are sent together. Without
listeners there is no task, no wake-up and no GPU reading.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Annotated

import msgspec
from aiohttp import web

from dibs.daemon.service import Daemon
from dibs.errors import Conflict, DibsError, MachineError, UserError
from dibs.http_api import event_hub, gpus, queue
from dibs.http_api.event_hub import Hub, Message, Stream
from dibs.http_api.schemas import job_answers
from dibs.http_api.schemas.job_answers import JobEvent
from dibs.model import serialization, units
from dibs.model.jobs import JobId
from dibs.store.database import DatabaseError
from dibs.store.writer import Reader
from dibs.system import open_files
from dibs.version import __version__

log = logging.getLogger("dibs.streaming")

#: The least seconds between two writes, in total and per listener: every write wakes the listener and us, and with many
#: listeners that would slow down the jobs.
GATHER_S, GATHER_EACH_S = 0.1, 0.001
#: Seconds between two readings of the GPUs, and between two checks for listeners that do not read.
GPUS_EVERY_S = 2.0
#: Seconds between keep-alive comments.
BEAT_EVERY_S = 15.0
#: The most events in one write; more follow with the next write.
MOST_AT_ONCE = 1_000
#: The most concurrent listeners, and never more than half of the connections: others must get an answer too.
MOST_STREAMS = 400

Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events to receive."""

    job: Annotated[Id | None, msgspec.Meta(description="Only events of this job.")] = None


class Channel:
    """The listeners of one daemon, and the task that sends them events."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.hub = Hub()
        #: The queue at the last read.
        self._queue = job_answers.QueueState({}, job_answers.PauseState(False))
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        #: Listeners that are connecting: the hub stays awake for them.
        self._coming = 0

    async def listen(self, stream: Stream, since: int | None) -> bytes:
        """Add a listener that has all events up to `since`; return the first bytes to send."""
        self._coming += 1
        try:
            if not self.hub.is_awake or (since or 0) > self.hub.top:
                await self._look()
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._tell())
            missed = b"" if since is None else await self._missed(stream.job, since)
            if not self.hub.is_awake:
                raise MachineError("the events could not be read.")
            # No await between reading the missed events and adding the stream, or events would be lost.
            gpus = self.hub.gpus if stream.job is None else b""
            first = self._hello(is_mark=since is None) + missed + gpus
            stream.room += len(first)
            self.hub.streams.add(stream)
        finally:
            self._coming -= 1
        return first

    async def _missed(self, job: int | None, since: int) -> bytes:
        """Return the events after `since`, or the message to reload."""
        older: list[Message] = []
        until = since
        if job is not None and since <= self.hub.top:
            # A listener to one job may have missed many events: read them all from the table.
            until = self.hub.top
            older = await self.daemon.ask(lambda reader: _messages(reader, since, until, job))
        elif self.hub.is_within(since) and since < self.hub.floor:
            floor = self.hub.floor
            self.hub.prepend(await self.daemon.ask(lambda reader: _messages(reader, since, floor)), since)
        if not self.hub.is_within(until) or len(older) > event_hub.HISTORY:
            return event_hub.reset(self.hub.top)
        return b"".join(one.text for one in older) + self.hub.missed(until, job)

    def _hello(self, *, is_mark: bool) -> bytes:
        """Return the first message; with `is_mark` a listener may resume from it, as no missed events follow."""
        about = job_answers.Hello(
            version=__version__,
            last=self.hub.top,
            counts=self._queue.counts,
            queue=self._queue.queue,
            host=socket.gethostname(),
            user=self.daemon.identity.user,
        )
        return event_hub.message("hello", about, self.hub.top if is_mark else None)

    async def _look(self) -> bool:
        """Read and send new events; return whether there are no more."""
        async with self._looking:
            since = self.hub.top if self.hub.is_awake else None
            news = await self.daemon.ask(lambda reader: _news(reader, since))
            self._queue = news.queue
            counts = event_hub.message("counts", news.queue)
            if since is None:
                self.hub.wake(news.newest, counts)
            elif news.newest - since > event_hub.HISTORY:
                self.hub.skip(news.newest, counts)
            else:
                self.hub.tell(news.messages, news.until, counts)
            return self.hub.top >= news.newest

    async def _tell(self) -> None:
        """Send events until there are no listeners."""
        try:
            await self._tell_all()
        except (OSError, DatabaseError, DibsError):
            # The listeners reconnect; the error may have been temporary.
            log.exception("the event streams")
        finally:
            self.hub.end_all()
            self.hub.sleep()

    async def _tell_all(self) -> None:
        events = self.daemon.events
        clock = events.loop.time
        gpus_at, beat_at = clock(), clock() + BEAT_EVERY_S
        # Check `stopping` too: in Python 3.11 a wait that completes while it is cancelled swallows the cancellation.
        while (self.hub.streams or self._coming) and not self.daemon.stopping.is_set():
            version, began = events.version, clock()
            is_all = await self._look()
            if clock() >= gpus_at:
                gpus_at = clock() + GPUS_EVERY_S
                self.hub.sweep(clock())
                await self._tell_gpus()
            if clock() >= beat_at:
                beat_at = clock() + BEAT_EVERY_S
                self.hub.beat()
            if is_all:
                await events.changed(version, max(0.0, gpus_at - clock()))
            await asyncio.sleep(max(0.0, began + gather_s(len(self.hub.streams)) - clock()))

    async def _tell_gpus(self) -> None:
        if all(stream.job is not None for stream in self.hub.streams):
            return
        self.daemon.watcher.note_viewer()
        self.hub.tell_gpus(event_hub.message("gpus", await gpus.gpus(self.daemon, self.daemon.inventory)))

    async def close(self) -> None:
        """Stop the task and end all streams."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.hub.end_all()


def gather_s(listeners: int) -> float:
    """Return the seconds between two writes: at most a thousand writes per second over all listeners."""
    return max(GATHER_S, listeners * GATHER_EACH_S)


async def get_events(channel: Channel, request: web.Request, query: EventsQuery) -> web.StreamResponse:
    """Stream all new events, or those after `Last-Event-ID`, as server-sent events."""
    job, since = query.job, _since(request)
    if request.version < (1, 1):
        raise UserError("expected HTTP/1.1 or newer for a stream.")
    most = min(MOST_STREAMS, open_files.connections() // 2)
    if len(channel.hub.streams) >= most:
        channel.hub.sweep(channel.daemon.events.loop.time())
    if len(channel.hub.streams) >= most:
        raise Conflict(f"there are {most} listeners already, the maximum.", "Close some of the pages.")
    if job is not None:
        await channel.daemon.ask(lambda reader: reader.job(JobId(job)))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    if request.transport is not None:
        await _serve(channel, response, request.transport, job, since)
    return response


async def _serve(
    channel: Channel, response: web.StreamResponse, transport: asyncio.Transport, job: int | None, since: int | None
) -> None:
    """Keep a stream open. Its headers are sent, so an error can only end it."""
    over = asyncio.Event()

    def end() -> None:
        # Abort if the listener does not read; otherwise the server ends the response properly.
        if transport.get_write_buffer_size():
            transport.abort()
        over.set()

    stream = Stream(transport, job, end)
    try:
        await response.write(await channel.listen(stream, since))
        if not channel.daemon.stopping.is_set():
            await over.wait()
    except ConnectionError:
        log.debug("a listener left")
    except (OSError, DatabaseError, DibsError):
        log.exception("an event stream")
    finally:
        channel.hub.end(stream)


def _since(request: web.Request) -> int | None:
    """Return the last event that the listener has; None if it is new."""
    text = request.headers.get("Last-Event-ID", "")
    if not text:
        return None
    if not units.is_whole(text):
        raise UserError(f'Last-Event-ID expected the number of an event, got "{text[:40]}".', "Leave it out.")
    return int(text)


@dataclass(frozen=True, slots=True)
class News:
    """The events up to `until`, which may be before `newest`, and the current queue."""

    messages: list[Message]
    until: int
    newest: int
    queue: job_answers.QueueState


def _news(reader: Reader, since: int | None) -> News:
    newest = reader.last_event()
    start = newest if since is None else since
    until = min(newest, start + MOST_AT_ONCE)
    messages = _messages(reader, start, until) if newest - start <= event_hub.HISTORY else []
    return News(messages, until, newest, queue.queue_state(reader))


def _messages(reader: Reader, since: int, until: int, job: int | None = None) -> list[Message]:
    found = reader.happened(since, until, None if job is None else JobId(job), event_hub.HISTORY + 1)
    events = ((e, JobEvent(e.job, serialization.moment(e.at), e.kind, e.detail, e.word, e.attempt)) for e in found)
    return [Message(e.number, e.job, event_hub.message("job", event, e.number)) for e, event in events]
