"""Every verb that takes jobs, with every kind of selector, with and without --json, piped and on a terminal.

The selected jobs are computed here a second time, from the queue as it was just before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.cli import main as cli
from dibs.submission import options
from keyboard import Typed, Typist
from terminal import CTRL_C, Terminal

Job = dict[str, Any]

WAITING = ("queued", "held")
FINISHED = ("done", "failed", "cancelled", "timeout", "lost")
#: Exit code of the job that fails, which is also the last one.
FAILURE = 3

#: The queue: a state for each job, and how to reach it. Jobs that request a GPU wait: all GPUs are leased.
CAST: list[tuple[str, Job]] = [
    ("done", {"command": "echo out", "name": "alpha", "project": "p", "tags": ["t"]}),
    ("queued", {"command": "true", "name": "beta", "gpus": 1}),
    ("held", {"command": "true", "name": "gamma", "gpus": 1, "hold": True}),
    ("running", {"command": "sleep 1000", "name": "alpha-2", "tags": ["t"]}),
    ("timeout", {"command": "sleep 1000", "project": "p", "time_limit_s": 0.01}),
    ("cancelled", {"command": "true", "gpus": 1, "name": "zeta"}),
    ("queued", {"command": "true", "name": "delta", "project": "p", "tags": ["t"], "gpus": 1}),
    ("done", {"command": "echo out", "name": "epsilon"}),
    ("failed", {"command": f"echo out; exit {FAILURE}", "name": "omega", "project": "p"}),
]

#: Which verb leads from one state to another; for all others the queue is rebuilt.
MENDING = {
    ("held", "queued"): "unhold", ("queued", "held"): "hold", ("paused", "running"): "resume",
    ("queued", "cancelled"): "cancel", ("held", "cancelled"): "cancel",
}  # fmt: skip


def is_moving(job: Job) -> bool:
    """Return whether a job is about to change its state: all but one of those without a GPU end at once."""
    return job["gpus"] == 0 and job["state"] not in (*FINISHED, "paused") and job["name"] != "alpha-2"


class Stage:
    """A queue with the cast in it, rebuilt when a verb has changed it."""

    def __init__(self, bench: Bench, typist: Typist) -> None:
        self.bench, self.typist = bench, typist
        self.ids: list[int] = []

    def prepare(self) -> None:
        """Make sure that every job of the cast exists and is in its state."""
        if self.ids and self._is_restored(self.jobs()):
            return
        if self.ids:
            self.bench.cancel("all", grace_s=0)
            self.bench.wait_all()
            self.bench.client.post("/v1/jobs/actions", {"verb": "clean", "select": ["all"]})
        self.ids = self.bench.add_many([{"gpus": 0, **job} for _, job in CAST])
        for job_id, (state, _) in zip(self.ids, CAST, strict=True):
            if state == "cancelled":
                self.bench.cancel(job_id)
            elif state not in WAITING:
                self.bench.until(job_id, "started" if state == "running" else "finished")

    def _is_restored(self, jobs: list[Job]) -> bool:
        """Bring every job back to its state by a verb, if there is one for each that needs it."""
        if [job["id"] for job in jobs] != self.ids:
            return False
        moved = [(job, state) for job, (state, _) in zip(jobs, CAST, strict=True) if job["state"] != state]
        if not all((job["state"], state) in MENDING for job, state in moved):
            return False
        for job, state in moved:
            verb = MENDING[job["state"], state]
            self.bench.client.post("/v1/jobs/actions", {"verb": verb, "select": [str(job["id"])]})
        return True

    def jobs(self) -> list[Job]:
        """Return the whole queue, once nothing in it changes by itself."""
        return wait_for(self.bench.jobs, lambda jobs: not any(map(is_moving, jobs)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, typist: Typist) -> Iterator[Stage]:
    bench = Bench(tmp_path_factory.mktemp("table"))
    with Terminal(bench, "lease", "-g", "4") as person:
        person.until("export")
        yield Stage(bench, typist)
        person.type(CTRL_C)
        person.end()
    bench.close()


@pytest.fixture
def stage(shared: Stage) -> Stage:
    shared.prepare()
    return shared


# -- selectors --


@dataclass(frozen=True)
class Selector:
    """A kind of selector: its words for this cast, and the jobs of a queue that it matches."""

    words: Callable[[list[int]], list[str]]
    means: Callable[[Job, list[int]], bool]


SELECTORS: dict[str, Selector] = {
    "12": Selector(lambda ids: [f"{ids[0]}"], lambda job, ids: job["id"] == ids[0]),
    "3-7": Selector(lambda ids: [f"{ids[4]}-{ids[6]}"], lambda job, ids: ids[4] <= job["id"] <= ids[6]),
    "1,4,9-12": Selector(
        lambda ids: [f"{ids[0]},{ids[2]},{ids[5]}-{ids[7]}"], lambda job, ids: ids.index(job["id"]) in (0, 2, 5, 6, 7)
    ),
    "@": Selector(lambda ids: ["@"], lambda job, ids: job["id"] == ids[-1]),
    "@~1": Selector(lambda ids: ["@~1"], lambda job, ids: job["id"] == ids[-2]),
    "all": Selector(lambda ids: ["all"], lambda job, ids: True),
    "state": Selector(lambda ids: ["queued"], lambda job, ids: job["state"] == "queued"),
    "outcome": Selector(lambda ids: ["failed"], lambda job, ids: job["state"] == "failed"),
    "bad": Selector(lambda ids: ["bad"], lambda job, ids: job["state"] in ("failed", "timeout", "lost")),
    "name:": Selector(lambda ids: ["name:alpha*"], lambda job, ids: job["name"].startswith("alpha")),
    "project:": Selector(lambda ids: ["project:p"], lambda job, ids: job["project"] == "p"),
    "tag:": Selector(lambda ids: ["tag:t"], lambda job, ids: "t" in job["tags"]),
    "since:": Selector(lambda ids: ["since:24h"], lambda job, ids: True),
    "union": Selector(
        lambda ids: [f"{ids[1]}", "name:g*"], lambda job, ids: job["id"] == ids[1] or job["name"].startswith("g")
    ),
    "a+b": Selector(
        lambda ids: ["tag:t+done", "project:p+held"],
        lambda job, ids: ("t" in job["tags"] and job["state"] == "done")
        or (job["project"] == "p" and job["state"] == "held"),
    ),
    "none": Selector(lambda ids: ["name:nobody"], lambda job, ids: False),
}  # fmt: skip


# -- verbs --


def is_waiting(job: Job) -> bool:
    return job["state"] in WAITING


def is_finished(job: Job) -> bool:
    return job["state"] in FINISHED


def always(jobs: list[Job]) -> int:
    return 0


def retried(jobs: list[Job]) -> int:
    """Return 1 if nothing is retried because jobs are unfinished."""
    states = {job["state"] for job in jobs}
    return int(bool(states.difference(FINISHED)) and not states & {"failed", "cancelled", "timeout", "lost"})


def allowed(states: set[str], leads_to: str = "") -> Callable[[list[Job]], int]:
    """Return the exit code of a verb for jobs in `states`: 1 if none is, and one is not where it leads to already."""

    def code(jobs: list[Job]) -> int:
        found = {job["state"] for job in jobs}
        return int(not found & states and bool(found - {leads_to}))

    return code


def waited(jobs: list[Job]) -> int:
    if not all(map(is_finished, jobs)):
        return 124
    return 0 if all(job["state"] == "done" for job in jobs) else 1


def edited(jobs: list[Job]) -> int:
    return 0 if all(map(is_waiting, jobs)) else 2


def cleanable(jobs: list[Job]) -> int:
    return 0 if all(map(is_finished, jobs)) else 2


def one(code: Callable[[Job], int]) -> Callable[[list[Job]], int]:
    """Return the exit code of a verb that expects exactly one job."""
    return lambda jobs: 2 if len(jobs) > 1 else code(jobs[0])


def named(document: Any) -> list[int]:
    """Return the ids in the answer of a verb that changes jobs."""
    return sorted(job["id"] for job in (*document["changed"], *document["unchanged"]))


def in_lines(typed: Typed) -> list[int]:
    """Return the ids at the beginning of the lines; unchanged jobs are on stderr, those with one reason in one line."""
    changed = typed.out.splitlines()
    unchanged = [line for line in typed.err.splitlines() if not line.startswith("dibs: ")]
    assert all(re.match(r"\d+ [a-z]+(: .+)?$", line) for line in changed), changed
    assert all(re.match(r"[\d,-]+ ([a-z]+: .+|already [a-z]+)$", line) for line in unchanged), unchanged
    return sorted(job_id for line in (*changed, *unchanged) for job_id in numbers(line.split()[0]))


def numbers(ranges: str) -> list[int]:
    """Return the ids in a text such as 1,3-5."""
    ends = [part.split("-") for part in ranges.split(",")]
    return [job_id for first, *last in ends for job_id in range(int(first), int((last or [first])[0]) + 1)]


def shown(document: Any) -> list[int]:
    """Return the ids of one object, or of a list of them."""
    return [job["id"] for job in (document if isinstance(document, list) else [document])]


def in_table(typed: Typed) -> list[int]:
    """Return the first column of a table; a wrapped sentence continues in a line without one."""
    lines = bare(typed.out).splitlines()
    head = next(place for place, line in enumerate(lines) if line.split()[:3] == ["ID", "NAME", "STATE"])
    return [int(line.split()[0]) for line in lines[head + 1 :] if re.match(r" *\d+  \S", line)]


def bare(text: str) -> str:
    """Return a text without its colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", text)


@dataclass(frozen=True)
class Verb:
    """How a verb that takes jobs is typed, its exit code, and the jobs in its answer."""

    code: Callable[[list[Job]], int]
    #: The ids in the document of --json; None: the verb has no --json.
    ids: Callable[[Any], list[int]] | None
    #: The ids in the output for users.
    read: Callable[[Typed], list[int]]
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    #: The jobs in the answer, of those that were selected.
    names: Callable[[Job], bool] = lambda job: True


def total(document: Any) -> list[int]:
    """Check the counts of an answer that lists no jobs."""
    assert document["finished"] <= document["total"]
    return []


def cleaned(document: Any) -> list[int]:
    assert document.keys() == {"jobs", "bytes", "needed"}
    return []


def nobody(job: Job) -> bool:
    return False


def silent(typed: Typed) -> list[int]:
    assert typed.out == ""
    return []


def output(typed: Typed) -> list[int]:
    assert (typed.out, typed.err) == ("out\n", "")
    return []


def deleted(typed: Typed) -> list[int]:
    assert re.fullmatch(r"deleted \d+ finished jobs? and \S+ of files\n", typed.out)
    return []


def sections(typed: Typed) -> list[int]:
    return [int(number) for number in re.findall(r"^job (\d+)  [a-z]+", bare(typed.out), re.MULTILINE)]


def sentences(typed: Typed) -> list[int]:
    # On a terminal a sentence may have several lines.
    lines = re.sub(r"\n(?!job \d+: )", " ", typed.out.rstrip("\n")).splitlines()
    assert all(re.match(r"job \d+: .+\.$", line) for line in lines), lines
    assert typed.err == ""
    return [int(line.split()[1].rstrip(":")) for line in lines]


CHANGING = {"ids": named, "read": in_lines}
#: A verb that is not here takes no selector: see `test_table_verbs`.
VERBS: dict[str, Verb] = {
    "status": Verb(always, lambda document: [job["id"] for job in document["jobs"]], in_table),
    "show": Verb(always, shown, sections),
    "why": Verb(always, shown, sentences),
    "log": Verb(one(lambda job: 0), None, output, names=nobody),
    "follow": Verb(one(lambda job: job["exit_code"]), None, output, names=nobody),
    "wait": Verb(waited, total, silent, before=["--timeout", "0s"], names=nobody),
    "kill": Verb(allowed({"running", "paused"}), **CHANGING, before=["-s", "CONT"]),
    "pause": Verb(allowed({"running"}, "paused"), **CHANGING),
    "resume": Verb(always, **CHANGING),
    "edit": Verb(edited, **CHANGING, before=["--priority", "3"]),
    "move": Verb(one(lambda job: 0 if is_waiting(job) else 2), named, in_lines, after=["first"]),
    "hold": Verb(allowed({"queued"}, "held"), **CHANGING),
    "unhold": Verb(always, **CHANGING),
    "retry": Verb(retried, **CHANGING),
    "cancel": Verb(always, **CHANGING, before=["-y", "--grace", "0s"]),
    "clean": Verb(cleanable, cleaned, deleted, before=["-y"], names=nobody),
}  # fmt: skip


def test_every_verb_that_takes_selectors_is_in_the_table() -> None:
    takers = {name for name in cli.VERBS if any("SELECTOR" in use or "JOB" in use for use in cli.load(name).USAGE)}
    # The script of a job on Slurm: tests/engines has it.
    assert takers - {"sbatch-script"} == {*VERBS}


@pytest.mark.parametrize("kind", SELECTORS)
@pytest.mark.parametrize("name", VERBS)
def test_a_verb_acts_on_exactly_the_selected_jobs(stage: Stage, name: str, kind: str) -> None:
    verb, selector = VERBS[name], SELECTORS[kind]
    words = [name, *verb.before, *selector.words(stage.ids), *verb.after]
    has_json = options.JSON in cli.load(name).OPTIONS
    assert has_json is (verb.ids is not None)
    selected: list[Job] = []
    for is_json, columns in [(False, None), (True, None), (False, 80), (True, 80)]:
        if is_json and not has_json:
            continue
        if not selected or verb.ids in (named, cleaned):
            selected = [job for job in stage.jobs() if selector.means(job, stage.ids)]
        typed = stage.typist.type(stage.bench, *words, *(["--json"] if is_json else []), columns=columns)
        # No job in a state is not an error; an id or a name that does not exist is one.
        code = verb.code(selected) if selected else 0 if kind == "state" else 3
        assert typed.code == code, (words, typed)
        assert "Traceback" not in typed.err
        if columns is None:
            assert "\x1b" not in typed.out + typed.err
        if is_json and not selected and code == 0:
            assert verb.ids is not None
            assert verb.ids(json.loads(typed.out)) == []
            continue
        if not selected or code == 2:
            assert typed.out == ""
            assert re.fullmatch(r"dibs: [^\n]+\.?\n", typed.err), typed
            continue
        expected = [job["id"] for job in selected if verb.names(job)]
        if is_json:
            assert "\x1b" not in typed.out
            assert verb.ids is not None
            assert verb.ids(json.loads(typed.out)) == expected
        else:
            assert verb.read(typed) == expected, typed
        if name == "clean":
            stage.prepare()
            words = [name, *verb.before, *selector.words(stage.ids), *verb.after]
