"""`dibs.Sweep`: the same points as on the command line, rules for running again, results, the best run."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import dibs
from bench import Bench
from dibs import errors
from dibs.cli.verbs import sweep as verb
from dibs.client import sweep_drafts
from dibs.submission.options import parse

COMMAND = "echo {lr} {bs}"
PAIR = {"lr": [0.1, 0.01], "bs": [32, 64]}


def typed(*words: str) -> sweep_drafts.SweepDraft:
    """Return the request of a command line."""
    return verb.read(parse("sweep", verb.OPTIONS, words))


#: The same sweep from Python and from the command line.
EQUAL: list[tuple[str | list[str], dict[str, Any], dict[str, Any], list[str]]] = [
    (COMMAND, PAIR, {}, [COMMAND, "-p", "lr", "0.1", "0.01", "-p", "bs", "32", "64"]),
    (COMMAND, {"lr": (0.1,), "bs": range(0, 6, 2)}, {}, [COMMAND, "-p", "lr=0.1", "-p", "bs=range(0,6,2)"]),
    (COMMAND, {"lr": "linspace(0,1,3)", "bs": 8}, {}, [COMMAND, "-p", "lr=linspace(0,1,3)", "-p", "bs", "8"]),
    (
        COMMAND,
        {"lr": "loguniform(1e-5,1e-1)", "bs": [1, 2]},
        {"sample": 9, "seed": 3},
        [COMMAND, "-p", "lr=loguniform(1e-5,1e-1)", "-p", "bs", "1", "2", "--sample", "9", "--seed", "3"],
    ),
    (
        ["echo", "{lr}", "{bs}"],
        PAIR,
        {"shuffle": True, "name": "s", "gpus": 2, "time": "1h", "jobs": 2, "halt": 1, "project": "p"},
        [
            "-p",
            "lr",
            "0.1",
            "0.01",
            "-p",
            "bs",
            "32",
            "64",
            "--shuffle",
            "-n",
            "s",
            "-g",
            "2",
            "-t",
            "1h",
            "-j",
            "2",
            "--halt",
            "1",
            "-P",
            "p",
            "--",
            "echo",
            "{lr}",
            "{bs}",
        ],
    ),
    (
        COMMAND,
        PAIR,
        {"dir": Path("runs/{lr}"), "output": "{lr}.log", "metric": {"loss": "loss ([0-9]+)"}, "goal": "max"},
        [
            COMMAND,
            "-p",
            "lr",
            "0.1",
            "0.01",
            "-p",
            "bs",
            "32",
            "64",
            "--dir",
            "runs/{lr}",
            "-o",
            "{lr}.log",
            "--metric",
            "loss=loss ([0-9]+)",
            "--goal",
            "max",
        ],
    ),
]


@pytest.mark.parametrize(("command", "params", "options", "words"), EQUAL)
def test_it_makes_the_request_of_the_command_line(
    command: Any, params: dict[str, Any], options: dict[str, Any], words: list[str]
) -> None:
    sweep, asked = dibs.Sweep(command, params, **options), typed(*words)
    own, shells = sweep_drafts.request(sweep._draft), sweep_drafts.request(asked)
    # The text for users differs.
    assert own.pop("definition") != {}
    shells.pop("definition")
    assert own == shells
    assert list(sweep.points()) == [point.data() for point in asked.points]
    assert list(sweep.commands()) == list(asked.writer.lines(asked.points))


@pytest.mark.parametrize(
    ("params", "options", "points"),
    [
        ({"lr": [1, 2], "bs": [3, 4]}, {"zip": ["lr", "bs"]}, [(1, 3), (2, 4)]),
        ({"lr": [1, 2], "bs": [3, 4]}, {"exclude": "lr == 1 and bs == 3"}, [(1, 4), (2, 3), (2, 4)]),
        ({"lr": [1, 2], "bs": [3, 4]}, {"exclude": ["lr == 1", "bs == 3"]}, [(2, 4)]),
        ({}, {"blocks": [{"lr": [1], "bs": [2, 3]}, {"lr": 5, "bs": (6,)}]}, [(1, 2), (1, 3), (5, 6)]),
        ({"lr": [{"a": 1}, [2, 3]], "bs": ["x y"]}, {}, [({"a": 1}, "x y"), ([2, 3], "x y")]),
        ({"lr": [True, None], "bs": [1.5]}, {}, [(True, 1.5), (None, 1.5)]),
    ],
)
def test_a_space_can_be_given_in_several_forms(
    params: dict[str, Any], options: dict[str, Any], points: list[tuple[object, ...]]
) -> None:
    sweep = dibs.Sweep(COMMAND, params, **options)
    assert [tuple(point.values()) for point in sweep.points()] == points
    assert len(sweep) == len(points)


def test_a_parameter_may_have_a_condition() -> None:
    sweep = dibs.Sweep("echo {args}", {"opt": ["sgd", "adam"], "beta": [0.9, 0.99]}, when={"beta": "opt == 'adam'"})
    assert list(sweep.points()) == [
        {"opt": "sgd"},
        {"opt": "adam", "beta": 0.9},
        {"opt": "adam", "beta": 0.99},
    ]


def test_numpy_arrays_are_lists() -> None:
    class Array:
        def tolist(self) -> list[float]:
            return [0.5, 1.0]

    assert [point["lr"] for point in dibs.Sweep("echo {lr}", {"lr": Array()}).points()] == [0.5, 1]


def test_a_million_points_are_streamed() -> None:
    sweep = dibs.Sweep("echo {a} {b}", {"a": range(1000), "b": range(1000)})
    assert len(sweep) == 1_000_000
    assert list(itertools.islice(sweep.points(), 2)) == [{"a": 0, "b": 0}, {"a": 0, "b": 1}]


def test_a_file_is_read_as_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "fit.yaml"
    file.write_text("command: echo {lr}\nparameters: {lr: [1, 2]}\nname: fit\ngpus: 2\n")
    sweep = dibs.Sweep.load(file, gpus=0)
    assert (sweep.name, len(sweep), sweep.selector) == ("fit", 2, "sweep:default/fit")
    assert sweep_drafts.request(sweep._draft) == sweep_drafts.request(typed(str(file), "-g", "0"))


WRONG: list[tuple[Any, Any, dict[str, Any], str]] = [
    (COMMAND, {"lr": [1]}, {}, "{bs}"),
    (COMMAND, {"lr": [1], "bs": [1], "x": [1]}, {}, "x"),
    (COMMAND, {}, {}, "expected"),
    (COMMAND, [1], {}, 'expected parameters such as {"lr": [0.1, 0.01]}, got [1].'),
    (COMMAND, {"lr": [], "bs": [1]}, {}, "lr"),
    ("", PAIR, {}, "expected"),
    ([], PAIR, {}, "expected a command, got none."),
    (["nosuchprogram", "{lr}", "{bs}"], PAIR, {}, "command not found: nosuchprogram"),
    (COMMAND, {"lr": "uniform(0,1)", "bs": [1]}, {}, "sample"),
    (COMMAND, PAIR, {"sample": 0}, 'sample expected a whole number from 1 up, got "0".'),
    (COMMAND, PAIR, {"seed": "x"}, 'seed expected a whole number, got "x".'),
    (COMMAND, PAIR, {"goal": "best"}, 'goal expected min or max, got "best".'),
    (COMMAND, PAIR, {"shuffle": 1}, "shuffle expected True or False, got 1."),
    (COMMAND, PAIR, {"zip": ["lr", "nobody"]}, "nobody"),
    (COMMAND, PAIR, {"exclude": "lr ="}, "expected a condition such as"),
    (COMMAND, PAIR, {"gpu": 1}, "there is no option gpu. Did you mean gpus?"),
    (COMMAND, PAIR, {"time": 3}, "time expected a time such as"),
]


@pytest.mark.parametrize(("command", "params", "options", "says"), WRONG)
def test_a_mistake_is_an_error_before_any_request(
    command: Any, params: Any, options: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DIBS_HOME", str(tmp_path / "home"))
    with pytest.raises(errors.UserError) as caught:
        dibs.Sweep(command, params, **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "home").exists()


TRAIN = """
import os, sys, dibs
lr = dibs.params()["lr"]
if lr > 0.5 and not os.path.exists("mended"):
    sys.exit("the loss is nan")
dibs.report(loss=(lr - 0.1) ** 2, step=3)
"""


def test_a_sweep_can_be_run_ranked_and_run_again(user_queue: Bench) -> None:
    (user_queue.folder / "train.py").write_text(TRAIN)
    command = [sys.executable, "train.py", "{lr}"]
    sweep = dibs.Sweep(command, {"lr": [0.3, 0.1, 0.9]}, name="fit", metric="loss=nothing (x)", gpus=1)
    with pytest.raises(errors.NotFound):
        sweep.results()
    assert sweep.submit() == {"new": 3, "retried": 0, "done": 0}
    assert sweep.wait() == {"done": 2, "failed": 1}
    records = sweep.results()
    assert [(each["params"], each["state"]) for each in records] == [
        ({"lr": 0.3}, "done"), ({"lr": 0.1}, "done"), ({"lr": 0.9}, "failed"),
    ]  # fmt: skip
    assert records[1]["numbers"] == {"loss": 0, "step": 3}
    best = sweep.best()
    assert (best["params"], best["job"]) == ({"lr": 0.1}, sweep.jobs()[1].id)
    assert sweep.best("loss", goal="max")["params"] == {"lr": 0.3}
    with pytest.raises(errors.UserError, match='no run has reported "acc"; reported so far: loss, step'):
        sweep.best("acc")
    # Again: failed runs get a new attempt, finished ones stay; a larger space adds new ones.
    (user_queue.folder / "mended").touch()
    larger = dibs.Sweep(command, {"lr": [0.3, 0.1, 0.9, 0.2]}, name="fit", metric="loss=nothing (x)", gpus=1)
    assert larger.submit() == {"new": 1, "retried": 1, "done": 2}
    assert larger.wait() == {"done": 4}
    assert larger.submit() == {"new": 0, "retried": 0, "done": 4}
    assert [job.attempt for job in larger.jobs()] == [1, 1, 2, 1]
    with pytest.raises(errors.UserError, match="fit"):
        dibs.Sweep("echo {lr}", {"lr": [1]}, name="fit").submit()
    larger.cancel()
    assert repr(larger) == "<Sweep default/fit: 4 done>"


def test_a_timeout_of_wait_says_how_many_are_left(user_queue: Bench) -> None:
    sweep = dibs.Sweep("echo {lr}", {"lr": [1, 2]}, name="held", hold=True)
    sweep.submit()
    with pytest.raises(errors.TimedOut, match="2 of 2 runs are not finished after 0 s"):
        sweep.wait(timeout=0, held="wait")
    with pytest.raises(errors.OnlyHeld, match="2 jobs are held by you"):
        sweep.wait()
    with pytest.raises(errors.NotFound, match='no run of sweep held is done and has reported "loss"'):
        sweep.best("loss")
    with pytest.raises(errors.UserError, match="best expected the name of a metric"):
        sweep.best()
    sweep.cancel()
    assert sweep.wait() == {"cancelled": 2}


def test_a_dataframe_has_the_parameters_and_numbers(user_queue: Bench) -> None:
    sweep = dibs.Sweep("echo {state}", {"state": [1]}, name="table", gpus=0)
    sweep.submit()
    sweep.wait()
    (row,) = sweep.to_pandas().to_dict("records")
    assert (row["state"], row["param.state"]) == ("done", 1)


def test_a_search_in_python_runs_its_trials(user_queue: Bench) -> None:
    search = dibs.Sweep(
        "echo loss={x}", {"x": "uniform(1,2)"}, metric="loss=loss=(.*)", name="found", gpus=0,
        search="tpe", trials=3, minimize="loss",
    )  # fmt: skip
    assert len(search) == 3
    with pytest.raises(errors.UserError, match="not known in advance"):
        search.points()
    with pytest.raises(errors.UserError, match="not known in advance"):
        search.submit(again=True)
    assert search.submit()["new"] >= 1
    assert search.wait() == {"done": 3}
    numbers = [record["numbers"]["loss"] for record in search.results()]
    assert search.best()["numbers"]["loss"] == min(number for number in numbers if number is not None)
    assert search.submit() == {"new": 0, "retried": 0, "done": 3}


def test_a_search_with_a_wrong_option_names_the_keyword(user_queue: Bench) -> None:
    with pytest.raises(errors.UserError, match=r"search needs the number of runs\. Write trials 60"):
        dibs.Sweep("echo {x}", {"x": "uniform(1,2)"}, search="tpe", minimize="loss")
    with pytest.raises(errors.UserError, match='early_stop expected median or hyperband, got "x"'):
        dibs.Sweep("echo {x}", {"x": [1, 2]}, early_stop="x", minimize="loss")
