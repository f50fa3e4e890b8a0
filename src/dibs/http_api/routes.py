"""The table of routes: every address of the HTTP interface. A new one is a row here, and nothing else is to be told."""

from __future__ import annotations

from typing import Any

from dibs.http_api import (
    acting,
    caring,
    daemons,
    explaining,
    exposing,
    listing,
    logs,
    machines,
    measured,
    openapi,
    pages,
    polling,
    queues,
    sessions,
    showing,
    streaming,
    submitting,
    sweeping,
    timelines,
    usages,
)
from dibs.http_api.routing import Content, Route
from dibs.http_api.schemas import actions, machine_shapes, queries, shapes, submissions, sweep_shapes

HTML = {200: Content("text/html")}
TEXT = Content("text/plain")
SUBMISSION = (submissions.JobIn, list[submissions.JobIn], queries.Batch)

#: In order: the first one that fits is taken.
ROUTES = (
    Route("GET", "/v1/jobs", showing.get_jobs, query=listing.PageQuery, errors=(404,), answers={200: shapes.Jobs}),
    Route(
        "GET", "/v1/jobs/index", listing.get_index, query=listing.ListQuery, errors=(404,), answers={200: shapes.Index}
    ),
    Route(
        "POST",
        "/v1/jobs",
        submitting.post_jobs,
        body=SUBMISSION,
        errors=(404, 422),
        query=queries.DryRunQuery,
        answers={200: shapes.Rehearsed, 201: shapes.Submitted},
    ),
    Route("GET", "/v1/jobs/wait", polling.get_wait, query=queries.WaitQuery, answers={200: shapes.Waited}),
    Route("GET", "/v1/jobs/changes", polling.get_changes, query=queries.ChangesQuery, answers={200: shapes.Changes}),
    Route(
        "POST",
        "/v1/jobs/actions",
        acting.post_actions,
        body=actions.ActionIn,
        errors=(404, 422),
        answers={200: shapes.Acted},
    ),
    Route(
        "GET", "/v1/jobs/{id}", showing.get_job, errors=(404,), query=queries.JobQuery, answers={200: shapes.WholeJob}
    ),
    Route(
        "PATCH", "/v1/jobs/{id}", acting.patch_job, body=dict[str, Any], errors=(404, 422), answers={200: shapes.Acted}
    ),
    Route("GET", "/v1/jobs/{id}/events", showing.get_events, errors=(404,), answers={200: shapes.Events}),
    Route(
        "GET",
        "/v1/jobs/{id}/log",
        logs.get_log,
        query=logs.WholeQuery,
        answers={200: TEXT, 206: TEXT, 416: None},
        errors=(404,),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/log/search",
        logs.get_search,
        query=logs.SearchQuery,
        errors=(404,),
        answers={200: shapes.Found},
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/log/lines",
        logs.get_lines,
        query=logs.LinesQuery,
        errors=(404,),
        answers={200: shapes.Lines},
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/numbers",
        measured.get_numbers,
        query=logs.AttemptQuery,
        errors=(404,),
        answers={200: shapes.Courses},
    ),
    Route("GET", "/v1/jobs/{id}/why", explaining.get_why, errors=(404,), answers={200: shapes.Why}),
    Route(
        "POST",
        "/v1/jobs/{id}/{verb}",
        acting.post_verb,
        body=actions.OneActionIn,
        needs_body=False,
        errors=(404, 422),
        answers={200: shapes.Acted},
    ),
    Route("GET", "/v1/queue", queues.get_queue, answers={200: shapes.Queue}),
    Route("POST", "/v1/queue", queues.post_queue, body=actions.QueueIn, answers={200: shapes.Queue}),
    Route("GET", "/v1/queue/starts", explaining.get_starts, query=queries.MostQuery, answers={200: shapes.Starts}),
    Route("GET", "/v1/queue/line", explaining.get_line, query=queries.MostQuery, answers={200: shapes.Line}),
    Route(
        "GET",
        "/v1/sweeps",
        sweeping.get_sweeps,
        errors=(404,),
        query=queries.SweepsQuery,
        answers={200: sweep_shapes.Sweeps},
    ),
    Route(
        "POST",
        "/v1/sweeps",
        sweeping.post_sweeps,
        body=sweeping.SweepIn,
        query=queries.DryRunQuery,
        answers={200: sweep_shapes.SweepChecked, 201: sweep_shapes.SweepMade},
    ),
    Route(
        "POST",
        "/v1/sweeps/{id}/points",
        sweeping.post_points,
        body=sweeping.PointsIn,
        errors=(404, 422),
        answers={201: sweep_shapes.Points},
    ),
    Route(
        "POST",
        "/v1/sweeps/{id}/runs",
        sweeping.post_runs,
        body=sweeping.RunsIn,
        errors=(404,),
        answers={201: sweep_shapes.Points},
    ),
    Route(
        "GET",
        "/v1/sweeps/{id}/results",
        sweeping.get_results,
        errors=(404,),
        query=queries.ResultsQuery,
        answers={200: sweep_shapes.Results},
    ),
    Route("GET", "/v1/gpus", machines.get_gpus, answers={200: machine_shapes.Gpus}),
    Route(
        "GET",
        "/v1/gpus/history",
        machines.get_history,
        query=queries.HistoryQuery,
        answers={200: machine_shapes.History},
    ),
    Route(
        "POST",
        "/v1/gpus/{gpu}/drain",
        machines.post_drain,
        body=actions.DrainIn,
        needs_body=False,
        errors=(404,),
        answers={200: machine_shapes.Drained},
    ),
    Route(
        "POST", "/v1/gpus/{gpu}/undrain", machines.post_undrain, errors=(404,), answers={200: machine_shapes.Drained}
    ),
    Route(
        "GET",
        "/v1/events",
        streaming.get_events,
        query=streaming.EventsQuery,
        answers={200: Content("text/event-stream")},
        errors=(404, 409),
    ),
    Route(
        "GET",
        "/v1/timeline",
        timelines.get_timeline,
        query=timelines.TimelineQuery,
        answers={200: machine_shapes.Timeline},
    ),
    Route("GET", "/v1/usage", usages.get_usage, query=usages.UsageQuery, answers={200: machine_shapes.Usage}),
    Route("GET", "/v1/settings", caring.get_settings, answers={200: machine_shapes.Settings}),
    Route("GET", "/v1/doctor", caring.get_doctor, answers={200: machine_shapes.Doctor}),
    Route("GET", "/metrics", exposing.get_metrics, answers={200: TEXT}),
    Route("GET", "/v1/openapi.json", openapi.get_document, answers={200: dict[str, Any]}),
    Route("GET", "/v1/words", showing.get_words, answers={200: shapes.Words}),
    Route("GET", "/v1/daemon", daemons.get_daemon, answers={200: machine_shapes.Daemon}),
    Route(
        "POST",
        "/v1/daemon/stop",
        daemons.post_stop,
        body=actions.StopIn,
        needs_body=False,
        answers={200: machine_shapes.Stopping},
    ),
    Route("POST", "/v1/session", sessions.post_session, body=sessions.CodeIn, answers={200: sessions.TokenOut}),
    Route("POST", "/v1/session/codes", sessions.post_codes, answers={201: sessions.CodeOut}),
    Route("POST", "/v1/session/rotate", sessions.post_rotate, answers={200: sessions.Rotated}),
    Route("POST", "/v1/web", sessions.post_web, body=sessions.WebIn, answers={200: sessions.WebOut}, errors=(409,)),
    Route("GET", "/", pages.get_page, answers=HTML),
    Route("GET", "/jobs", pages.get_page, answers=HTML),
    Route("GET", "/job/{name}", pages.get_page, answers=HTML),
    Route("GET", "/sweeps", pages.get_page, answers=HTML),
    Route("GET", "/sweep/{name}", pages.get_page, answers=HTML),
    Route("GET", "/gpus", pages.get_page, answers=HTML),
    Route("GET", "/gpu/{name}", pages.get_page, answers=HTML),
    Route("GET", "/usage", pages.get_page, answers=HTML),
    Route("GET", "/settings", pages.get_page, answers=HTML),
    Route("GET", "/static/{file}", pages.get_file, answers={200: Content("*/*")}, errors=(404,)),
)
