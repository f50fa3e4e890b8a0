"""`dibs sweep`: one job for each point of a parameter space; run again, it queues what is missing or failed."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from dibs import client, commands, drafts, job_options, options
from dibs.cli import hints, screen
from dibs.drafts import Body
from dibs.errors import UserError
from dibs.jobs import default_name
from dibs.options import Args, Kind, Option

if TYPE_CHECKING:
    from dibs.documents import Sweep
    from dibs.grid import Point, Points
    from dibs.run_commands import Writer

SUMMARY = "Queue one job for each point of a parameter space; again: what is missing."
USAGE = (
    '[OPTIONS] "COMMAND {lr}" -p lr 0.1 0.01 [-p ...]',
    "[OPTIONS] -p lr=0.1,0.01 [-p ...] -- COMMAND... {lr}",
    "[OPTIONS] FILE.yaml|json|toml|csv [-- COMMAND...]",
)


def _read_seed(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _read_goal(text: str) -> str:
    from dibs import documents

    if text not in documents.GOALS:
        raise ValueError
    return documents.GOALS[text]


PARAMETER: Option[tuple[str, ...]] = Option(
    ("-p", "--param"),
    "A parameter and its values: -p lr 0.1 0.01, -p lr=0.1,0.01, -p 'lr=logspace(1e-5,1e-1,5)'; also range, linspace, "
    "and uniform, loguniform, normal and randint with --sample.",
    Kind("a parameter such as -p lr 0.1 0.01", lambda text: (text,)), "NAME VALUE...", is_repeatable=True,
    is_greedy=True,
)  # fmt: skip
SAMPLE = Option(("--sample",), "Only so many points, drawn by chance.", options.whole(1), "N")
SEED = Option(("--seed",), "What chance depends on; 0 if not said.", Kind("a whole number", _read_seed), "S")
SHUFFLE: Option[bool] = Option(("--shuffle",), "In an order that the seed decides; not the last parameter fastest.")
AGAIN: Option[bool] = Option(("--again",), "Queue also what is done already.")
DIR = Option(
    ("--dir",), "The folder of each run, made before its command starts: {dir} and DIBS_RUN_DIR.", options.PATH,
    "results/{lr}",
)  # fmt: skip
GOAL = Option(("--goal",), "Which end of the metric is better. Default min.", Kind("min or max", _read_goal), "min|max")
PRINT: Option[bool] = Option(("--print",), "Print all commands, one a line, and queue nothing.")
QUIET: Option[bool] = Option(("-q", "--quiet"), "Print the name of the sweep only.")
# Here parameters may stand in paths too; the daemon knows which there are.
OUTPUT = replace(
    job_options.OUTPUT, kind=options.PATH, help="Append the output of a run to this file; {lr}, {index} and so on."
)
STDERR = replace(job_options.STDERR, kind=options.PATH)
SUBSTITUTES: dict[Option[object], Option[object]] = {OUTPUT: job_options.OUTPUT, STDERR: job_options.STDERR}
OPTIONS: tuple[Option[object], ...] = (
    PARAMETER, SAMPLE, SEED, SHUFFLE, AGAIN, DIR, GOAL, PRINT, job_options.AT_ONCE, job_options.HALT,
    *(option for option in job_options.JOB_OPTIONS if option not in SUBSTITUTES.values()),
    OUTPUT, STDERR, job_options.DRY_RUN, QUIET, options.JSON,
)  # fmt: skip
EXAMPLES = (
    'dibs sweep "python train.py --lr {lr} --bs {bs}" -p lr 0.1 0.01 -p bs 32 64',
    "dibs sweep -p 'lr=loguniform(1e-5,1e-1)' --sample 50 -- python t.py --lr {lr}",
    "dibs sweep \"python t.py {args} > {dir}/log\" -p lr 0.1 0.01 --dir 'runs/{lr}'",
    "dibs sweep sweep.yaml --dry-run",
)

#: Points in one request. Each request is one transaction: enough to be quick, few enough to disturb nobody.
PART = 2000
#: Commands that a dry run shows.
SHOWN = 5
#: In the order in which they are told; the first ones always are.
ALWAYS_TOLD = ("new", "retried", "done")
ALSO_TOLD = ("let go", "queued", "running", "held")


@dataclass(frozen=True)
class Asked:
    """All that a command line, and the file it names, say about a sweep."""

    args: Args
    sweep: Sweep
    name: str
    project: str
    #: What all runs share.
    defaults: Body
    definition: Body

    @property
    def points(self) -> Points:
        """Return the points."""
        return self.sweep.points()

    @property
    def writer(self) -> Writer:
        """Return what writes their commands."""
        from dibs.run_commands import Writer

        assert self.sweep.command is not None
        return Writer(self.sweep.command, self.sweep.folder)


def main(args: Args) -> int:
    """Queue the points of a sweep, or show what that would be."""
    asked = read(args)
    for note in asked.sweep.notes:
        screen.say(note)
    if args.has(PRINT):
        for line in asked.writer.lines(asked.points):
            print(line)
        return 0
    queue = client.connect(os.environ)
    if args.has(job_options.DRY_RUN):
        return _rehearse(queue, asked)
    _check_first(asked)
    made = queue.post("/v1/sweeps", _request(asked))
    hints.about_devices(queue.home, os.environ)
    for note in made["notes"]:
        screen.say(note)
    return _tell(asked, made, _send(queue, asked, made))


# -- what was asked ---------------------------------------------------------------------------------------------


def read(args: Args) -> Asked:
    """Return what a command line asks for; whatever can be wrong without a daemon is said here."""
    args = replace(args, given={SUBSTITUTES.get(key, key): told for key, told in args.given.items()})
    before, after = args.words, None
    if args.before_dashes is not None:
        before, after = args.words[: args.before_dashes], args.words[args.before_dashes :]
    sweep, file = _space(args, before)
    given, command = _command(before if file is None else (), after)
    if command is not None:
        from dibs import run_commands

        sweep = replace(sweep, command=run_commands.parse(command))
    if sweep.command is None:
        swallowed = next((words[-1] for words in args.all(PARAMETER) if "{" in words[-1]), None)
        hint = "" if swallowed is None else f'"{options.shown(swallowed)}" was taken for a value: put it before -p.'
        raise UserError("expected a command, got none.", hint or "See `dibs sweep --help`.")
    sweep = _with_options(sweep, args)
    sweep.check()
    # An endless one is refused here too.
    most = sweep.points().most
    args = _with_file(args, sweep)
    defaults = drafts.common(args, given)
    if sweep.command and not sweep.command.is_shell:
        drafts.check_template(sweep.command, defaults, "sweep")
    name = args.get(job_options.NAME) or sweep.name or _default_name(sweep, str(defaults["cwd"]))
    defaults.pop("name", None)
    definition: Body = {
        "file": None if file is None else os.path.abspath(file),
        "parameters": [list(words) for words in args.all(PARAMETER)] or list(sweep.space.names),
        "sample": sweep.sample,
        "shuffle": sweep.is_shuffled,
        "seed": sweep.seed,
        "points": most,
    }
    return Asked(args, sweep, name, str(defaults.get("project", "default")), defaults, definition)


def _space(args: Args, before: Sequence[str]) -> tuple[Sweep, str | None]:
    """Return the sweep of a file, and which, or that of the parameters that were typed."""
    from dibs import documents, parameters, spaces, sweep_files

    typed = args.all(PARAMETER)
    is_file = len(before) == 1 and before[0].endswith(sweep_files.SUFFIXES) and len(before[0].split()) == 1
    if is_file:
        if typed:
            raise UserError(f"-p and {before[0]} both say which parameters there are.", "Leave one of them out.")
        return sweep_files.load(before[0]), before[0]
    if not typed:
        raise UserError(
            f"expected parameters, got none. Write {parameters.EXAMPLES}.",
            f"Or name a file ({' '.join(sweep_files.SUFFIXES)}).",
        )
    try:
        return documents.Sweep(spaces.build([parameters.parse(words) for words in typed])), None
    except UserError as error:
        said = f"-p {error.message}" if error.message.startswith("expected") else error.message
        raise UserError(said, error.hint) from None


def _command(
    before: Sequence[str], after: Sequence[str] | None
) -> tuple[list[tuple[str, str]], str | tuple[str, ...] | None]:
    """Return variables that stand before the command, and the command: a string, words, or none."""
    if before and after:
        raise UserError(
            f'expected one command, got "{options.shown(before[0])}" and "{options.shown(after[0])}" after --.',
            "Leave one of them out.",
        )
    if len(before) > 1:
        raise UserError(
            f'expected the command as one string, got "{options.shown(before[0])}" and {len(before) - 1} more.',
            "Quote it, or put it after --.",
        )
    if before:
        commands.check_text(before[0], "the command")
        return [], before[0]
    given, words = drafts.split_variables(after or ())
    for word in words:
        commands.check_text(word, "the command")
    if not words:
        return given, None
    return given, words[0] if len(words) == 1 and len(words[0].split()) > 1 else words


def _with_options(sweep: Sweep, args: Args) -> Sweep:
    """Return a sweep with what was said on the command line, which counts more than a file."""
    given: dict[str, Any] = {}
    known: dict[str, Option[object]] = {"sample": SAMPLE, "seed": SEED, "folder": DIR, "goal": GOAL}
    given |= {key: args.get(option) for key, option in known.items() if args.has(option)}
    if args.has(SHUFFLE):
        given["is_shuffled"] = True
    if args.has(job_options.METRIC) and sweep.metric is None:
        given["metric"] = args.all(job_options.METRIC)[0][0]
    return replace(sweep, **given)


def _with_file(args: Args, sweep: Sweep) -> Args:
    """Return the options with those of the file, where the command line says nothing."""
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


def _default_name(sweep: Sweep, cwd: str) -> str:
    """Return the name of a sweep that has none: the program, and a mark of template and folder."""
    source = sweep.command.source if sweep.command else ""
    mark = hashlib.sha256(f"{source}\0{cwd}".encode()).hexdigest()[:6]
    program = default_name(source).translate(str.maketrans("/*+?[]{}", "________")) or "sweep"
    return f"{program}-{mark}"


# -- what is sent -----------------------------------------------------------------------------------------------


def _request(asked: Asked) -> Body:
    template = asked.sweep.command
    assert template is not None
    command: Body = {"command": template.source} if template.is_shell else {"argv": shlex.split(template.source)}
    return command | {
        "name": asked.name,
        "project": asked.project,
        "dir": asked.sweep.folder,
        "metric": asked.sweep.metric,
        "goal": asked.sweep.goal,
        "definition": asked.definition,
        "at_once": asked.args.get(job_options.AT_ONCE),
        "halt_after": asked.args.get(job_options.HALT),
        "defaults": asked.defaults,
        "parameters": list(asked.sweep.space.names),
    }


def _check_first(asked: Asked) -> None:
    """Refuse values with which no command can be run, before there is a sweep; later parts are refused one by one."""
    for body in _told(asked.writer, list(islice(iter(asked.points), PART))):
        words = body.get("argv") or [body["command"]]
        assert isinstance(words, list)
        for word in words:
            commands.check_text(str(word), f"the command of point {body['index']}")


def _send(queue: client.Client, asked: Asked, made: dict[str, Any]) -> dict[str, int]:
    """Send all points, part by part; return how many of them became what."""
    counts: dict[str, int] = {}
    path = f"/v1/sweeps/{made['id']}/points"
    with _progress(asked.points.most) as tell:
        for part, is_last in _parts(iter(asked.points)):
            body = {"defaults": asked.defaults, "again": asked.args.has(AGAIN), "points": _told(asked.writer, part)}
            body["more"] = not is_last
            for word, count in queue.post(path, body)["counts"].items():
                counts[word] = counts.get(word, 0) + count
            tell(sum(counts.values()))
    return counts


def _parts(points: Iterator[Point]) -> Iterator[tuple[list[Point], bool]]:
    """Return the points in parts, each with whether it is the last one."""
    part = list(islice(points, PART))
    while part:
        following = list(islice(points, PART))
        yield part, not following
        part = following


def _told(writer: Writer, points: Sequence[Point]) -> list[Body]:
    found: list[Body] = []
    for point in points:
        command = writer.command(point)
        body: Body = {"index": point.index, "params": point.data(), "dir": writer.folder(point)}
        found.append(body | ({"command": command} if isinstance(command, str) else {"argv": list(command)}))
    return found


@contextmanager
def _progress(most: int) -> Iterator[Callable[[int], None]]:
    """Count on a terminal the points that were sent; if it is interrupted, say how to go on."""
    is_shown = sys.stderr.isatty() and most > PART
    sent = 0

    def tell(so_far: int) -> None:
        nonlocal sent
        sent = so_far
        if is_shown:
            print(f"\r{sent:,} of {most:,} points", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    except BaseException:
        if sent:
            screen.say(f"{sent:,} points were sent; the same command goes on from there.")
        raise
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# -- what is told -----------------------------------------------------------------------------------------------


def _tell(asked: Asked, made: dict[str, Any], counts: dict[str, int]) -> int:
    total = sum(counts.values())
    if asked.args.has(options.JSON):
        told = {word.replace(" ", "_"): counts.get(word, 0) for word in (*ALWAYS_TOLD, *ALSO_TOLD)}
        screen.print_json({"id": made["id"], "name": asked.name, "project": asked.project, "points": total, **told})
        return 0
    if asked.args.has(QUIET):
        print(asked.name)
        return 0
    print(summary(total, counts))
    name = screen.clean(asked.name)
    print(f"sweep {name}; dibs wait sweep:{name}; dibs results {name}", file=sys.stderr)
    return 0


def summary(total: int, counts: dict[str, int]) -> str:
    """Return what became of the points: `500 points: 0 new, 3 retried, 497 done`."""
    told = [f"{counts.get(word, 0):,} {word}" for word in ALWAYS_TOLD]
    told += [f"{counts[word]:,} {word}" for word in ALSO_TOLD if counts.get(word)]
    return f"{total:,} point{'' if total == 1 else 's'}: {', '.join(told)}"


def _rehearse(queue: client.Client, asked: Asked) -> int:
    """Show the first commands and how many there are; nothing is queued."""
    answer = queue.post("/v1/sweeps?dry_run=yes", _request(asked))
    for note in answer["notes"]:
        screen.say(note)
    points = asked.points
    first = list(islice(points, SHOWN + 1))
    lines = [asked.writer.line(point) for point in first[:SHOWN]]
    most = points.most if points.is_exact else None
    if asked.args.has(options.JSON):
        screen.print_json({"name": asked.name, "points": points.most, "is_exact": points.is_exact, "commands": lines})
        return 0
    count = f"{most:,}" if most is not None else f"at most {points.most:,}"
    what = "a new sweep" if answer["is_new"] else "a sweep that is there already: what is not done would be queued"
    print(f"{count} point{'' if most == 1 else 's'} of {screen.clean(asked.name)}, {what}; nothing was queued.")
    for line in lines:
        print(f"  {screen.clean(line)}")
    if len(first) > SHOWN:
        print("  ..." if most is None else f"  ... and {most - SHOWN:,} more")
    return 0
