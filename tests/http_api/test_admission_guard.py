"""The guard before a small server: streams that a new token ends, and requests that never reach a handler."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from dibs.http_api import admission_guard
from dibs.http_api.admission import Endpoint
from dibs.http_api.admission_guard import Guard
from dibs.http_api.connections import Connection
from dibs.http_api.tokens import PATIENT_UNTIL, Tokens
from dibs.system.peers import Peer
from forking import PATIENCE_S

HOST = "127.0.0.1:80"
DOOR = Endpoint(True, os.geteuid(), frozenset({HOST}))


class SmallServer:
    """A server with one endless route and one that makes a new token."""

    def __init__(self, folder: Path) -> None:
        self.guard = Guard(Tokens(folder / "web.json"))
        self.guard.tokens.new_code(0)
        self.begun: list[str] = []
        self.entered = asyncio.Event()
        self.port = 0

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Begin an answer that never ends."""
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"begun")
        self.begun.append(request.path)
        self.entered.set()
        await asyncio.Event().wait()
        return answer

    async def rotate(self, request: web.Request) -> web.Response:
        """Make a new token."""
        self.guard.rotate(request)
        return web.Response(text="rotated")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the server inside the block."""
        app = web.Application()
        app.on_response_prepare.append(admission_guard.protect)
        app.add_routes([web.get("/v1/stream", self.stream), web.post("/v1/rotate", self.rotate)])
        runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        assert runner.server is not None
        runner.server.request_handler = self.guard.before(runner.server.request_handler)
        peer = Peer(os.geteuid(), is_local=True)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(runner, DOOR, peer), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            await runner.cleanup()

    async def ask(self, line: str, token: str | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request without waiting for the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        key = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"{line} HTTP/1.1\r\nHost: {HOST}\r\n{key}\r\n".encode())
        return reader, writer


def test_a_new_token_ends_streams_opened_with_the_old_one(tmp_path: Path) -> None:
    async def act() -> None:
        own = SmallServer(tmp_path)
        async with own.serving():
            old = own.guard.tokens.token
            stream, hold = await own.ask("GET /v1/stream", old)
            await own.entered.wait()
            rotating, other = await own.ask("POST /v1/rotate", old)
            # Only the client that rotated the token gets its answer.
            assert b" 200 " in await rotating.readline()
            told = b""
            try:
                told = await stream.read(-1)
            except ConnectionResetError:
                pass
            assert b"0\r\n\r\n" not in told
            late, last = await own.ask("GET /v1/stream", old)
            assert b" 401 " in await late.readline()
            assert own.begun == ["/v1/stream"]
            for writer in (hold, other, last):
                writer.close()

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))


def test_a_refused_request_reaches_no_handler_and_no_router(tmp_path: Path) -> None:
    async def act() -> None:
        own = SmallServer(tmp_path)
        async with own.serving():
            for line in ("GET /v1/stream", "GET /v1/nowhere", "DELETE /v1/stream"):
                reader, writer = await own.ask(line, None)
                answer = await reader.read(-1)
                assert answer.split()[1] in (b"401", b"405")
                assert b"Content-Security-Policy" in answer
                writer.close()
            # Not even `Expect` is answered before.
            reader, writer = await asyncio.open_connection("127.0.0.1", own.port)
            writer.write(f"POST /v1/rotate HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\n\r\n".encode())
            assert b" 401 " in await reader.readline()
            writer.close()
            assert own.begun == []

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))


def test_an_absolute_request_target_is_refused_even_with_the_token(tmp_path: Path) -> None:
    """Only proxies get such requests, and the router would see nothing but the path."""

    async def act() -> None:
        own = SmallServer(tmp_path)
        async with own.serving():
            reader, writer = await own.ask(f"GET http://{HOST}/v1/stream", own.guard.tokens.token)
            assert b" 400 " in await reader.readline()
            writer.close()
            assert own.begun == []

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))


def test_wrong_tokens_are_counted_and_requests_without_one_are_not(tmp_path: Path) -> None:
    async def act() -> None:
        own = SmallServer(tmp_path)
        async with own.serving():
            for token in [None] * (PATIENT_UNTIL + 1) + ["wrong"] * PATIENT_UNTIL:
                reader, writer = await own.ask("GET /v1/stream", token)
                assert b" 401 " in await reader.readline()
                writer.close()
            counted, _ = own.guard._failures._sides[f"user {os.geteuid()}"]
            assert counted == PATIENT_UNTIL

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))
