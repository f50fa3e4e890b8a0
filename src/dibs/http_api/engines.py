"""`/v1/engines`: this machine and the clusters of the settings, what they have, and what we have there."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from dibs.daemon.service import Daemon
from dibs.engines.remote import Remote
from dibs.http_api.schemas.machine_answers import Engine, EngineNode, Engines
from dibs.model import serialization
from dibs.model.jobs import LOCAL, Job, State
from dibs.store.writer import Reader

#: Seconds to wait for an engine; afterwards the answer is what was last known.
LOOK_S = 3.0


async def get_engines(daemon: Daemon) -> Engines:
    """Return every engine: its state, its nodes and free GPUs, and how many of our jobs it has."""
    looks = [asyncio.wrap_future(remote.look()) for remote in daemon.remotes.values()]
    if looks:
        await asyncio.wait(looks, timeout=LOOK_S)
    return await daemon.ask(lambda reader: _engines(daemon, reader))


def _engines(daemon: Daemon, reader: Reader) -> Engines:
    active: dict[str, list[Job]] = defaultdict(list)
    for job in reader.active():
        active[job.engine].append(job)
    queued = reader.waiting_on()
    found = [_local(daemon, active[LOCAL], queued.get(LOCAL, 0))]
    for name, own in daemon.settings.engines.items():
        remote = daemon.remotes.get(name)
        if remote is not None:
            found.append(_remote(remote, active[name], queued.get(name, 0)))
        else:
            counts = _counts(active[name], queued.get(name, 0))
            state, problem = ("incomplete", own.problem) if own.problem else ("restart", "dibs daemon restart")
            found.append(Engine(name, own.kind, state, problem, None, 0, None, *counts, [], None))
    return Engines(found)


def _local(daemon: Daemon, active: list[Job], queued: int) -> Engine:
    inventory = daemon.inventory
    held = {device for job in active for device in job.allocation}
    usable = [device for device in inventory.devices if device.fault is None]
    free = sum(device.id not in held for device in usable)
    counts = _counts(active, queued)
    total = len(inventory.devices)
    return Engine(LOCAL, LOCAL, "ready", inventory.problem, None, total, free, *counts, [], None)


def _counts(active: list[Job], queued: int) -> tuple[int, int, int]:
    states = Counter(job.state is State.STARTING for job in active)
    return queued, states[True], states[False]


def _remote(remote: Remote, active: list[Job], queued: int) -> Engine:
    condition = remote.condition
    by_node: dict[str, list[int]] = defaultdict(list)
    for job in active:
        by_node[job.node or ""].append(job.id)
    nodes = [
        EngineNode(n.name, n.is_up, n.gpus, n.free_gpus, n.gpu_type, n.cpus, n.mem, by_node.get(n.name, []))
        for n in condition.nodes
    ]
    frees = [node.free_gpus for node in condition.nodes if node.is_up]
    known = [free for free in frees if free is not None]
    free = sum(known) if len(known) == len(frees) else None
    state, problem = "unreachable" if condition.trouble else "ready", condition.trouble or remote.engine.problem or None
    since, seen_at = _moment(condition.trouble_since), _moment(condition.nodes_at)
    total, counts = sum(node.gpus for node in condition.nodes), _counts(active, queued)
    return Engine(remote.name, remote.engine.kind, state, problem, since, total, free, *counts, nodes, seen_at)


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else serialization.moment(int(seconds * 1000))
