"""Starting the two servers: where they listen, and until when.

An address that others can reach is refused unless it is requested explicitly; then a warning says what that means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, web

from dibs.client import connection
from dibs.errors import DibsError, UserError
from dibs_compat import ids
from dibs_compat.gpupeasy import admission, core, gui
from dibs_compat.gpupeasy.dispatcher import Dispatcher
from dibs_compat.gpupeasy.logbook import Logbook

CORE_PORT, PAGE_PORT = 8888, 4004
#: GPUs of a machine of which nobody knows how many it has.
USUAL = ("0", "1", "2", "3")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: All addresses of a machine: what the old start scripts say.
EVERYWHERE = ("0.0.0.0", "", "::")
#: Seconds that the core may take to answer the page.
CORE_FOR_S = 60


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. `is_open`: other users may connect, because the user asked for it."""

    host: str
    port: int
    is_open: bool = False


def settled(address: Address, say: Callable[[str], None]) -> Address:
    """Return where to listen really: what others could reach is refused, or narrowed where it is only the old habit."""
    if address.host in LOOPBACK:
        return Address(address.host, address.port)
    if address.is_open:
        say(
            f"WARNING: {address.host or '0.0.0.0'}:{address.port} is a shell for everyone who can reach this machine: "
            f"anybody who connects runs commands as {os.environ.get('USER') or os.geteuid()}, without a password."
        )
        return address
    if address.host in EVERYWHERE:
        say(
            f"listening on 127.0.0.1 instead of {address.host or '0.0.0.0'}, for you only; from another machine: "
            f"ssh -L {address.port}:127.0.0.1:{address.port} THIS-MACHINE. The old open port: --insecure-bind, or "
            "insecure_bind=True in a start script."
        )
        return Address("127.0.0.1", address.port)
    raise UserError(
        f"{address.host} can be reached by others, who would run commands as you.",
        "Listen on 127.0.0.1 and use ssh -L, or use --insecure-bind (insecure_bind=True).",
    )


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Print an error as one line and exit with its code."""
    try:
        yield
    except DibsError as error:
        say(error.line())
        raise SystemExit(error.exit_code) from None


def say(text: str) -> None:
    """Print a message to stderr."""
    print(f"gpupeasy: {text}", file=sys.stderr, flush=True)


@report_errors()
def run_core(texts: Sequence[str] | None, address: Address, logdir: str | None, *, is_loud: bool = False) -> None:
    """Serve the old addresses until Ctrl-C; without texts for all GPUs of this machine."""
    queue = connection.connect(os.environ)
    where = settled(address, say)
    gpus = [str(d.index) for d in ids.inventory().devices] or USUAL if texts is None else texts

    @contextlib.asynccontextmanager
    async def app(port: int) -> AsyncIterator[web.Application]:
        queue.prepare_home()
        log = Logbook(Path(logdir) if logdir else queue.home / "gpupeasy", is_loud=is_loud)
        dispatcher = Dispatcher(queue, port, gpus, log)
        await asyncio.to_thread(dispatcher.open)
        if others := await asyncio.to_thread(dispatcher.others):
            say(f"{others} more jobs are held in dibs for a server at another port: dibs status project:gpupeasy")
        made = web.Application(middlewares=[admission.guard(is_open=where.is_open)], client_max_size=core.LARGEST_BODY)
        made[core.DISPATCHER], made[core.QUEUE] = dispatcher, queue
        made.add_routes(core.routes())
        try:
            yield made
        finally:
            await asyncio.to_thread(dispatcher.close)

    asyncio.run(_serve("server", where, app))


@report_errors()
def run_page(host: str, port: int, address: Address) -> None:
    """Serve the page of the server at a host and port until Ctrl-C."""
    where = settled(address, say)
    name = "127.0.0.1" if host in EVERYWHERE else host

    @contextlib.asynccontextmanager
    async def app(own: int) -> AsyncIterator[web.Application]:
        guards = [admission.guard(is_open=where.is_open), gui.report_unreached]
        made = web.Application(middlewares=guards, client_max_size=core.LARGEST_BODY)
        base = f"http://{f'[{name}]' if ':' in name else name}:{port}"
        async with ClientSession(base, timeout=ClientTimeout(total=CORE_FOR_S)) as session:
            made[gui.CORE] = gui.Core(session, name, port)
            made.add_routes(gui.routes())
            yield made

    asyncio.run(_serve("page", where, app))


async def _serve(
    what: str, where: Address, made: Callable[[int], contextlib.AbstractAsyncContextManager[web.Application]]
) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    # A start script may run us in a thread, where signals are not ours.
    is_main = threading.current_thread() is threading.main_thread()
    for number in (signal.SIGINT, signal.SIGTERM) if is_main else ():
        loop.add_signal_handler(number, ending.set)
    with _listening(where) as sock:
        port = sock.getsockname()[1]
        async with made(port) as app:
            runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
            await runner.setup()
            try:
                await web.SockSite(runner, sock).start()
                shown = f"[{where.host}]" if ":" in where.host else where.host or "0.0.0.0"
                print(f"GPUPeasy {what} on http://{shown}:{port}/", flush=True)
                await ending.wait()
            finally:
                await runner.cleanup()


def _listening(where: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {where.host}:{where.port}: {why}.", "Choose another port.") from None
