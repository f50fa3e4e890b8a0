"""Calls that wait to be submitted, and the requests that submit them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from dibs.client.connection import Client
from dibs.client.job_waits import Absence
from dibs.errors import MachineError
from dibs.model import selectors
from dibs.python_api.calls import points
from dibs.python_api.calls.points import CallSweep
from dibs.python_api.futures import Future
from dibs.store import call_files

#: Seconds before a submission without an answer is repeated.
RETRY_S = 0.1
FINISHED = frozenset(selectors.GROUP_WORDS["finished"])


class ConcurrencyCap:
    """The maximum of concurrent jobs of an executor; they form one batch in the queue."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.batch: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class CallOptions:
    """What the calls of one submission have in common."""

    #: Job fields.
    defaults: dict[str, object]
    #: The argv that starts Python.
    program: tuple[str, ...]
    #: Pickled `sys.path` and Python version; the worker needs them to unpickle a call.
    context: bytes
    cap: ConcurrencyCap | None
    sweep: CallSweep | None = None


@dataclass(eq=False, slots=True)
class PendingCall:
    """A call that is not submitted yet."""

    future: Future[Any]
    call: bytes
    name: str
    #: The call as text, which tables show as its command.
    command: str
    options: CallOptions
    #: Of a run of a sweep.
    point: points.Point | None = None


class CallJob(NamedTuple):
    """The job of a call, and the first of its attempts that runs this call."""

    id: int
    attempt: int
    #: Whether it had finished before: then no event says so.
    is_finished: bool = False


def post(client: Client, calls: list[PendingCall], key: str) -> list[CallJob]:
    """Submit calls with equal options; return their jobs in the same order."""
    return (_post_runs if calls[0].options.sweep else _post_jobs)(client, calls, key)


def _post_jobs(client: Client, calls: list[PendingCall], key: str) -> list[CallJob]:
    """Submit calls as jobs."""
    options = calls[0].options
    jobs = [_job(pending, key, number) for number, pending in enumerate(calls)]
    body: dict[str, object] = {"defaults": options.defaults, "jobs": jobs, "key": key}
    if options.cap is not None:
        body |= {"at_once": options.cap.at_once} if options.cap.batch is None else {"batch": options.cap.batch}
    answer = _post(client, "/v1/jobs", body)
    if options.cap is not None:
        options.cap.batch = answer["batch"]
    return [CallJob(job_id, 1) for job_id in answer["ids"]]


def _post_runs(client: Client, calls: list[PendingCall], key: str) -> list[CallJob]:
    """Submit calls as runs of their sweep."""
    options, sweep = calls[0].options, calls[0].options.sweep
    assert sweep is not None
    if sweep.id is None:
        at_once = None if options.cap is None else options.cap.at_once
        sweep.id = _post(client, "/v1/sweeps", sweep.definition(options.defaults, at_once))["id"]
    runs = [
        _job(pending, key, number) | (pending.point or points.Point({}))._asdict()
        for number, pending in enumerate(calls)
    ]
    body = {"calls": runs, "key": key, "defaults": options.defaults, "again": sweep.again}
    answer = _post(client, f"/v1/sweeps/{sweep.id}/calls", body)
    if note := sweep.note(answer["counts"]):
        logging.getLogger("dibs").warning("%s", note)
    return [CallJob(job["id"], job["attempt"], job["state"] in FINISHED) for job in answer["jobs"]]


def _post(client: Client, path: str, body: dict[str, object]) -> Any:
    """Submit, and repeat while no answer comes; the key prevents duplicate jobs."""
    absence = Absence(client)
    while True:
        try:
            return client.post(path, body)
        except MachineError as error:
            absence.record_failure(error)
            time.sleep(RETRY_S)


def _job(pending: PendingCall, key: str, number: int) -> dict[str, object]:
    argv = call_files.words(pending.options.program, key, number)
    return {"argv": argv, "name": pending.name, "command": pending.command}
