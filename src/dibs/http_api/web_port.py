"""The TCP port for browsers, opened on request: on loopback or, with TLS, on another address.

Every user of the machine can connect to it, so the peer is identified before a byte is read or sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from aiohttp import web

from dibs.errors import Conflict, DibsError, UserError
from dibs.http_api import connections
from dibs.http_api.admission import Endpoint
from dibs.http_api.connections import Connection
from dibs.http_api.tokens import Tokens
from dibs.system import open_files, peers, tcp_ports
from dibs.system.peers import Peer
from dibs.system.settings import Settings

log = logging.getLogger("dibs.http")

LOOPBACK = ("127.0.0.1", "::1")
#: Wildcard addresses, which do not tell under which name browsers reach this machine.
EVERYWHERE = ("0.0.0.0", "::")
#: The most connections of the owner. A browser tab uses one or two, so more than this is abuse.
MOST_CONNECTIONS = 1000
#: The most connections whose owner is not known yet; they are identified together, in milliseconds.
MOST_UNKNOWN = 512
#: The most strangers that get an answer before they are hung up on, at a time.
MOST_STRANGERS = 32
#: Seconds for the TLS handshake.
HANDSHAKE_FOR_S = 10.0
#: Seconds before accepting again after an error, such as no free file descriptor.
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and the host names that browsers may use."""

    addresses: tuple[str, ...]
    names: tuple[str, ...]
    context: ssl.SSLContext | None = None
    is_public: bool = False

    @property
    def scheme(self) -> str:
        return "https" if self.context else "http"

    def endpoint(self, port: int) -> Endpoint:
        usual = {"http": 80, "https": 443}[self.scheme]
        names = {f"{name}:{port}" for name in self.names} | ({*self.names} if port == usual else set())
        return Endpoint(True, os.geteuid(), frozenset(names), self.scheme, self.is_public)


def place(values: Settings) -> Place:
    """Return where to listen by the settings; refuse an address that other machines reach without TLS."""
    bind = values.web_bind
    if bind in ("", *LOOPBACK, "localhost"):
        addresses = (bind,) if bind in LOOPBACK else LOOPBACK
        return Place(addresses, ("127.0.0.1", "localhost", "[::1]"))
    try:
        address = ipaddress.ip_address(bind)
    except ValueError:
        raise UserError(f'web_bind expected an address such as 10.0.0.5, got "{bind}".') from None
    cert, key = values.web_cert, values.web_key
    if cert is None or key is None:
        raise UserError(
            f"web_bind {bind} accepts connections from other machines, which needs TLS; no port was opened.",
            "Set web_cert and web_key, or leave web_bind empty and use ssh -L.",
        )
    own = () if bind in EVERYWHERE else (f"[{bind}]" if address.version == 6 else bind,)
    names = (*(name.lower() for name in values.web_names), *own)
    if not names:
        raise UserError(f"web_bind {bind} needs web_names too, the host names that browsers use; no port was opened.")
    return Place((bind,), names, _context(cert, key), is_public=True)


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    if key.exists() and key.stat().st_mode & 0o007:
        raise UserError(f"web_key {key} can be read by every user.", f"Type: chmod o= {key}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without `password`, OpenSSL would prompt for a passphrase on a terminal that does not exist.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise UserError(f"web_cert and web_key: expected a certificate and its key in PEM, got: {error}.") from error
    return context


@dataclass
class OpenEndpoint:
    """An open endpoint: its sockets and its tasks."""

    place: Place
    port: int
    sockets: list[socket.socket]
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    #: Accepted connections whose owner is not known yet.
    unknown: list[socket.socket] = field(default_factory=list)
    has_unknown: asyncio.Event = field(default_factory=asyncio.Event)
    has_room: asyncio.Event = field(default_factory=asyncio.Event)
    #: How many strangers are being answered.
    strangers: int = 0


@dataclass(eq=False)
class Browsers:
    """Opens and closes the endpoint for browsers."""

    _runner: web.AppRunner
    _values: Settings
    _tokens: Tokens
    _open: OpenEndpoint | None = None

    @property
    def address(self) -> str | None:
        """Return the URL for a browser, without a code; None while the port is closed."""
        if self._open is None:
            return None
        return f"{self._open.place.scheme}://{self._open.place.names[0]}:{self._open.port}/"

    @property
    def port(self) -> int | None:
        """Return the open port; None while it is closed."""
        return None if self._open is None else self._open.port

    async def open(self, port: int | None) -> int:
        """Listen on a port, 0 for any free one; an open port is kept unless another one is requested."""
        if self._open is not None and port in (None, 0, self._open.port):
            return self._open.port
        where = place(self._values)
        wanted = (self._tokens.port or self._values.web_port) if port is None else port
        sockets = tcp_ports.listen(where.addresses, wanted, connections.BACKLOG)
        await self.close()
        self._hang_up()
        self._open = OpenEndpoint(where, sockets[0].getsockname()[1], sockets)
        endpoint = where.endpoint(self._open.port)
        for sock in sockets:
            self._begin(self._open, self._accept(self._open, sock))
        self._begin(self._open, self._identify(self._open, endpoint))
        self._tokens.remember(self._open.port)
        log.info("the web page is available on port %s", self._open.port)
        return self._open.port

    async def open_again(self) -> None:
        """Open the port that the last daemon had open; log a failure and continue without it.

        A process that has taken our port may have answered browser tabs in our name: it may have received their token
        and left a page or service worker for this origin. So the token is replaced and the port is not used again.
        """
        if self._tokens.port is None:
            return
        try:
            try:
                await self.open(self._tokens.port)
            except Conflict:
                self._tokens.rotate()
                self._tokens.remember(None)
                raise
        except DibsError as error:
            log.warning("the web page is not available: %s", error.line())

    async def close(self) -> None:
        """Stop listening; the server closes existing connections."""
        if self._open is None:
            return
        was, self._open = self._open, None
        for task in was.tasks:
            task.cancel()
        # End the tasks before closing the sockets: the loop would else watch descriptors that may be reused by others.
        await asyncio.gather(*was.tasks, return_exceptions=True)
        for sock in (*was.sockets, *was.unknown):
            sock.close()

    async def forget(self) -> None:
        """Close the port for good: the next daemon does not open it again."""
        await self.close()
        self._hang_up()
        self._tokens.remember(None)

    def _begin(self, listening: OpenEndpoint, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        listening.tasks.add(task)
        task.add_done_callback(listening.tasks.discard)

    async def _accept(self, listening: OpenEndpoint, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                theirs, _ = await loop.sock_accept(sock)
            except OSError as error:
                log.warning("cannot accept a connection of a browser: %s", error.strerror)
                await asyncio.sleep(AGAIN_S)
                continue
            listening.unknown.append(theirs)
            listening.has_unknown.set()
            if len(listening.unknown) >= min(MOST_UNKNOWN, open_files.connections() // 2):
                # The rest waits in the kernel's queue, in its order.
                listening.has_room.clear()
                await listening.has_room.wait()

    async def _identify(self, listening: OpenEndpoint, endpoint: Endpoint) -> None:
        """Find the owners of all new connections with one look at the kernel's table, again and again.

        A look takes as long as there are sockets on the machine, and closed ones stay for a minute: one for each
        connection kept the owner waiting long after a burst.
        """
        while True:
            await listening.has_unknown.wait()
            listening.has_unknown.clear()
            these, listening.unknown = listening.unknown, []
            listening.has_room.set()
            try:
                found = await asyncio.to_thread(peers.of_all_tcp, these)
            except asyncio.CancelledError:
                listening.unknown += these
                raise
            for sock, peer in zip(these, found, strict=True):
                self._begin(listening, self._admit(sock, peer, listening, endpoint))

    def _connected(self) -> list[Connection]:
        found = self._runner.server.connections if self._runner.server else []
        return [each for each in found if isinstance(each, Connection) and each.endpoint.is_tcp]

    def _hang_up(self) -> None:
        for connection in self._connected():
            connection.force_close()

    async def _admit(self, sock: socket.socket, peer: Peer, listening: OpenEndpoint, endpoint: Endpoint) -> None:
        """Pass the owner's connection to the server; send others only a refusal."""
        loop = asyncio.get_running_loop()
        context = listening.place.context
        is_remote = endpoint.is_public and not peer.is_local
        try:
            if peer.uid not in (endpoint.uid, 0) and not is_remote:
                await _turn_away(sock, listening)
                return
            if len(self._connected()) >= MOST_CONNECTIONS:
                sock.close()
                return
            handshake_s = HANDSHAKE_FOR_S if context else None
            await loop.connect_accepted_socket(
                lambda: Connection(self._runner, endpoint, peer), sock, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except (OSError, TimeoutError):
            # The client disconnected or does not speak TLS, so no answer is possible.
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise


async def _turn_away(sock: socket.socket, listening: OpenEndpoint) -> None:
    with sock:
        if listening.place.context is None and listening.strangers < MOST_STRANGERS:
            listening.strangers += 1
            # Closing with unread data sends a reset, which may discard the answer; so read until the client closes.
            try:
                sock.send(connections.NOT_YOURS)
                sock.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(AGAIN_S):
                    while await asyncio.get_running_loop().sock_recv(sock, 65536):
                        pass
            except OSError:
                # They are gone, or the time is over.
                pass
            finally:
                listening.strangers -= 1


class WebIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/web`: a port, 0 for any free one; or `is_open` false to close it."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    is_open: bool = True


class WebOut(msgspec.Struct):
    """The open port and its URL; None: browsers reach only the unix socket."""

    port: int | None
    address: str | None


async def post_web(browsers: Browsers, body: WebIn) -> WebOut:
    """Open or close the TCP port for browsers."""
    if body.is_open:
        await browsers.open(body.port)
    else:
        await browsers.forget()
    return WebOut(browsers.port, browsers.address)
