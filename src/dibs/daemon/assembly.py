"""Build the parts of a daemon and connect them: of one that serves a queue, and of one that only reads it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dibs.daemon.device_watch import DeviceWatcher, ReadingRequest
from dibs.daemon.number_collector import NumberCollector
from dibs.daemon.readers import Readers
from dibs.daemon.search_driver import SearchDriver
from dibs.daemon.service import Daemon, Events, Identity, policy_of
from dibs.devices import last_seen, probe
from dibs.devices.assessment import Assessment
from dibs.devices.view import DeviceView
from dibs.engines import local, registry
from dibs.engines.job_files import JobFiles
from dibs.engines.prepared_folders import PreparedFolders
from dibs.engines.remote import Remote
from dibs.engines.remote_starts import News, Packer
from dibs.engines.runner_pool import Runners
from dibs.errors import MachineError, UserError
from dibs.foreground import device_check
from dibs.jobqueue.machine_line import MachineLine
from dibs.jobqueue.reactor import Reactor
from dibs.jobqueue.remote import dispatch as remote_dispatch
from dibs.jobqueue.thread import QueueThread, now_ms
from dibs.jobqueue.turns import Work
from dibs.leases import device_lease
from dibs.leases.drains import Drains
from dibs.model.devices import DeviceId
from dibs.store.writer import Store
from dibs.system import paths, settings, trusted_paths, users

log = logging.getLogger("dibs.daemon.assembly")

FILES_HINT = "Name another one, or unset files; see `dibs config`."


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a daemon that its owner starts and ends; nothing runs yet."""

    daemon: Daemon
    queue: QueueThread
    numbers: NumberCollector
    searches: SearchDriver
    runners: Runners
    prepared: PreparedFolders
    remotes: Mapping[str, Remote]


def assemble(home: Path, values: settings.Settings, visible: str | None, writer: Store, pid: int) -> Parts:
    """Build all parts around a store, for the daemon with this pid. Call it in the asyncio thread."""
    events = Events(asyncio.get_running_loop())
    user = users.own()
    place = device_lease.Folder(str(values.lease_dir)) if values.lease_dir else device_lease.folder()
    if not os.access(place.line_path, os.W_OK | os.X_OK):
        raise MachineError(f"the lease folder {place.line_path} cannot be used.", "It must exist and be writable.")
    if values.files is not None and (why := trusted_paths.find_problem(str(values.files))):
        raise UserError(f"files: expected a folder of yours in folders of yours or root, but {why}.", FILES_HINT)
    database = paths.database(home)
    waits: Reactor[Work] = Reactor()
    runners = Runners(str(home / "runners.log"), waits.watch, waits.later)
    files = job_files(home, values)
    own = local.own_names(files, place.path, os.environ)
    prepared = PreparedFolders(str(home), values.prepared_folders, waits.way.give)
    engine = local.Local(files, values, place.path, paths.notify_path(home), runners, own, prepared)
    eyes = probe.Probe(values, visible, before=last_seen.read(writer.fact(last_seen.FACT), paths.machine_id()))
    line = MachineLine(place, user, values.collect_for, waits.watch)
    requests = ReadingRequest()
    drained = Drains(place, writer.drained())
    view = DeviceView(drained, device_check.limits_of(values), _last_assessment(writer), is_real=eyes.is_real)
    searches = SearchDriver(files, database)
    numbers = NumberCollector(files, database, searches.wake)
    policy = policy_of(values)

    def publish() -> None:
        events.publish()
        searches.wake()

    remotes = _remotes(values, files, home, view, waits)
    queue = QueueThread(
        writer, engine, files, values, line, policy, view, requests.make, waits, publish, numbers.wake, remotes=remotes
    )
    identity = Identity(pid, user, home, paths.socket_path(home), now_ms(), values.devices)
    readers = Readers(database, waits.way.give)
    listen = probe.child_command(values, "listen")
    watcher = DeviceWatcher(eyes, view, listen, requests, place, user, readers, queue)
    daemon = Daemon(identity, values, files, queue, events, readers, watcher, searches)
    return Parts(daemon, queue, numbers, searches, runners, prepared, remotes)


def job_files(home: Path, values: settings.Settings) -> JobFiles:
    """Return the paths of jobs: on each cluster, queues have a folder of their own in the folder that is shared."""
    own = f"queue-{_owner(home)}"
    shared = {name: engine.shared / own for name, engine in values.engines.items() if engine.shared is not None}
    return JobFiles(home, values.files or home, shared)


def _owner(home: Path) -> str:
    """Return what tells this queue from others that use the same cluster."""
    text = f"{users.own()}@{paths.machine_id()}:{home}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:6]


def _remotes(
    values: settings.Settings, files: JobFiles, home: Path, view: DeviceView, waits: Reactor[Work]
) -> dict[str, Remote]:
    """Return the engines of the settings; one that cannot be used is left out, and reported when a job names it."""
    found: dict[str, Remote] = {}
    for name, engine in values.engines.items():
        if engine.problem is not None:
            log.error("engine %s cannot be used: %s", name, engine.problem)
            continue
        packer = Packer(engine, files, values, _owner(home), view.inventory)

        def listen(news: Sequence[News]) -> None:
            waits.post(Work(lambda turn: remote_dispatch.hear(turn, news)))

        found[name] = Remote(registry.make(engine, os.environ), packer, engine.max_sent, listen)
    return found


def _last_assessment(kept: Store) -> Assessment:
    unwell = {DeviceId(device): why for device, why in kept.unwell().items()}
    accepted = {DeviceId(device): why for device, why in kept.accepted().items()}
    return Assessment(unwell=unwell, accepted=accepted)
