"""`dibs.Sweep`: a parameter space, the runs it makes, and what came out of them; the same points as from the shell.

Nothing is asked of the daemon until something is submitted, awaited or looked at. A million points stream.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, cast

from dibs.client import connection, job_waits, queries, sweep_drafts
from dibs.client.connection import Client
from dibs.errors import MachineError, NotFound, TimedOut, UserError
from dibs.python_api import jobs, keywords
from dibs.python_api.jobs import Command, Job
from dibs.submission.options import Option
from dibs.sweeps import documents, files, ranking

if TYPE_CHECKING:
    # Not loaded for those who do not have it.
    import pandas

#: Runs in one answer.
PART = 5000
#: What describes the space; the rest are options, as those of `dibs sweep`.
SPACE = ("zip", "when", "exclude", "blocks")
SPELLINGS: dict[Option[object], keywords.Spelling] = {
    sweep_drafts.SAMPLE: keywords.number,
    sweep_drafts.SEED: keywords.number,
    sweep_drafts.DIR: keywords.path,
    sweep_drafts.OUTPUT: keywords.path,
    sweep_drafts.STDERR: keywords.path,
}
Params = Mapping[str, object]


class SweepOptions(keywords.Options, total=False):
    """What may be said about a sweep, beside what may be said about its jobs."""

    #: Parameters that go in pairs instead of all combinations.
    zip: Sequence[str] | Sequence[Sequence[str]] | None
    #: Conditions under which a parameter is there, and under which a point is left out.
    when: Mapping[str, str] | None
    exclude: str | Sequence[str] | None
    #: A union of products: each has parameters of its own.
    blocks: Sequence[Params] | None
    sample: int | None
    seed: int | None
    shuffle: bool | None
    #: The folder of each run: "results/{lr}".
    dir: keywords.Path | None
    #: Which end of the metric is better: "min" or "max".
    goal: str | None


class Record(TypedDict):
    """One run: its parameters, how it stands, and the last numbers that it reported."""

    #: None: the job was forgotten, its result was not.
    job: int | None
    attempt: int
    index: int
    params: dict[str, Any]
    state: str
    numbers: dict[str, float | None]
    started_at: str | None
    finished_at: str | None


class Sweep:
    """One job for each point of a parameter space, known by project and name."""

    def __init__(self, command: Command, params: Params, **options: Unpack[SweepOptions]) -> None:
        told = cast("dict[str, object]", {**options})
        space: dict[str, object] = {key: _node(told.pop(key)) for key in SPACE if told.get(key) is not None}
        words = command if isinstance(command, str) else list(jobs.words(command))
        document = {"command": words, "parameters": _parameters(params), **space}
        self._ask(documents.read(document, "Sweep"), told, [[name, repr(value)] for name, value in params.items()])

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Unpack[SweepOptions]) -> Self:
        """Return the sweep of a file (YAML, JSON, TOML or CSV); options count more than what it says."""
        sweep = cls.__new__(cls)
        file = os.path.abspath(os.fspath(path))
        sweep._ask(files.load(file), cast("Mapping[str, object]", options), (), file)
        return sweep

    def _ask(
        self, space: documents.Sweep, told: Mapping[str, object], params: Sequence[object], file: str | None = None
    ) -> None:
        with keywords.spoken(sweep_drafts.OPTIONS):
            args = keywords.read({"name": space.name, **told}, sweep_drafts.OPTIONS, SPELLINGS)
            self._asked = sweep_drafts.ask(args, space, parameters=params, file=file)

    @property
    def name(self) -> str:
        """Return its name, made from command and folder if none was given."""
        return self._asked.name

    @property
    def project(self) -> str:
        """Return its project."""
        return self._asked.project

    @property
    def selector(self) -> str:
        """Return what means its jobs, also on the command line."""
        return f"sweep:{self.project}/{self.name}"

    def points(self) -> Iterator[dict[str, Any]]:
        """Return the parameters of each run, in the order in which they are queued."""
        return (cast("dict[str, Any]", point.data()) for point in self._asked.points)

    def commands(self) -> Iterator[str]:
        """Return the command of each run, as people read it."""
        return self._asked.writer.lines(self._asked.points)

    @cached_property
    def _count(self) -> int:
        points = self._asked.points
        return points.most if points.is_exact else sum(1 for _ in points)

    def __len__(self) -> int:
        return self._count

    def submit(self, *, again: bool = False) -> dict[str, int]:
        """Queue the points that are neither done nor queued nor running, and those that failed once more.

        Return how many points became what: new, retried, done, ... With `again` also what is done is run once more.
        """
        if not isinstance(again, bool):
            raise UserError(f"again expected True or False, got {again!r}.")
        with keywords.spoken(sweep_drafts.OPTIONS):
            sweep_drafts.check_first(self._asked)
            queue = _queue()
            made = queue.post("/v1/sweeps", sweep_drafts.request(self._asked))
            for note in made["notes"]:
                jobs.note(note)
            return {"new": 0, "retried": 0, "done": 0} | sweep_drafts.send(queue, self._asked, made["id"], again=again)

    def wait(self, timeout: float | None = None) -> dict[str, int]:
        """Return when all runs have finished, with how many ended in which state; `TimedOut` after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            waited = job_waits.until_over(_queue(), [self.selector], until)
        except NotFound:
            # Its jobs were forgotten; their results are not.
            return self.states()
        if not waited["over"]:
            left = waited["total"] - waited["finished"]
            raise TimedOut(f"{left} of {waited['total']} runs are not finished after {timeout:g} s.")
        return self.states()

    def states(self) -> dict[str, int]:
        """Return how many runs are in which state."""
        found: dict[str, int] = {}
        for record in self.records():
            found[record["state"]] = found.get(record["state"], 0) + 1
        return found

    def jobs(self) -> list[Job]:
        """Return the jobs of its runs."""
        return jobs.jobs(self.selector)

    def cancel(self) -> None:
        """Cancel all runs that have not finished."""
        queries.act(_queue(), "cancel", [self.selector])

    def records(self) -> Iterator[Record]:
        """Return one record a run, as they come and in no order that matters."""
        queue = _queue()
        path, after = f"/v1/sweeps/{self._id(queue)}/results", ""
        while after is not None:
            answer = queue.get(path, [("most", str(PART)), ("after", after)])
            yield from answer["runs"]
            after = answer["next"]

    def _id(self, queue: Client) -> int:
        found = queue.get("/v1/sweeps", [("name", f"{self.project}/{self.name}")])["sweeps"]
        return int(found[0]["id"])

    def results(self) -> list[Record]:
        """Return one record a run, in the order of the points."""
        return sorted(self.records(), key=lambda record: record["index"])

    def best(self, metric: str | None = None, *, goal: Literal["min", "max"] | None = None) -> Record:
        """Return the run that is done and has the best number; `metric` and `goal` if the sweep does not say them."""
        metric = metric or self._asked.sweep.metric
        if metric is None:
            raise UserError("best expected the name of a number to compare by, got none.", 'Write best("loss").')
        word = documents.GOALS.get(goal or "", goal) or self._asked.sweep.goal or ranking.MINIMIZE
        if word not in documents.GOALS.values():
            raise UserError(f'goal expected min or max, got "{goal}".')
        done = [record for record in self.results() if record["state"] == "done"]
        ranking.check_metric(metric, list(dict.fromkeys(name for record in done for name in record["numbers"])))
        compared = [record for record in done if record["numbers"].get(metric) is not None]
        if not compared:
            raise NotFound(f'no run of sweep {self.name} is done and has reported "{metric}".')
        return min(compared, key=lambda record: ranking.key(record["numbers"][metric], word))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each run: job, state, parameters and numbers; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise MachineError("to_pandas needs pandas, which is not installed here.", "pip install pandas") from None
        return pandas.DataFrame([flat(record) for record in self.results()])

    def __repr__(self) -> str:
        return f"<dibs.Sweep {self.project}/{self.name}>"


def flat(record: Record) -> dict[str, Any]:
    """Return a record as a row of a table; a number that is called as a parameter stands beside it as `number.NAME`."""
    head = {"job": record["job"], "index": record["index"], "state": record["state"]}
    params = {(f"param.{name}" if name in head else name): value for name, value in record["params"].items()}
    taken = head | params
    numbers = {(f"number.{name}" if name in taken else name): value for name, value in record["numbers"].items()}
    return taken | numbers


def _parameters(params: object) -> dict[str, object]:
    if not isinstance(params, Mapping):
        raise UserError(f'expected parameters such as {{"lr": [0.1, 0.01]}}, got {params!r}.')
    return {str(name): _node(value) for name, value in params.items()}


def _node(value: object) -> object:
    """Return a value of Python as a document has it: ranges stay lazy, arrays become lists."""
    if isinstance(value, range):
        return f"range({value.start},{value.stop},{value.step})"
    if hasattr(value, "tolist"):
        # Arrays and numbers of numpy and its kin.
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _node(one) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_node(one) for one in value]
    return value


def _queue() -> Client:
    return connection.connect(os.environ)
