"""A program that is many readers of one daemon: event streams that stay open, and requests at a steady rate.

`load` runs it. It says `ready` when all streams are open, asks until its stdin is closed, and then prints what it saw.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import Callable

#: What people look at, in turn: the overview, one job, the table of all, the end of a log, a page of the table.
PATHS: tuple[Callable[[int], str], ...] = (
    lambda job: "/v1/jobs",
    lambda job: f"/v1/jobs/{job}",
    lambda job: "/v1/jobs/index",
    lambda job: f"/v1/jobs/{job}/log?tail=100",
    lambda job: "/v1/jobs?limit=100",
)
#: In the messages of a stream: of which job they tell.
JOB = re.compile(rb'"job":(\d+)')
#: Bytes at the end of what was read in which a message is looked for.
NEWEST_BYTES = 1_000


class Crowd:
    """All readers, and what they saw."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.took_ms: list[float] = []
        self.failures: list[str] = []
        self.cut = 0
        self.received = 0
        #: The job to which something happened last: people look at that one. The first is there before the crowd.
        self.job = 1
        self._writers: list[asyncio.StreamWriter] = []
        self._reading: list[asyncio.Task[None]] = []

    async def listen(self) -> None:
        """Open one stream, and read it in the background until it ends."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        self._writers.append(writer)
        writer.write(b"GET /v1/events HTTP/1.1\r\nHost: dibs\r\n\r\n")
        await reader.readuntil(b"event: hello")
        self._reading.append(asyncio.create_task(self._read(reader)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            self.received += len(data)
            if found := JOB.findall(data[-NEWEST_BYTES:]):
                self.job = int(found[-1])
        self.cut += 1

    async def ask(self, path: str, due: float) -> None:
        """Ask once; the time runs from when it was due, so that a late start is not hidden."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.socket)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: dibs\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
        except OSError as error:
            self.failures.append(f"{path}: {error}")
            return
        if not answer.startswith(b"HTTP/1.1 200 "):
            self.failures.append(f"{path}: {answer[:60].decode(errors='replace')}")
        self.took_ms.append((time.monotonic() - due) * 1000)

    def leave(self) -> None:
        """Close all streams."""
        for writer in self._writers:
            writer.close()


async def main(socket: str, streams: int, rate: float) -> None:
    """Be the crowd."""
    crowd = Crowd(socket)
    for _ in range(streams):
        await crowd.listen()
    print("ready", flush=True)
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    asked: set[asyncio.Task[None]] = set()
    began = time.monotonic()
    for number in itertools.count():
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if over.done():
            break
        path = PATHS[number % len(PATHS)](crowd.job)
        task = asyncio.create_task(crowd.ask(path, due))
        asked.add(task)
        task.add_done_callback(asked.discard)
    await asyncio.gather(*asked)
    cut, received = crowd.cut, crowd.received
    crowd.leave()
    print(json.dumps({"took_ms": crowd.took_ms, "failures": crowd.failures, "cut": cut, "received": received}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
