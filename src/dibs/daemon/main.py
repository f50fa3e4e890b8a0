"""One user's daemon: build the parts, run the event loop, and end cleanly.

A running job never needs the daemon: it may crash, stop or be upgraded, and the runners continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from dibs.daemon import assembly, cleanup, log_output, state_folder
from dibs.daemon.service import SAFETY_TICK_S, Daemon
from dibs.engines.job_files import JobFiles
from dibs.errors import Conflict, DibsError, MachineError
from dibs.jobqueue import dispatch
from dibs.store.database import Check, DatabaseError
from dibs.system import open_files, paths, processes, settings

log = logging.getLogger("dibs.daemon.main")

#: Seconds that the child of a dead daemon may need until its exec on a loaded machine, and between checks of it.
EXEC_FOR_S = 10.0
LOOK_EVERY_S = 0.01
#: Switch interval of the interpreter; Python's default of 0.005 is longer than a whole turn. The queue thread waits
#: this long when it wakes, before readers notice and yield.
SWITCH_S = 0.0005


class HomeLock:
    """The lock that makes this process the only daemon of this home, until it ends."""

    def __init__(self, home: Path) -> None:
        self.fd = os.open(paths.daemon_lock(home), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        give_up_at = time.monotonic() + EXEC_FOR_S
        while not self._try():
            pid = os.pread(self.fd, 64, 0).decode(errors="replace").strip()
            if not _is_gone(pid) or time.monotonic() > give_up_at:
                raise Conflict(
                    f"a daemon runs already (pid {pid or '?'}, socket {paths.socket_path(home)}).",
                    "If its socket is gone: dibs daemon restart.",
                )
            time.sleep(LOOK_EVERY_S)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{os.getpid()}\n".encode(), 0)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _is_gone(pid: str) -> bool:
    """Tell whether a process is dead. A child that it was forking may keep its lock until the exec."""
    if not pid.isdecimal():
        return False
    found = processes.look(int(pid))
    return found is None or found.is_dead


async def serve(home: Path, values: settings.Settings, visible: str | None, ready: Callable[[str], None]) -> None:
    """Run the daemon until it is asked to stop. Call `ready` when the socket answers."""
    from dibs.http_api import server

    loop = asyncio.get_running_loop()
    database = paths.database(home)
    writer = state_folder.open_store(database, processes.boot_id(), JobFiles(home, values.files or home).highest_id())
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
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stopping.set)
    try:
        recovered = asyncio.create_task(state_folder.begin(queue, processes.boot_id()))
        await daemon.probe_now()
        await recovered
        numbers.start(queue)
        tasks = [asyncio.create_task(watcher.run())]
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
        queue.stop()
        await loop.run_in_executor(None, thread.join)
        await loop.run_in_executor(None, numbers.join)
        parts.runners.close()
        await state_folder.copy_last(daemon, writer)
        daemon.close()
        state_folder.close(writer)
        queue.waits.close()
        notify.close()
        queue.engine.notify.unlink(missing_ok=True)
        log.info("pid %s leaves; jobs run on", identity.pid)


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
    while True:
        await asyncio.sleep(SAFETY_TICK_S)
        try:
            if not daemon.identity.socket.exists():
                log.warning("%s was deleted; it is opened again", daemon.identity.socket)
                await reopen()
            counts = await daemon.ask(lambda reader: reader.counts())
            if any(counts[word] for word in ("queued", "starting", "running", "paused", "stopping")):
                await daemon.probe_now()
                daemon.tell(dispatch.recheck)
            await _keep_house(daemon, *chores)
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


def _open_notify(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def main() -> NoReturn:
    """Run as a process: `python -m dibs.daemon [--ready-fd 3]`."""
    log_output.begin()
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
        lock = HomeLock(home)
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
