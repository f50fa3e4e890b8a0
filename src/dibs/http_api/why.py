"""`GET /v1/jobs/{id}/why`: why a job does not run, and when it is expected to start."""

from __future__ import annotations

from dibs.daemon.service import Daemon
from dibs.http_api.schemas import job_answers
from dibs.jobqueue import outlook
from dibs.model import serialization
from dibs.model.devices import Inventory, indices
from dibs.model.jobs import JobId
from dibs.scheduling.forecasts import Forecast
from dibs.store.writer import Reader


def get_why(daemon: Daemon, reader: Reader, id: JobId) -> job_answers.Why:
    """Return why a job is not running, or its current state."""
    job = reader.job(id)
    reason, forecast, inventory = outlook.explain_state(job, daemon.lease_folder), Forecast(), daemon.inventory
    if job.is_waiting:
        seen = daemon.outlook(reader)
        reason, forecast, inventory = seen.reason(job), seen.expected(job), seen.inventory
    return job_answers.Why(
        id=job.id,
        state=job.word,
        reason=reason.text,
        hint=reason.hint,
        expected_start=expected_start(forecast, inventory),
        unknown=unknown_start(forecast),
    )


def expected_start(forecast: Forecast, inventory: Inventory) -> job_answers.ExpectedStart | None:
    """Return when and where a job is expected to start; None if that is unknown."""
    if forecast.range is None:
        return None
    earliest, latest = forecast.range
    return job_answers.ExpectedStart(
        earliest=serialization.moment(earliest),
        latest=serialization.moment(latest),
        gpu_ids=list(forecast.devices),
        gpu_indices=list(indices(inventory, forecast.devices)),
    )


def unknown_start(forecast: Forecast) -> job_answers.Unknown | None:
    """Return why the start cannot be forecast; None if it can."""
    return job_answers.Unknown(forecast.unknown, forecast.hint) if forecast.unknown else None
