"""One user's daemon: build the parts, run the event loop, and end cleanly.

A running job never needs the daemon: it may crash, stop or be upgraded, and the runners continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

from dibs.daemon import assembly, cleanup, overflow_watch, state_folder
from dibs.daemon.log_sizes import LogSizes
from dibs.daemon.service import SAFETY_TICK_S, Daemon
from dibs.errors import DibsError, MachineError
from dibs.jobqueue import dispatch
from dibs.store.database import Check, DatabaseError
from dibs.system import open_files, paths, processes, settings

log = logging.getLogger("dibs.daemon.main")

#: Seconds until the command server is started: a new daemon has more urgent work; and again after it ended.
START_AFTER_S, AGAIN_AFTER_S = 2.0, 30.0
#: Seconds at the end of the process for what is not yet in the log.
FLUSH_FOR_S = 2.0
#: Switch interval of the interpreter; Python's default of 0.005 is longer than a whole turn. The queue thread waits
#: this long when it wakes, before readers notice and yield.
SWITCH_S = 0.0005


class LogOutput(logging.Handler):
    """Writes the log to stderr in a thread of its own: the disk of the log may hang, and the daemon must not.

    A critical record is written at once, because the process ends after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record."""
        line = f"{self.format(record)}\n"
        if record.levelno >= logging.CRITICAL:
            sys.stderr.write(line)
        else:
            self._lines.put(line)

    def close(self) -> None:
        """Write the rest, unless the disk hangs."""
        self._lines.put(None)
        self._thread.join(FLUSH_FOR_S)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                sys.stderr.write(line)
                sys.stderr.flush()
            except OSError:
                # The disk is full: the daemon continues without this line.
                continue


async def serve(home: Path, values: settings.Settings, visible: str | None, ready: Callable[[str], None]) -> None:
    """Run the daemon until it is asked to stop. Call `ready` when the socket answers."""
    from dibs.http_api import server

    loop = asyncio.get_running_loop()
    database = paths.database(home)
    writer = state_folder.open_store(database, processes.boot_id(), assembly.job_files(home, values).highest_id())
    try:
        parts = assembly.assemble(home, values, visible, writer, os.getpid())
    except DibsError:
        state_folder.close(writer)
        raise
    daemon, queue, numbers = parts.daemon, parts.queue, parts.numbers
    watcher, identity = daemon.watcher, daemon.identity

    # Bound before recovery reads the files: later messages of runners are received, earlier ones are in the files.
    notify = _open_notify(queue.engine.notify)
    queue.listen(notify)
    thread = threading.Thread(target=queue.run, name="core")
    thread.start()
    for remote in parts.remotes.values():
        remote.start_thread()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stopping.set)
    try:
        recovered = asyncio.create_task(state_folder.begin(queue, processes.boot_id()))
        await daemon.probe_now()
        await recovered
        parts.prepared.start()
        numbers.start(queue)
        parts.searches.start(queue)
        tasks = [asyncio.create_task(watcher.run()), asyncio.create_task(overflow_watch.run(daemon))]
        if values.command_server:
            tasks.append(asyncio.create_task(_keep_command_server(home)))
        if not writer.is_checked:
            tasks.append(asyncio.create_task(_check(daemon, database)))
        async with server.serving(daemon, values) as reopen:
            tasks.append(asyncio.create_task(_tick(daemon, database, reopen)))
            ready("ready")
            log.info("pid %s serves %s", identity.pid, identity.socket)
            await daemon.stopping.wait()
            # Long polls answer now, so that closing the server need not wait for them.
            daemon.events.publish()
        for task in tasks:
            task.cancel()
        await _keep_house(daemon, _count_time)
        if daemon.trouble is not None:
            raise daemon.trouble
    finally:
        watcher.keep_all()
        # The queue thread finishes its work first; runners are not stopped.
        numbers.stop()
        parts.searches.stop()
        queue.stop()
        await loop.run_in_executor(None, thread.join)
        await loop.run_in_executor(None, numbers.join)
        await loop.run_in_executor(None, parts.searches.join)
        for remote in parts.remotes.values():
            remote.close()
        parts.runners.close()
        await loop.run_in_executor(None, parts.prepared.close)
        await state_folder.copy_last(daemon, writer)
        daemon.close()
        state_folder.close(writer)
        queue.waits.close()
        notify.close()
        queue.engine.notify.unlink(missing_ok=True)
        log.info("stopped (pid %s); running jobs continue", identity.pid)


async def _check(daemon: Daemon, database: Path) -> None:
    """Check a large database that was opened unchecked; stop the daemon on damage, before it makes things worse."""
    check = Check(database)
    try:
        await asyncio.to_thread(check.run)
    except MachineError as error:
        daemon.fail(error)
    finally:
        check.stop()


async def _tick(daemon: Daemon, database: Path, reopen: Callable[[], Awaitable[None]]) -> None:
    """Check what no event reports, and care for the state folder; after a failure, try again at the next tick."""
    chores = (lambda daemon: state_folder.tend(daemon, database), cleanup.keep_house)
    await _keep_house(daemon, *chores, cleanup.remove_strays)
    log_sizes = LogSizes()
    while True:
        await asyncio.sleep(SAFETY_TICK_S)
        # First, because it ends a daemon whose folder was deleted.
        await _keep_house(daemon, *chores, log_sizes.note)
        try:
            if not daemon.identity.socket.exists():
                log.warning("%s was deleted and is created again", daemon.identity.socket)
                await reopen()
            counts = await daemon.ask(lambda reader: reader.counts())
            if any(counts[word] for word in ("queued", "starting", "running", "paused", "stopping")):
                await daemon.probe_now()
                daemon.tell(dispatch.recheck)
        except (OSError, DatabaseError, DibsError):
            log.exception("the safety tick")


async def _count_time(daemon: Daemon) -> None:
    """Store how long this daemon ran, for the age of the jobs."""
    if daemon.settings.keep_for is not None:
        await cleanup.count_time(daemon, daemon.settings.keep_for, is_last=True)


async def _keep_house(daemon: Daemon, *chores: Callable[[Daemon], Awaitable[None]]) -> None:
    """Do chores such as deleting old jobs and copying; what cannot be done now is tried again at the next tick."""
    for keep in chores:
        try:
            await keep(daemon)
        except (OSError, DatabaseError, DibsError):
            log.exception("housekeeping")


async def _keep_command_server(home: Path) -> None:
    """Run the command server (`cli.command_server`), without which verbs are slower; start it again when it ends."""
    path = paths.commands_socket(home)
    if path is None:
        return
    path.unlink(missing_ok=True)
    await asyncio.sleep(START_AFTER_S)
    while True:
        try:
            # Its standard input tells it when the daemon has ended.
            server = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "dibs.cli.command_server", str(path),
                stdin=asyncio.subprocess.PIPE, start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            log.warning("the command server cannot be started: %s", error.strerror or error)
        else:
            try:
                code = await server.wait()
                log.warning("the command server exited with code %s", code)
            finally:
                if server.stdin is not None:
                    server.stdin.close()
        await asyncio.sleep(AGAIN_AFTER_S)


def _open_notify(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def main() -> NoReturn:
    """Run as a process: `python -m dibs.daemon [--ready-fd 3]`."""
    logging.basicConfig(level=logging.INFO, handlers=[LogOutput()])
    os.umask(0o077)
    os.chdir("/")
    tell = _teller(sys.argv[1:])
    # After that: closing every possible descriptor takes long with a high limit.
    open_files.raise_limit()
    # Readers must not delay the queue thread: it needs the interpreter several times in a turn, and each time waits
    # up to one switch interval for another thread.
    sys.setswitchinterval(SWITCH_S)
    # Loaded modules stay for days: keep the garbage collector from scanning them.
    gc.freeze()
    try:
        visible = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        home = paths.home(os.environ).path
        paths.prepare(home)
        paths.hold(home)
        lock = state_folder.HomeLock(home)
        asyncio.run(serve(home, settings.load(os.environ), visible, tell))
    except (DibsError, OSError) as error:
        line = (
            error.line()
            if isinstance(error, DibsError)
            else f"{error.strerror or error} ({error.filename or 'the state folder'})."
        )
        tell(line)
        with contextlib.suppress(OSError):
            # The disk with the log may be the cause of the error.
            log.error("%s", line, exc_info=not isinstance(error, DibsError))
            print(f"dibs: {line}", file=sys.stderr)
        logging.shutdown()
        # Skip interpreter shutdown: it would wait for a thread that hangs in a driver.
        os._exit(error.exit_code if isinstance(error, DibsError) else MachineError.exit_code)
    os.close(lock.fd)
    logging.shutdown()
    os._exit(0)


def _teller(words: list[str]) -> Callable[[str], None]:
    """Return a function that sends one line to the process that started us, once."""
    fds = [3] if words == ["--ready-fd", "3"] else []
    # Close descriptors inherited from the starter's shell; the daemon would keep them open for days.
    os.closerange(3 + len(fds), os.sysconf("SC_OPEN_MAX"))

    def tell(line: str) -> None:
        while fds:
            fd = fds.pop()
            with contextlib.suppress(BrokenPipeError):
                os.write(fd, line.encode() + b"\n")
            os.close(fd)

    return tell
