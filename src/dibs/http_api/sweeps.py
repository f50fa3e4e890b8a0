"""`/v1/sweeps`: create sweeps, add points in parts or from a document, and return results. Translation only."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from dibs.client import sweep_drafts
from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.http_api import environments, exchange, job_numbers, presets, sweep_documents, template_jobs
from dibs.http_api.exchange import Whole
from dibs.http_api.schemas import submission, sweep_answers, wire
from dibs.http_api.schemas.submission import Name, Word
from dibs.http_api.schemas.sweep_answers import SweepCheck, SweepCounts, SweepReceipt
from dibs.jobqueue import sweeps
from dibs.jobqueue.validation import Submission
from dibs.logs import reports
from dibs.model import serialization, units
from dibs.model.jobs import JobId, Member
from dibs.store import call_files
from dibs.store.query_results import RunsSince
from dibs.store.writer import Reader
from dibs.sweeps import templates
from dibs.sweeps.records import Run, Search, Sweep, SweepSubmission
from dibs.sweeps.search import codec, dimensions, study, trials
from dibs.system import commands

S = TypeVar("S", bound=sweep_answers.Sweep)
#: The most points in one request: a turn of the core must stay short.
MOST_POINTS = 10_000
#: Seconds for which results wait for metrics that are being read.
READING_FOR_S = 10.0
#: The most trials of one search: all of them are read for each new one.
MOST_TRIALS = 10_000
EarlyStop = Annotated[str, Meta(pattern="^(median|hyperband)$")]
Goal = Annotated[str, Meta(pattern="^(minimize|maximize)$")]


class SearchIn(msgspec.Struct, forbid_unknown_fields=True):
    """How the points of a sweep are chosen while it runs."""

    sampler: Annotated[str, Meta(pattern="^(tpe|cmaes)$")]
    trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)]
    #: The parameters and their values, as `dibs sweep` sends them.
    space: dict[str, Any]
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 0


class SweepIn(msgspec.Struct, forbid_unknown_fields=True):
    """A sweep to create, or to find again."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    project: Annotated[str, Meta(min_length=1, max_length=200)] = "default"
    #: A template with parameters: one string for the shell, or a list of arguments.
    command: str | None = None
    argv: list[str] | None = None
    #: A template of the folder of a run.
    dir: Word | None = None
    metric: Name | None = None
    goal: Goal | None = None
    #: Stop runs whose metric is worse than that of others at the same step.
    early_stop: EarlyStop | None = None
    search: SearchIn | None = None
    #: Other details, stored as they are.
    definition: dict[str, Any] = {}
    at_once: int | None = None
    halt_after: int | None = None
    #: Job fields for all runs, as in a submission, and the parameters that may appear in their output paths.
    defaults: dict[str, Any] = {}
    parameters: list[Name] = []
    #: Its runs are calls from Python: see `CallsIn`.
    calls: bool = False


class PointIn(msgspec.Struct, forbid_unknown_fields=True):
    """One point, with the command and the folder of its run."""

    index: Annotated[int, Meta(ge=0, lt=2**62)]
    params: dict[str, Any]
    command: str | None = None
    argv: list[str] | None = None
    dir: Word | None = None


class PointsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Some points of a sweep, and the job fields of all their runs as in a submission."""

    points: Annotated[list[PointIn], Meta(min_length=1, max_length=MOST_POINTS)]
    defaults: dict[str, Any] = {}
    #: Run points again that are done.
    again: bool = False
    #: More points of the sweep follow in another request.
    more: bool = False


class TrialsIn(msgspec.Struct, forbid_unknown_fields=True):
    """The job fields of all runs of a search, as in a submission."""

    defaults: dict[str, Any] = {}


class CallIn(msgspec.Struct, forbid_unknown_fields=True):
    """A call from Python as a run of a sweep."""

    argv: list[str]
    name: Name
    #: The call as text, for display.
    command: Word
    #: What identifies the run, together with `function`.
    params: dict[str, Any]
    function: Word = ""


class CallsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Calls from Python, and the job fields of all of them; a repeated request with the same key changes nothing."""

    calls: Annotated[list[CallIn], Meta(min_length=1, max_length=MOST_POINTS)]
    key: Annotated[str, Meta(pattern=f"^{submission.KEY}$")]
    defaults: dict[str, Any] = {}
    #: Run calls again that are done.
    again: bool = False


class RunsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Copies of one run of the sweep, each with some parameters changed."""

    like: Annotated[int, Meta(ge=1, lt=2**62)]
    changes: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=MOST_POINTS)]


class SweepsQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The sweeps to return."""

    name: Annotated[str | None, Meta(description="Sweeps that match this name or glob, without counts.")] = None


class ResultsQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The runs to return."""

    most: Annotated[Whole, Meta(description="The most runs to return; 0: all.")] = 0
    after: Annotated[str, Meta(description="`next` of the previous answer.")] = ""


async def post_sweeps(daemon: Daemon, body: Any, query: submission.DryRunQuery) -> SweepCheck | SweepReceipt:
    """Create a sweep, or find the one with that name, and queue the points of its document; `dry_run` only checks."""
    if not sweep_documents.is_document(body):
        return await _create(daemon, wire.convert(body, SweepIn), query)
    body = presets.filled(body, daemon.settings.presets)
    body["defaults"] = await template_jobs.defaults(daemon, body.get("defaults", {}))
    (model,) = await environments.complete(daemon, [submission.common(body["defaults"], ())])
    # In a thread: there may be 100,000 points.
    draft = await asyncio.to_thread(sweep_documents.draft, body, model.spec.cwd)
    answer = await _create(daemon, wire.convert(sweep_drafts.request(draft), SweepIn), query)
    if isinstance(answer, SweepCheck):
        answer.points = draft.points.most
        return answer
    if draft.sweep.is_adaptive:
        answer.counts = (await post_trials(daemon, answer.id, TrialsIn(draft.defaults))).counts
        return answer
    counts: Counter[str] = Counter()
    for part, is_last in sweep_drafts.parts(iter(draft.points)):
        points = wire.convert(sweep_drafts.point_bodies(draft.writer, part), list[PointIn])
        told = PointsIn(points, draft.defaults, again=bool(body.get("again")), more=not is_last)
        counts.update((await post_points(daemon, answer.id, told)).counts)
    answer.counts = dict(counts)
    return answer


async def _create(daemon: Daemon, body: SweepIn, query: submission.DryRunQuery) -> SweepCheck | SweepReceipt:
    rules = submission.rules({"jobs": [], "at_once": body.at_once, "halt_after": body.halt_after})
    wanted, common = _wanted(body), await _common(daemon, body.defaults, body.parameters)
    if wanted.search is not None:
        study.require(wanted.search.sampler)
    await daemon.know_engines([common])
    if query.dry_run:
        checked = await daemon.do(lambda turn: sweeps.check(turn, wanted, common))
        return SweepCheck(checked.found is None, checked.notes)
    begin = partial(sweeps.begin, wanted=wanted, rules=rules, submission=common, is_of_calls=body.calls)
    sweep, notes = await daemon.do(begin)
    if sweep.early_stop is not None:
        daemon.searches.expect()
    return _shown(SweepReceipt, sweep, notes=notes, counts=msgspec.UNSET)


async def _common(daemon: Daemon, defaults: Any, names: Sequence[str]) -> Submission:
    return submission.common(await template_jobs.defaults(daemon, defaults), names)


def _wanted(told: SweepIn) -> SweepSubmission:
    if (told.command is None) == (told.argv is None):
        raise UserError("expected either `command` or `argv`.")
    if "/" in told.name or "*" in told.name or "+" in told.name:
        raise UserError(f'expected a name of a sweep without "/", "*" and "+", got "{told.name}".')
    for text in (told.name, told.project, told.command or "", *(told.argv or ())):
        commands.check_text(text)
    command = told.command if told.command is not None else shlex.join(told.argv or ())
    return SweepSubmission(
        told.project,
        told.name,
        command,
        None if told.argv is None else tuple(told.argv),
        told.dir,
        told.metric,
        told.goal,
        told.early_stop,
        json.dumps(told.definition),
        None if told.search is None else _search(told, told.search),
    )


def _search(told: SweepIn, search: SearchIn) -> Search:
    """Check a search as far as that is possible without a study."""
    if told.metric is None or told.calls:
        raise UserError("a search expected commands and the name of a metric.")
    space = codec.decode(search.space)
    dimensions.Dimensions(space)
    templates.check(space.names, templates.parse(told.argv or told.command or ""), told.dir)
    return Search(search.sampler, search.trials, search.seed, json.dumps(search.space))


async def post_points(daemon: Daemon, id: int, body: PointsIn) -> sweep_answers.Points:
    """Submit the given points that are neither done nor queued nor running."""
    sweep = await daemon.ask(lambda reader: reader.sweep(id))
    names = tuple(dict.fromkeys(name for point in body.points for name in point.params))
    (common,) = await environments.complete(daemon, [await _common(daemon, body.defaults, names)])
    members = [_member(sweep, point, common.spec.cwd) for point in body.points]
    added = await daemon.do(lambda turn: sweeps.add(turn, id, common, members, again=body.again, is_last=not body.more))
    return sweep_answers.Points({fate.value: count for fate, count in added.fates.items()}, added.notes)


async def post_trials(daemon: Daemon, id: int, body: TrialsIn) -> sweep_answers.Points:
    """Submit the first trials of a search, or continue it with these job fields; the others follow by themselves."""
    sweep = await daemon.ask(lambda reader: reader.sweep(id))
    if sweep.search is None:
        raise UserError(f'expected a sweep with a search, got "{sweep.name}", which has none.')
    names = codec.decode(json.loads(sweep.search.space)).names
    (common,) = await environments.complete(daemon, [await _common(daemon, body.defaults, names)])
    added = await asyncio.wrap_future(daemon.searches.begin(id, common))
    return sweep_answers.Points({fate.value: count for fate, count in added.fates.items() if count}, added.notes)


async def post_calls(daemon: Daemon, id: int, body: CallsIn) -> sweep_answers.Calls:
    """Submit calls from Python as runs; a call whose point is done is not run, and its earlier job is returned."""
    for call in body.calls:
        if not call_files.is_call(call.argv):
            raise UserError(f"expected a call of dibs.Executor, got {shlex.join(call.argv)[:200]}.")
    (common,) = await environments.complete(daemon, [await _common(daemon, body.defaults, ())])
    members = [sweeps.call(call.argv, call.name, call.command, call.params, call.function) for call in body.calls]
    added = await daemon.do(lambda turn: sweeps.add_calls(turn, id, common, members, body.key, again=body.again))
    jobs = [sweep_answers.CallJob(job.id, job.word, job.attempt) for job in added.jobs]
    return sweep_answers.Calls({fate.value: count for fate, count in added.fates.items()}, added.notes, jobs)


async def post_runs(daemon: Daemon, id: int, body: RunsIn) -> sweep_answers.Points:
    """Submit copies of a run, with its environment and folder but other parameters; skip points that have a run."""
    counts = await daemon.do(lambda turn: sweeps.extend(turn, id, JobId(body.like), body.changes))
    return sweep_answers.Points(counts, [])


def _member(sweep: Sweep, point: PointIn, cwd: str) -> Member:
    if (point.command is None) == (point.argv is None):
        raise UserError(f"point {point.index}: expected either `command` or `argv`.")
    command = point.command if point.command is not None else point.argv or ()
    return sweeps.member(sweep, cwd, point.index, point.params, command, point.dir)


def get_sweeps(reader: Reader, query: SweepsQuery) -> sweep_answers.Sweeps:
    """Return all sweeps with the number of runs in each state, or those that match `name` without these numbers."""
    if query.name is not None:
        found = [reader.sweep(each) for each in reader.sweep_ids(query.name)]
        return sweep_answers.Sweeps([_shown(SweepCounts, sweep, states=msgspec.UNSET) for sweep in found])
    states = reader.states_of_sweeps()
    return sweep_answers.Sweeps(
        [_shown(SweepCounts, sweep, states=states.get(sweep.id, {})) for sweep in reader.sweeps()]
    )


async def get_results(daemon: Daemon, id: int, query: ResultsQuery) -> web.Response:
    """Return the runs of a sweep: parameters, state, the last metrics they reported, and summaries of all values.

    With `most`, at most that many in no particular order; `next` is the value of `after` for more, null at the end.
    """
    most, since = query.most, _since(query.after)
    if not query.after:
        await job_numbers.are_read(daemon, lambda reader: reader.count_unread(id) > 0, READING_FOR_S)

    def answer(reader: Reader) -> sweep_answers.Results:
        sweep = reader.sweep(id)
        following: RunsSince | None = since
        runs: list[Run] = []
        while following is not None and (not most or len(runs) < most):
            part, following = reader.runs(id, following, most - len(runs) if most else MOST_POINTS)
            runs += part
        if not most:
            runs.sort(key=lambda run: (run.index, run.job or 0))
        shown = _shown(sweep_answers.Sweep, sweep)
        return sweep_answers.Results(shown, _runs(daemon, reader, runs), _after(following) if following else None)

    return await exchange.answer(daemon, answer)


def _after(since: RunsSince) -> str:
    return f"{'forgotten' if since.is_forgotten else 'job'}:{since.after}"


def _since(text: str) -> RunsSince:
    kind, _, number = text.partition(":")
    if not text:
        return RunsSince()
    if kind not in ("job", "forgotten") or not units.is_whole(number):
        raise UserError(f'after expected what `next` said, got "{text[:80]}".')
    return RunsSince(int(number), kind == "forgotten")


def _runs(daemon: Daemon, reader: Reader, runs: Sequence[Run]) -> list[sweep_answers.Run]:
    # Few runs are active; read what these have reported so far.
    ids = {run.job for run in runs}
    now = {job.id: reports.last(daemon.files.report(job)) for job in reader.active() if job.id in ids}
    return [
        sweep_answers.Run(
            job=run.job,
            attempt=run.attempt,
            index=run.index,
            params=run.params,
            state=run.word,
            cause=run.cause,
            numbers=(now.get(run.job, run.numbers) if run.job else run.numbers) or {},
            summaries={name: sweep_answers.Summary(*one) for name, one in run.summaries.items()},
            started_at=serialization.moment(run.started_at),
            finished_at=serialization.moment(run.finished_at),
            engine=run.engine,
        )
        for run in runs
    ]


def _shown(kind: type[S], sweep: Sweep, **more: Any) -> S:
    """Return a sweep as `kind`, which may extend `sweep_answers.Sweep`."""
    argv = None if sweep.argv is None else list(sweep.argv)
    created_at = serialization.moment(sweep.created_at)
    search = sweep.search
    told = search and sweep_answers.Search(search.sampler, search.trials, search.seed, search.ended or None)
    if sweep.drawn is not None:
        told = sweep_answers.Search(trials.RANDOM, sweep.drawn, None, None)
    return wire.fill(kind, sweep, argv=argv, dir=sweep.folder, created_at=created_at, search=told, **more)
