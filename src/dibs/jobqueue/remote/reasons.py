"""Why jobs wait for engines that others operate, in words."""

from __future__ import annotations

import time
from collections.abc import Mapping

from dibs.engines.remote import Remote
from dibs.model import units
from dibs.model.jobs import Job, State
from dibs.scheduling.explanation import Reason
from dibs.store.writer import Reader

#: Advice while an engine cannot be reached.
BY_ITSELF = "dibs asks it again automatically; `dibs engines` shows its state. No job changes its state meanwhile."


def of_waiting(job: Job, remotes: Mapping[str, Remote], reader: Reader) -> Reason:
    """Return why a job that could start has not been sent to its engine."""
    name = job.engine
    remote = remotes.get(name)
    if remote is None:
        return Reason(f"its engine {name} is not in the settings of the daemon", "`dibs engines` lists them.")
    if remote.condition.trouble:
        return Reason(unreachable(remote), BY_ITSELF)
    for limit in reader.waiting(job).limits:
        if limit.is_paused:
            return Reason(f"its group {limit.key[1]} is paused")
        if limit.room < limit.cost:
            return Reason(f"its {limit.key[0]} is at its limit", f"`dibs edit {job.id}` can change it.")
    sent = len(reader.active_on(name))
    if sent >= remote.max_sent:
        hint = f"`dibs config set engines.{name}.max_sent` allows more."
        return Reason(f"{name} has {sent} of your jobs, as many as max_sent allows", hint)
    if remote.engine.caps.holds_queue:
        return Reason(f"about to be sent to {name}")
    return Reason(f"waits for {'a free GPU' if job.spec.request.gpus else 'a free core'} of {name}")


def of_active(job: Job, remotes: Mapping[str, Remote]) -> str | None:
    """Return what an engine says about a start that it has and that has not begun; None if there is nothing to say."""
    remote = remotes.get(job.engine)
    if remote is None:
        return (
            f"its engine {job.engine} is not in the settings of the daemon, so nothing is known about it; "
            "add it again, then type: dibs daemon restart"
        )
    if job.state is not State.STARTING:
        return None
    if remote.condition.trouble:
        return unreachable(remote)
    seen = remote.seen(job)
    if seen is None or (job.engine_ref is None and not seen.why):
        return f"being sent to {job.engine}"
    return f"{job.engine}: {seen.why or seen.phase}"


def unreachable(remote: Remote) -> str:
    """Return that an engine cannot be reached, since when, and why."""
    condition = remote.condition
    for_s = 0.0 if condition.trouble_since is None else time.time() - condition.trouble_since
    told = f" for {units.format_duration(for_s)}" if for_s >= 1 else ""
    return f"{remote.name} cannot be reached{told}: {condition.trouble}"
