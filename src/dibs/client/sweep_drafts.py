"""The options of a sweep, and the requests that create it and submit its points."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from dibs.client.connection import Client
from dibs.errors import UserError
from dibs.logs import reports
from dibs.model.jobs import default_name
from dibs.submission import drafts, job_options, options
from dibs.submission.drafts import Body
from dibs.submission.options import Args, Kind, Option
from dibs.system import commands

if TYPE_CHECKING:
    from dibs.sweeps.documents import Sweep
    from dibs.sweeps.grid import Point, Points
    from dibs.sweeps.templates import Writer


def _read_seed(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _read_goal(text: str) -> str:
    from dibs.sweeps import documents

    if text not in documents.GOALS:
        raise ValueError
    return documents.GOALS[text]


SAMPLE = Option(("--sample",), "Draw N random points.", options.whole(1), "N")
SEED = Option(("--seed",), "Random seed. Default: 0.", Kind("a whole number", _read_seed), "S")
SHUFFLE: Option[bool] = Option(("--shuffle",), "Submit the points in random order.")
DIR = Option(
    ("--dir",), "Folder of each run, created before it starts; available as {dir} and DIBS_RUN_DIR.", options.PATH,
    "results/{lr}",
)  # fmt: skip
GOAL = Option(
    ("--goal",),
    "Whether a lower (min) or higher (max) metric is better. Default: min.",
    Kind("min or max", _read_goal),
    "min|max",
)
SEARCH = Option(
    ("--search",), "Choose the points while the sweep runs: tpe and cmaes learn from results, random does not.",
    options.one_of("tpe", "cmaes", "random"), "tpe|cmaes|random",
)  # fmt: skip
TRIALS = Option(("--trials",), "Number of runs of a search.", options.whole(1, 10_000), "N")
MINIMIZE = Option(("--minimize",), "Metric to compare runs by; the lowest value is best.", options.TEXT, "METRIC")
MAXIMIZE = Option(("--maximize",), "Metric to compare runs by; the highest value is best.", options.TEXT, "METRIC")
EARLY_STOP = Option(
    ("--early-stop",), "Stop runs whose metric is worse than that of others at the same step.",
    options.one_of("median", "hyperband"), "median|hyperband",
)  # fmt: skip
# In a sweep, paths may contain parameters; the daemon checks their names.
OUTPUT = replace(
    job_options.OUTPUT,
    kind=options.PATH,
    help="Append the output of a run to this file. Placeholders: {index} and parameters such as {lr}.",
)
STDERR = replace(job_options.STDERR, kind=options.PATH)
SUBSTITUTES: dict[Option[object], Option[object]] = {OUTPUT: job_options.OUTPUT, STDERR: job_options.STDERR}
#: Options for all runs.
OPTIONS: tuple[Option[object], ...] = (
    SAMPLE, SEED, SHUFFLE, SEARCH, TRIALS, MINIMIZE, MAXIMIZE, EARLY_STOP, DIR, GOAL,
    job_options.AT_ONCE, job_options.HALT,
    *(option for option in job_options.JOB_OPTIONS if option not in SUBSTITUTES.values()),
    OUTPUT, STDERR, *job_options.TEMPLATES,
)  # fmt: skip

#: Points in one request. Each request is one transaction: large enough to be fast, small enough not to delay others.
PART = 2000
#: Points whose folders are compared before anything is sent.
MOST_FOLDERS = 100_000


@dataclass(frozen=True)
class SweepDraft:
    """A sweep as described by a command line and the file that it names."""

    args: Args
    sweep: Sweep
    name: str
    project: str
    #: Job fields of all runs.
    defaults: Body
    definition: Body

    @property
    def points(self) -> Points:
        return self.sweep.points()

    @property
    def writer(self) -> Writer:
        from dibs.sweeps.templates import Writer

        assert self.sweep.command is not None
        return Writer(self.sweep.command, self.sweep.folder)


def ask(
    args: Args,
    sweep: Sweep,
    given: Sequence[tuple[str, str]] = (),
    parameters: Sequence[object] = (),
    file: str | None = None,
) -> SweepDraft:
    """Combine options and a parameter space; `parameters` and `file` record how the space was given."""
    args = replace(args, given={SUBSTITUTES.get(key, key): told for key, told in args.given.items()})
    sweep = _with_options(sweep, args)
    sweep.check()
    # This also refuses an infinite space.
    most = sweep.trials if sweep.is_adaptive else sweep.points().most
    args = with_file(args, sweep)
    defaults = drafts.common(args, given)
    if sweep.command and not sweep.command.is_shell:
        drafts.check_template(args, sweep.command, defaults, "sweep")
    name = args.get(job_options.NAME) or sweep.name or default_name_of(sweep, str(defaults["cwd"]))
    defaults.pop("name", None)
    definition: Body = {
        "file": file,
        "parameters": list(parameters) or list(sweep.space.names),
        "sample": sweep.sample,
        "shuffle": sweep.is_shuffled,
        "seed": sweep.seed,
        "points": most,
        "search": sweep.search,
        "early_stop": sweep.early_stop,
    }
    return SweepDraft(args, sweep, name, str(defaults.get("project", "default")), defaults, definition)


def _with_options(sweep: Sweep, args: Args) -> Sweep:
    """Return a sweep with the options of the command line, which override the file."""
    given: dict[str, Any] = {}
    known: dict[str, Option[object]] = {
        "sample": SAMPLE, "seed": SEED, "folder": DIR, "goal": GOAL, "search": SEARCH, "trials": TRIALS,
        "early_stop": EARLY_STOP,
    }  # fmt: skip
    given |= {key: args.get(option) for key, option in known.items() if args.has(option)}
    if args.has(SHUFFLE):
        given["is_shuffled"] = True
    if args.has(job_options.METRIC) and sweep.metric is None:
        given["metric"] = args.all(job_options.METRIC)[0][0]
    return replace(sweep, **given | _aim(args))


def _aim(args: Args) -> dict[str, str]:
    """Return the metric and the goal of `--minimize` or `--maximize`."""
    aims = {"minimize": args.get(MINIMIZE), "maximize": args.get(MAXIMIZE)}
    found = [(goal, metric) for goal, metric in aims.items() if metric is not None]
    if len(found) + args.has(GOAL) > 1:
        raise UserError("expected one of --minimize, --maximize and --goal.")
    for goal, metric in found:
        reports.check_name(metric)
        return {"metric": metric, "goal": goal}
    return {}


def with_file(args: Args, sweep: Sweep) -> Args:
    """Return the options, completed with those of the file."""
    told: dict[Option[object], object] = {}
    if sweep.gpus is not None and not args.has(job_options.GPU_IDS):
        told[job_options.GPUS] = job_options.read_count(sweep.gpus)
    told |= {job_options.PROJECT: sweep.project, job_options.TIME: sweep.time_s}
    told |= {job_options.VRAM: sweep.vram_bytes}
    told |= {job_options.AT_ONCE: sweep.jobs, job_options.HALT: sweep.halt}
    if sweep.metric is not None and sweep.metric_pattern is not None:
        told[job_options.METRIC] = sweep.metric, sweep.metric_pattern
    more = {option: (value,) for option, value in told.items() if value is not None and not args.has(option)}
    return replace(args, given={**args.given, **more})


def default_name_of(sweep: Sweep, cwd: str) -> str:
    """Return the name of an unnamed sweep: the program and a hash of template and folder."""
    source, script = (sweep.command.source, sweep.command.program) if sweep.command else ("", "")
    mark = hashlib.sha256(f"{script}{source}\0{cwd}".encode()).hexdigest()[:6]
    program = default_name(script or source).translate(str.maketrans("/*+?[]{}", "________")) or "sweep"
    return f"{program}-{mark}"


def request(asked: SweepDraft) -> Body:
    template = asked.sweep.command
    assert template is not None
    command: Body = {"command": template.source} if template.is_shell else {"argv": shlex.split(template.source)}
    return command | {
        "name": asked.name,
        "project": asked.project,
        "dir": asked.sweep.folder,
        "metric": asked.sweep.metric,
        "goal": asked.sweep.goal,
        "early_stop": asked.sweep.early_stop,
        "search": _search(asked.sweep) if asked.sweep.is_adaptive else None,
        "definition": asked.definition,
        "at_once": asked.args.get(job_options.AT_ONCE),
        "halt_after": asked.args.get(job_options.HALT),
        "defaults": asked.defaults,
        "parameters": list(asked.sweep.space.names),
    }


def _search(sweep: Sweep) -> Body:
    from dibs.sweeps.search import codec

    return {
        "sampler": sweep.search,
        "trials": sweep.trials,
        "seed": sweep.seed,
        "space": codec.encode(sweep.space),
    }


def preview(asked: SweepDraft, count: int) -> list[Point]:
    """Return the first points that a search would run; needs Optuna in this process's Python."""
    from dibs.sweeps.ranking import MINIMIZE as LOWEST
    from dibs.sweeps.search import study

    about = _search(asked.sweep)
    study.require(str(about["sampler"]))
    own = study.Study({**about, "goal": asked.sweep.goal or LOWEST, "storage": None})
    try:
        points = own.ask([], min(count, int(str(about["trials"])))).points
    finally:
        own.close()
    return [point._replace(index=index) for index, point in enumerate(points)]


def check_first(asked: SweepDraft) -> None:
    """Refuse invalid commands and runs with the same folder before the sweep is created.

    Of a very large sweep only the first points are checked; the daemon refuses later parts one by one.
    """
    if asked.sweep.folder is not None:
        _check_folders(asked.writer, islice(iter(asked.points), MOST_FOLDERS))
    for body in point_bodies(asked.writer, list(islice(iter(asked.points), PART))):
        words = body.get("argv") or [body["command"]]
        assert isinstance(words, list)
        for word in words:
            commands.check_text(str(word), f"the command of point {body['index']}")


def first_warning(asked: SweepDraft) -> str:
    """Return a warning if the first point probably cannot be started; empty if there is none."""
    lines = map(asked.writer.line, islice(iter(asked.points), 1))
    return drafts.first_warning(asked.args, lines, {"defaults": asked.defaults})


def _check_folders(writer: Writer, points: Iterator[Point]) -> None:
    from dibs.sweeps import templates

    seen: dict[str, int] = {}
    for point in points:
        folder = writer.folder(point) or ""
        first = seen.setdefault(folder, point.index)
        if first != point.index:
            raise UserError(f'points {first} and {point.index} have the same folder "{folder}".', templates.SAME_FOLDER)


def submit(
    queue: Client, asked: SweepDraft, sweep_id: int, *, again: bool, tell: Callable[[int], None] = lambda sent: None
) -> dict[str, int]:
    """Send all points in parts, or the options of a search, whose points the daemon finds.

    Return the number of points by result. `tell` is called with the number sent.
    """
    path = f"/v1/sweeps/{sweep_id}"
    if asked.sweep.is_adaptive:
        if again:
            raise UserError(
                "--again expected a sweep whose points are known, got a search.", "Raise --trials for more runs."
            )
        found: dict[str, int] = queue.post(f"{path}/trials", {"defaults": asked.defaults})["counts"]
        return found
    counts: dict[str, int] = {}
    for part, is_last in parts(iter(asked.points)):
        body: dict[str, Any] = {"defaults": asked.defaults, "again": again, "points": point_bodies(asked.writer, part)}
        body["more"] = not is_last
        for word, count in queue.post(f"{path}/points", body)["counts"].items():
            counts[word] = counts.get(word, 0) + count
        tell(sum(counts.values()))
    return counts


def parts(points: Iterator[Point]) -> Iterator[tuple[list[Point], bool]]:
    """Yield the points in parts, each with whether it is the last."""
    part = list(islice(points, PART))
    while part:
        following = list(islice(points, PART))
        yield part, not following
        part = following


def point_bodies(writer: Writer, points: Sequence[Point]) -> list[Body]:
    found: list[Body] = []
    for point in points:
        command = writer.command(point)
        body: Body = {"index": point.index, "params": point.data(), "dir": writer.folder(point)}
        found.append(body | ({"command": command} if isinstance(command, str) else {"argv": list(command)}))
    return found
