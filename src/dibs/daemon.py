"""One user's daemon: builds the parts, holds the thread that waits for things, and ends cleanly.

It decides and records, and is never needed by a running job: it may crash, stop or be upgraded, and the runners go on.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from dibs import dispatch, housekeeping, leases, observing, places, probe, processes, settings, store, users, vetting
from dibs.core import Core, now_ms
from dibs.database import Check, DatabaseError, backup
from dibs.devices import DeviceId, Inventory, with_drained
from dibs.drains import Drains
from dibs.engines.launching import Runners
from dibs.engines.local import Local
from dibs.errors import Conflict, DibsError, MachineError
from dibs.gathering import Gathering
from dibs.jobs import ACTIVE, Job, JobId
from dibs.looking import Looking
from dibs.observations import Seen
from dibs.observing import Observing
from dibs.standing import Standing
from dibs.turns import Turn, Work
from dibs.views import Policy
from dibs.waits import Waits

T = TypeVar("T")
log = logging.getLogger("dibs.daemon")

#: Seconds between looks at the world that no event tells of: tickets that rest, devices that come and go.
SAFETY_TICK_S = 30.0
#: Seconds between automatic copies of the database.
BACKUP_EVERY_S = 3600.0
#: Seconds that the child of a dead daemon may take to its exec, on a loaded machine, and between looks at it.
EXEC_FOR_S = 10.0
LOOK_EVERY_S = 0.01
#: Seconds for which a thread may compute while another wants to; Python's own 0.005 are longer than a whole turn. It is
#: how long the core waits when it wakes, before others know and give way.
SWITCH_S = 0.0005
#: Threads that answer questions from the store; each has a connection of its own.
READERS = 2
#: Threads that read logs for those who ask over HTTP.
LOG_READERS = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """What the daemon says about itself."""

    pid: int
    user: str
    home: Path
    socket: Path
    started_at: int
    #: The setting as this daemon got it: a client that wants other devices is told to restart it.
    devices: str


class Events:
    """Those who wait for jobs to change, in the asyncio thread. Costs nothing while nobody waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Grows with every change; written by the core thread alone.
        self.version = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    def publish(self, changed: set[JobId]) -> None:
        """Wake everybody who waits for jobs to change; each looks whether it concerns him. From any thread."""
        self.version += 1
        if self._waiting:
            # A core that still works while the loop is closing has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._changed.set)

    async def changed(self, since: int, timeout_s: float) -> None:
        """Return when something has changed since that version, or the time is over."""
        # Counted before looking: a change from now on finds us waiting.
        self._waiting += 1
        try:
            self._changed.clear()
            if self.version == since:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), timeout_s)
        finally:
            self._waiting -= 1


class Daemon:
    """The parts of a running daemon, as the HTTP door sees them."""

    def __init__(
        self, identity: Identity, core: Core, events: Events, watcher: probe.Probe, drained: Drains, database: Path
    ) -> None:
        self.drains = drained
        self.identity = identity
        self.core = core
        self.events = events
        self.probe = watcher
        self.stopping = asyncio.Event()
        #: Why it has to stop, if nobody asked it to.
        self.trouble: MachineError | None = None
        #: Opens the socket once more, should somebody have deleted its file.
        self.reopen: Callable[[], Awaitable[None]] | None = None
        self._database = database
        self._local = threading.local()
        self._opened: list[store.Reader] = []
        #: Questions that are being answered, or wait.
        self.asking = 0
        self._readers = ThreadPoolExecutor(READERS, "reader")
        self._prober = ThreadPoolExecutor(1, "probe")
        #: Removes the files of forgotten jobs, on whatever disk they are.
        self.remover = ThreadPoolExecutor(1, "remover")
        #: Reads what jobs wrote, on whatever disk.
        self.logs = ThreadPoolExecutor(LOG_READERS, "logs")
        #: Looks at real devices; None where they are pretend ones.
        self.looking: Looking | None = None
        #: Waits for the running jobs to end, while a drain is asked for.
        self.closing: asyncio.Task[None] | None = None

    @property
    def inventory(self) -> Inventory:
        """Return the devices as last seen, with what is drained now."""
        return self.core.inventory()

    async def ask(self, question: Callable[[store.Reader], T]) -> T:
        """Answer a question from the store without disturbing the core."""
        self.asking += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._answer, question)
        finally:
            self.asking -= 1

    def _answer(self, question: Callable[[store.Reader], T]) -> T:
        reader = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = store.Reader.open(self._database)
            reader.pause = self.core.waits.way.give
            self._opened.append(reader)
        reader.pause()
        return question(reader)

    async def do(self, verb: Callable[[Turn], T]) -> T:
        """Run a verb in the core thread; returns after the commit."""
        return await asyncio.wrap_future(self.core.ask(verb))

    async def probe_now(self) -> Inventory:
        """Look at the devices; wake the core if something about them has changed that matters to it."""
        before = self.core.inventory()
        await self.look()
        if _matter(before) != _matter(self.core.inventory()):
            self.core.wake()
        return self.inventory

    async def look(self) -> list[Job]:
        """Look at the devices, in a thread that may hang without harm; return the jobs that were under way."""
        loop = asyncio.get_running_loop()
        if self.looking is None:
            await loop.run_in_executor(self._prober, self.probe.read)
            return []
        seen = self.looking.observing
        number = seen.begin()
        jobs = await self.ask(lambda reader: reader.active())
        observing.tell(self.core, await loop.run_in_executor(self._prober, seen.look, number, jobs))
        return jobs

    def let_go(self) -> None:
        """Let go of the driver until the next look."""
        self._prober.submit(self.probe.close)

    def close_when_idle(self, is_wanted: bool) -> None:
        """Start nothing new and stop when nothing runs; or take that back."""
        self.core.is_closing = is_wanted
        if not is_wanted and self.closing is not None:
            self.closing.cancel()
            self.closing = None
        elif is_wanted and self.closing is None:
            self.closing = asyncio.create_task(self._stop_when_idle())
        self.core.wake()

    async def _stop_when_idle(self) -> None:
        # A start that was decided before is under way, and counts.
        await self.do(lambda turn: None)
        while True:
            version = self.events.version
            counts = await self.ask(lambda reader: reader.counts())
            if not any(counts[state.value] for state in ACTIVE):
                break
            await self.events.changed(version, SAFETY_TICK_S)
        self.stopping.set()

    def close(self) -> None:
        """Let go of the threads; one that hangs in a driver is left to the end of the process."""
        self._readers.shutdown(wait=True, cancel_futures=True)
        for reader in self._opened:
            reader.close()
        for pool in (self._prober, self.remover, self.logs):
            pool.shutdown(wait=False, cancel_futures=True)
        if self.looking is not None:
            self.looking.close()
        self.probe.close()


class Locked:
    """The right to be this user's daemon in this home, for as long as the process lives."""

    def __init__(self, home: Path) -> None:
        self.fd = os.open(places.daemon_lock(home), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        give_up_at = time.monotonic() + EXEC_FOR_S
        while not self._try():
            pid = os.pread(self.fd, 64, 0).decode(errors="replace").strip()
            if not _is_gone(pid) or time.monotonic() > give_up_at:
                raise Conflict(
                    f"a daemon runs already (pid {pid or '?'}, socket {places.socket_path(home)}).",
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
    """Tell whether a process is dead. Its lock may outlive it, in a child that it was forking, until the exec."""
    if not pid.isdecimal():
        return False
    found = processes.look(int(pid))
    return found is None or found.is_dead


async def serve(home: Path, values: settings.Settings, visible: str | None, ready: Callable[[str], None]) -> None:
    """Be the daemon until asked to stop. `ready` is told when the socket answers."""
    from dibs import http_api

    loop = asyncio.get_running_loop()
    events = Events(loop)
    user = users.own()
    place = leases.Folder(str(values.lease_dir)) if values.lease_dir else leases.folder()
    if not os.access(place.path, os.W_OK | os.X_OK):
        raise MachineError(f"the lease folder {place.path} cannot be used.", "It must exist and be writable.")
    database = places.database(home)
    waits: Waits[Work] = Waits()
    runners = Runners(str(home / "runners.log"), waits.watch, waits.later)
    engine = Local(home, values, place.path, places.notify_path(home), runners)
    watcher = probe.Probe(values, visible)
    standing = Standing(place, user, values.collect_for, waits.watch)
    writer = store.Store.open(database, processes.boot_id())
    drained = Drains(place, writer.drained())
    seen = _observing(watcher, place, user, values, writer) if watcher.is_real else None
    core = Core(
        writer,
        engine,
        standing,
        policy_of(values),
        lambda: with_drained(seen.inventory if seen else watcher.latest, drained.now()),
        waits,
        events.publish,
    )
    identity = Identity(os.getpid(), user, home, places.socket_path(home), now_ms(), values.devices)
    daemon = Daemon(identity, core, events, watcher, drained, database)
    if seen is not None:
        core.observing = seen
        daemon.looking = Looking(daemon, seen)
    gathering = Gathering(core, database)
    core.gather = gathering.wake

    # Bound before recovery looks at the files: what a runner tells from now on is heard, what it told is written.
    notify = _open_notify(engine.notify)
    waits.watch(notify.fileno(), lambda: core.attending.hear(notify))
    thread = threading.Thread(target=core.run, name="core")
    thread.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stopping.set)
    try:
        recovered = core.ask(lambda turn: dispatch.recover(turn, processes.boot_id()))
        await daemon.probe_now()
        await asyncio.wrap_future(recovered)
        gathering.start()
        tasks = [asyncio.create_task(_tick(daemon, database)), asyncio.create_task(_check(daemon, database))]
        if daemon.looking is not None:
            tasks.append(asyncio.create_task(daemon.looking.run()))
        async with http_api.serving(daemon, values):
            ready("ready")
            log.info("pid %s serves %s", identity.pid, identity.socket)
            await daemon.stopping.wait()
            # Those who wait for jobs answer now, so that closing the door need not wait for them.
            events.publish(set())
        for task in tasks:
            task.cancel()
        if daemon.trouble is not None:
            raise daemon.trouble
    finally:
        if daemon.looking is not None:
            daemon.looking.keep_all()
        # The core first finishes what it has begun; runners are nobody's to stop.
        gathering.stop()
        core.stop()
        await loop.run_in_executor(None, thread.join)
        runners.close()
        daemon.close()
        core.store.close()
        waits.close()
        notify.close()
        engine.notify.unlink(missing_ok=True)
        log.info("pid %s leaves; jobs run on", identity.pid)


async def _check(daemon: Daemon, database: Path) -> None:
    """Check a large database that was opened unchecked; damage ends the daemon before it can make things worse."""
    if daemon.core.store.is_checked:
        return
    check = Check(database)
    try:
        await asyncio.to_thread(check.run)
    except MachineError as error:
        daemon.trouble = error
        daemon.stopping.set()
    finally:
        check.stop()


async def _tick(daemon: Daemon, database: Path) -> None:
    """Look at what no event tells of, and keep copies of the database; what fails once is tried at the next tick."""
    backup_in = BACKUP_EVERY_S
    await _keep_house(daemon, housekeeping.remove_strays)
    while True:
        await asyncio.sleep(SAFETY_TICK_S)
        backup_in -= SAFETY_TICK_S
        try:
            if daemon.reopen is not None and not daemon.identity.socket.exists():
                log.warning("%s was deleted; it is opened again", daemon.identity.socket)
                await daemon.reopen()
            counts = await daemon.ask(lambda reader: reader.counts())
            if any(counts[word] for word in ("queued", "starting", "running", "paused", "stopping")):
                await daemon.probe_now()
                daemon.core.tell(dispatch.recheck)
            await _keep_house(daemon)
            if backup_in <= 0:
                backup_in = BACKUP_EVERY_S
                await daemon.ask(lambda reader: backup(database))
        except (OSError, DatabaseError, DibsError):
            log.exception("the safety tick")


async def _keep_house(daemon: Daemon, *more: Callable[[Daemon], Awaitable[None]]) -> None:
    """Forget what is to be forgotten; files that cannot be removed now are tried at the next tick."""
    try:
        for keep in (housekeeping.keep_house, *more):
            await keep(daemon)
    except (OSError, DatabaseError, DibsError):
        log.exception("housekeeping")


def _open_notify(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def _matter(inventory: Inventory) -> object:
    """Return what of the devices matters to whoever places jobs; not how warm they are."""
    return inventory.problem, [(d.id, d.obstacle, d.foreign_memory, d.memory_total) for d in inventory.devices]


def _observing(
    watcher: probe.Probe, place: leases.Folder, user: str, values: settings.Settings, kept: store.Store
) -> Observing:
    """Return what is known of real devices, with what was kept of it."""
    limits = vetting.limits_of(values)
    unwell = {DeviceId(device): why for device, why in kept.unwell().items()}
    accepted = {DeviceId(device): why for device, why in kept.accepted().items()}
    return Observing(watcher, place, user, limits, Seen(unwell=unwell, accepted=accepted))


def policy_of(values: settings.Settings) -> Policy:
    """Return the settings that matter to deciding, with what this machine has."""
    mem_total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Policy(
        values.cpu_slots,
        mem_total,
        values.assumed_time,
        values.max_gpus,
        values.keep_free,
        values.max_jobs_per_gpu,
    )


def main() -> NoReturn:
    """Run as a process: `python -m dibs.daemon [--ready-fd 3]`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    os.umask(0o077)
    os.chdir("/")
    tell = _teller(sys.argv[1:])
    # Whoever reads must not keep the core waiting: it asks for the interpreter several times in a turn, and each time
    # waits for as long as another thread may compute.
    sys.setswitchinterval(SWITCH_S)
    # What is loaded now stays for days: the collector need not look at it again and again.
    gc.freeze()
    try:
        visible = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        home = places.home(os.environ).path
        places.prepare(home)
        places.hold(home)
        lock = Locked(home)
        asyncio.run(serve(home, settings.load(os.environ), visible, tell))
    except (DibsError, OSError) as error:
        line = (
            error.line()
            if isinstance(error, DibsError)
            else f"{error.strerror or error} ({error.filename or 'the state folder'})."
        )
        tell(line)
        with contextlib.suppress(OSError):
            # The disk of the log may be the very trouble.
            log.error("%s", line, exc_info=not isinstance(error, DibsError))
            print(f"dibs: {line}", file=sys.stderr)
        # Without a running interpreter around it, a thread that hangs in a driver cannot keep the process.
        os._exit(error.exit_code if isinstance(error, DibsError) else MachineError.exit_code)
    os.close(lock.fd)
    logging.shutdown()
    os._exit(0)


def _teller(words: list[str]) -> Callable[[str], None]:
    """Return what tells the starter one line, once."""
    fds = [3] if words == ["--ready-fd", "3"] else []
    # Whatever else the starter's shell had open is not ours to keep open for days.
    os.closerange(3 + len(fds), os.sysconf("SC_OPEN_MAX"))

    def tell(line: str) -> None:
        while fds:
            fd = fds.pop()
            with contextlib.suppress(BrokenPipeError):
                os.write(fd, line.encode() + b"\n")
            os.close(fd)

    return tell


if __name__ == "__main__":
    main()
