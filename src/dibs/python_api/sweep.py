"""`dibs.Sweep`: a parameter space, its runs and their results; the same points as `dibs sweep` makes.

Creating one does not contact the daemon, unless "like" names a job. Points are generated lazily, so a space may
have millions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from dibs.client import queries, sweep_drafts, template_job
from dibs.client.answers import Run as Record
from dibs.client.connection import Client
from dibs.errors import NotFound, UserError
from dibs.python_api import display, job_list, jobs, keywords, results, signatures, submission
from dibs.python_api.job_list import JobList
from dibs.python_api.results import Results
from dibs.python_api.submission import Command
from dibs.sweeps import documents, files, ranking

if TYPE_CHECKING:
    # Optional: imported only by `results.Results.to_frame`.
    import pandas

#: Keywords that describe the space, with their meanings; the others are options of `dibs sweep`.
SPACE = {
    "zip": "Parameters that vary together, instead of in all combinations.",
    "when": 'Conditions under which a parameter exists: {"momentum": "opt == \'sgd\'"}.',
    "exclude": "Conditions under which a point is left out.",
    "blocks": "A union of products, each with its own parameters.",
}
Params = Mapping[str, object]


class SweepOptions(keywords.Options, total=False):
    """The options of a sweep, in addition to those of its jobs."""

    #: Parameters that vary together, instead of in all combinations.
    zip: Sequence[str] | Sequence[Sequence[str]] | None
    #: Conditions under which a parameter exists, and under which a point is excluded.
    when: Mapping[str, str] | None
    exclude: str | Sequence[str] | None
    #: A union of products, each with its own parameters.
    blocks: Sequence[Params] | None
    sample: int | None
    seed: int | None
    shuffle: bool | None
    #: The directory of each run: "results/{lr}".
    dir: keywords.Path | None
    #: "min" or "max": which value of the metric is best.
    goal: str | None
    #: "tpe", "cmaes" or "random": choose `trials` points while the sweep runs.
    search: str | None
    trials: int | None
    #: The metric, of which the lowest or the highest value is best.
    minimize: str | None
    maximize: str | None
    #: "median" or "hyperband": stop runs that are worse than others at the same step.
    early_stop: str | None


class Sweep:
    """One job per point of a parameter space, identified by project and name.

    >>> sweep = dibs.Sweep("echo loss={lr}", {"lr": [0.3, 0.1]}, metric="loss=loss=(.*)", name="fit", gpus=0)
    >>> len(sweep)
    2
    >>> sweep.submit()
    {'new': 2, 'retried': 0, 'done': 0}
    >>> sweep.wait()
    {'done': 2}
    >>> sweep.best()["params"]
    {'lr': 0.1}
    """

    @signatures.describe(sweep_drafts.OPTIONS, SweepOptions, SPACE)
    def __init__(self, command: Command, params: Params, **options: Unpack[SweepOptions]) -> None:
        given = cast("dict[str, object]", {**options})
        space: dict[str, object] = {key: _node(given.pop(key)) for key in SPACE if given.get(key) is not None}
        words = command if isinstance(command, str) else list(submission.words(command))
        document = {"command": words, "parameters": _parameters(params), **space}
        self._read(documents.read(document, "Sweep"), given, [[name, repr(value)] for name, value in params.items()])

    @classmethod
    @signatures.describe(sweep_drafts.OPTIONS, SweepOptions)
    def load(cls, path: str | os.PathLike[str], **options: Unpack[SweepOptions]) -> Self:
        """Read a sweep file (YAML, JSON, TOML or CSV); options override the file.

        >>> from pathlib import Path
        >>> _ = Path("sweep.json").write_text('{"command": "echo {lr}", "parameters": {"lr": [1, 2]}}')
        >>> len(dibs.Sweep.load("sweep.json", gpus=0))
        2
        """
        sweep = cls.__new__(cls)
        file = os.path.abspath(os.fspath(path))
        sweep._read(files.load(file), cast("Mapping[str, object]", options), (), file)
        return sweep

    def _read(
        self, space: documents.Sweep, given: Mapping[str, object], params: Sequence[object], file: str | None = None
    ) -> None:
        with keywords.keyword_errors(sweep_drafts.OPTIONS):
            args = keywords.read({"name": space.name, **given}, sweep_drafts.OPTIONS, SweepOptions)
            args = template_job.for_sweep(args, jobs.client)
            self._draft = sweep_drafts.ask(args, space, parameters=params, file=file)

    @property
    def name(self) -> str:
        """Return its name, by default made from command and directory."""
        return self._draft.name

    @property
    def project(self) -> str:
        """Return its project."""
        return self._draft.project

    @property
    def selector(self) -> str:
        """Return the selector of its jobs, also for the command line."""
        return f"sweep:{self.project}/{self.name}"

    def points(self) -> Iterator[dict[str, Any]]:
        """Return the parameters of each run, in submission order."""
        self._check_known()
        return (cast("dict[str, Any]", point.data()) for point in self._draft.points)

    def commands(self) -> Iterator[str]:
        """Return the command of each run, as text."""
        self._check_known()
        return self._draft.writer.lines(self._draft.points)

    def _check_known(self) -> None:
        if self._draft.sweep.is_adaptive:
            raise UserError(
                "the points of a search are chosen from its results and not known in advance.",
                "sweep.results() has those that were chosen.",
            )

    @cached_property
    def _count(self) -> int:
        if self._draft.sweep.is_adaptive:
            return self._draft.sweep.trials or 0
        points = self._draft.points
        return points.most if points.is_exact else sum(1 for _ in points)

    def __len__(self) -> int:
        return self._count

    def submit(self, *, again: bool = False) -> dict[str, int]:
        """Submit the missing points and retry the failed ones; with `again` also run the done ones again.

        Return the number of points per outcome: new, retried, done, ...
        """
        if not isinstance(again, bool):
            raise UserError(f"again expected True or False, got {again!r}.")
        with keywords.keyword_errors(sweep_drafts.OPTIONS):
            if again:
                self._check_known()
            sweep_drafts.check_first(self._draft)
            queue = jobs.client()
            made = queue.post("/v1/sweeps", sweep_drafts.request(self._draft))
            for note in made["notes"]:
                jobs.note(note)
            return {"new": 0, "retried": 0, "done": 0} | sweep_drafts.submit(
                queue, self._draft, made["id"], again=again
            )

    def wait(self, timeout: float | None = None, *, held: jobs.Held = "leave") -> dict[str, int]:
        """Wait until all runs finish; return `states`, or raise `errors.TimedOut` after `timeout` seconds.

        As soon as only held runs remain raise `errors.OnlyHeld`; with `held="wait"` wait until they continue.
        """
        # Its jobs may be deleted; their results are kept.
        with suppress(NotFound):
            jobs.wait_selected([self.selector], timeout, "runs", held)
        return self.states()

    def states(self) -> dict[str, int]:
        """Return the number of runs per state."""
        return dict(Counter(record["state"] for record in self.records()))

    def jobs(self) -> JobList:
        """Return the jobs of its runs."""
        return job_list.jobs(self.selector)

    def cancel(self) -> None:
        """Cancel all runs that have not finished."""
        queries.act(jobs.client(), "cancel", [self.selector])

    def records(self) -> Iterator[Record]:
        """Return one record per run, in no particular order."""
        queue = jobs.client()
        return queries.runs(queue, self._find(queue)[0])

    def _find(self, queue: Client) -> tuple[int, str]:
        return results.find(queue, f"{self.project}/{self.name}")

    def results(self) -> Results:
        """Return one record per run, in the order of the points."""
        queue = jobs.client()
        return results.of_sweep(queue, *self._find(queue))

    def best(self, metric: str | None = None, *, goal: Literal["min", "max"] | None = None) -> Record:
        """Return the successful run with the best number; `metric` and `goal` default to those of the sweep."""
        metric = metric or self._draft.sweep.metric
        if metric is None:
            raise UserError("best expected the name of a metric, got none.", 'Write best("loss").')
        word = documents.GOALS.get(goal or "", goal) or self._draft.sweep.goal or ranking.MINIMIZE
        if word not in documents.GOALS.values():
            raise UserError(f'goal expected min or max, got "{goal}".')
        done = [record for record in self.results() if record["state"] == "done"]
        ranking.check_metric(metric, list(dict.fromkeys(name for record in done for name in record["numbers"])))
        compared = [record for record in done if record["numbers"].get(metric) is not None]
        if not compared:
            raise NotFound(f'no run of sweep {self.name} is done and has reported "{metric}".')
        return min(compared, key=lambda record: ranking.key(record["numbers"][metric], word))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with one row per run: job, state, parameters and numbers; needs pandas."""
        return self.results().to_frame("pandas")

    def _shown(self) -> str:
        answer = display.ask("/v1/sweeps")
        found = answer["sweeps"] if answer else []
        own = (each for each in found if (each["project"], each["name"]) == (self.project, self.name))
        submitted = next(own, None)
        count = f"{len(self)} trials" if self._draft.sweep.is_adaptive else f"{self._draft.points.most} points"
        return f"{self.project}/{self.name}: {display.states(submitted['states']) if submitted else count}"

    def __repr__(self) -> str:
        return f"<Sweep {self._shown()}>"

    def _repr_html_(self) -> str:
        points = [] if self._draft.sweep.is_adaptive else list(islice(self.points(), display.MOST_ROWS))
        titles = list(dict.fromkeys(name for point in points for name in point))
        return display.html_table(titles, [[point.get(name) for name in titles] for point in points], self._shown())


def _parameters(params: object) -> dict[str, object]:
    if not isinstance(params, Mapping):
        raise UserError(f'expected parameters such as {{"lr": [0.1, 0.01]}}, got {params!r}.')
    return {str(name): _node(value) for name, value in params.items()}


def _node(value: object) -> object:
    """Return a Python value as in a sweep file: ranges stay lazy, arrays become lists."""
    if isinstance(value, range):
        return f"range({value.start},{value.stop},{value.step})"
    if hasattr(value, "tolist"):
        # Arrays and numbers of numpy and similar libraries.
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _node(one) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_node(one) for one in value]
    return value
