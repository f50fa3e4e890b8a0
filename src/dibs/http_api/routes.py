"""The table of routes: every address of the HTTP API. To add one, add a row; its types are those of the handler."""

from __future__ import annotations

from typing import Any

from dibs.http_api import (
    add,
    daemon,
    doctor,
    engines,
    environments,
    event_stream,
    gpus,
    job_actions,
    job_changes,
    job_lists,
    job_logs,
    job_numbers,
    job_submission,
    jobs,
    metrics,
    openapi,
    presets,
    queue,
    reservations,
    session,
    settings,
    static_pages,
    sweep_curves,
    sweep_documents,
    sweeps,
    timeline,
    usage,
    web_port,
    words,
)
from dibs.http_api.route_types import Route
from dibs.http_api.schemas import job_answers, submission, sweep_answers

HTML = {200: "text/html"}
TEXT = "text/plain"
SUBMISSION = (submission.JobIn, list[submission.JobIn], submission.Batch)  # type: ignore[valid-type]
SWEEPS = (sweeps.SweepIn, sweep_documents.SweepDocument)
RECEIPT = {200: job_answers.DryRun, 201: job_answers.Receipt}
SWEEP = {200: sweep_answers.SweepCheck, 201: sweep_answers.SweepReceipt}
STREAM = {200: "text/event-stream"}

#: The first match wins.
ROUTES = (
    Route("GET", "/v1/jobs", jobs.get_jobs, (404,), responses={200: job_answers.Jobs}),
    Route("GET", "/v1/jobs/index", job_lists.get_index, (404,)),
    Route("GET", "/v1/jobs/bundles", job_lists.get_bundles, (404,)),
    Route("POST", "/v1/jobs", job_submission.post_jobs, (404, 422), checks=SUBMISSION, responses=RECEIPT),
    Route("GET", "/v1/jobs/wait", job_changes.get_wait),
    Route("GET", "/v1/jobs/changes", job_changes.get_changes),
    Route("POST", "/v1/jobs/actions", job_actions.post_actions, (404, 422)),
    Route("GET", "/v1/jobs/{id}", jobs.get_job, (404,), responses={200: job_answers.WholeJob}),
    Route("PATCH", "/v1/jobs/{id}", job_actions.patch_job, (404, 422), checks=(dict[str, Any],)),
    Route("GET", "/v1/jobs/{id}/events", jobs.get_events, (404,)),
    Route("GET", "/v1/jobs/{id}/log", job_logs.get_log, (404,), responses={200: TEXT, 206: TEXT, 416: None}),
    Route("GET", "/v1/jobs/{id}/log/search", job_logs.get_search, (404,), responses={200: job_answers.Matches}),
    Route("GET", "/v1/jobs/{id}/log/lines", job_logs.get_lines, (404,), responses={200: job_answers.Lines}),
    Route("GET", "/v1/jobs/{id}/log/times", job_logs.get_times, (404,)),
    Route("GET", "/v1/jobs/{id}/numbers", job_numbers.get_numbers, (404,)),
    Route("GET", "/v1/jobs/{id}/why", jobs.get_why, (404,)),
    Route("GET", "/v1/jobs/{id}/script", jobs.get_script, (404,)),
    Route("POST", "/v1/jobs/{id}/{verb}", job_actions.post_verb, (404, 422), needs_body=False),
    Route("POST", "/v1/add", add.post_add, (404, 422), responses={201: TEXT}),
    Route("GET", "/v1/queue", queue.get_queue),
    Route("POST", "/v1/queue", queue.post_queue),
    Route("GET", "/v1/queue/starts", queue.get_starts),
    Route("GET", "/v1/queue/line", queue.get_line),
    Route("GET", "/v1/queue/groups", queue.get_groups),
    Route("POST", "/v1/queue/groups/{name}", queue.post_group, (404,)),
    Route("GET", "/v1/sweeps", sweeps.get_sweeps, (404,)),
    Route("POST", "/v1/sweeps", sweeps.post_sweeps, (404, 422), checks=SWEEPS, responses=SWEEP),
    Route("POST", "/v1/sweeps/{id}/points", sweeps.post_points, (404, 422), status=201),
    Route("POST", "/v1/sweeps/{id}/trials", sweeps.post_trials, (404, 422), status=201),
    Route("POST", "/v1/sweeps/{id}/runs", sweeps.post_runs, (404,), status=201),
    Route("POST", "/v1/sweeps/{id}/calls", sweeps.post_calls, (404,), status=201),
    Route("GET", "/v1/sweeps/{id}/results", sweeps.get_results, (404,), responses={200: sweep_answers.Results}),
    Route("GET", "/v1/sweeps/{id}/curves", sweep_curves.get_curves, (404,)),
    Route("GET", "/v1/gpus", gpus.get_gpus),
    Route("GET", "/v1/gpus/history", gpus.get_history),
    Route("POST", "/v1/gpus/{gpu}/drain", gpus.post_drain, (404,), needs_body=False),
    Route("POST", "/v1/gpus/{gpu}/undrain", gpus.post_undrain, (404,)),
    Route("GET", "/v1/reservations", reservations.get_reservations),
    Route("POST", "/v1/reservations", reservations.post_reservations, (404, 409, 422), status=201),
    Route("POST", "/v1/reservations/{id}/cancel", reservations.post_cancel, (404, 409), needs_body=False),
    Route("GET", "/v1/engines", engines.get_engines),
    Route("GET", "/v1/events", event_stream.get_events, (404, 409), responses=STREAM),
    Route("GET", "/v1/timeline", timeline.get_timeline),
    Route("GET", "/v1/usage", usage.get_usage),
    Route("GET", "/v1/environments", environments.get_environments),
    Route("GET", "/v1/presets", presets.get_presets),
    Route("GET", "/v1/settings", settings.get_settings),
    Route("POST", "/v1/settings/reload", settings.post_reload),
    Route("GET", "/v1/doctor", doctor.get_doctor),
    Route("GET", "/metrics", metrics.get_metrics, responses={200: TEXT}),
    Route("GET", "/v1/openapi.json", openapi.get_document),
    Route("GET", "/v1/words", words.get_words),
    Route("GET", "/v1/daemon", daemon.get_daemon),
    Route("POST", "/v1/daemon/stop", daemon.post_stop, needs_body=False),
    Route("POST", "/v1/session", session.post_session),
    Route("POST", "/v1/session/codes", session.post_codes, status=201),
    Route("POST", "/v1/session/rotate", session.post_rotate),
    Route("POST", "/v1/web", web_port.post_web, (409,)),
    Route("GET", "/{page}", static_pages.get_page, responses=HTML),
    Route("GET", "/{detail_page}/{name}", static_pages.get_page, responses=HTML),
    Route("GET", "/static/{file}", static_pages.get_file, (404,), responses={200: "*/*"}),
)
