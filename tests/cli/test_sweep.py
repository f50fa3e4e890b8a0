"""`dibs sweep`, `map` and `results` on the command line: what is refused before anything is done, and whole sweeps."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import Bench
from dibs.cli import main as cli
from dibs.cli import results_table, screen
from dibs.cli.results_spool import Spool
from dibs.cli.screen import Screen
from dibs.cli.verbs import map as mapping
from dibs.cli.verbs import sweep
from dibs.client import sweep_drafts
from dibs.errors import UserError
from dibs.submission import options
from dibs.sweeps import ranking
from dibs.sweeps.ranking import Run


def parse(*words: str) -> options.Args:
    return options.parse("sweep", sweep.OPTIONS, words)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(*words: str) -> list[str]:
    asked = sweep.read(parse(*words))
    return list(asked.writer.lines(asked.points))


# -- arguments of a sweep -----------------------------------------------------------------------------------------


def test_a_parameter_takes_all_words_up_to_the_next_option(here: Path) -> None:
    assert lines("t {a} {b}", "-p", "a", "1", "-2", "-p", "b=x,y", "-g", "0") == ["t 1 x", "t 1 y", "t -2 x", "t -2 y"]


def test_options_may_follow_the_command_and_an_argument_list_comes_after_dashes(here: Path) -> None:
    assert lines("-p", "a", "1", "2", "--name", "n", "--", "true", "{a}") == ["true 1", "true 2"]
    assert lines("-p", "a=1", "true {a}", "--name", "n") == ["true 1"]


@pytest.mark.parametrize("program", ["train.py", "src/train.py"])
def test_a_wandb_file_without_a_name_is_named_after_its_program(here: Path, program: str) -> None:
    text = f"program: {program}\nmethod: grid\nparameters:\n  lr: {{values: [1, 2]}}\n"
    (here / "sweep.yaml").write_text(text)
    (here / "named.yaml").write_text(f"name: mine\n{text}")
    (here / "other.yaml").write_text(text.replace("train", "test"))
    first = sweep.read(parse("sweep.yaml")).name
    assert first.startswith("train.py-")
    assert sweep.read(parse("named.yaml")).name == "mine"
    assert sweep.read(parse("other.yaml")).name.startswith("test.py-")
    assert sweep.read(parse("sweep.yaml", "--", "true", "{lr}")).name.startswith("true-")


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_two_runs_with_one_folder_are_refused_before_anything_is_queued(bench: Bench, more: tuple[str, ...]) -> None:
    words = ("true {lr} {seed}", "-p", "lr", "0.1", "-p", "seed", "1", "2", "--dir")
    done = bench.cli("sweep", *words, "runs/{lr}", *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'points 0 and 1 have the same folder "runs/0.1". Put every parameter that differs into --dir' in done.stderr
    for template in ("runs/{lr}-{seed}", "runs/{index}"):
        assert bench.cli("sweep", *words, template, *more, "-n", f"n{template[5:9]}").returncode == 0


def test_a_later_run_does_not_take_the_folder_of_an_earlier_one(bench: Bench) -> None:
    words = ("true {seed}", "-g", "0", "-n", "s", "--dir", "runs/x", "-p", "seed")
    assert bench.cli("sweep", *words, "1").returncode == 0
    assert bench.cli("sweep", *words, "1", "--again").returncode == 0
    done = bench.cli("sweep", *words, "2")
    assert done.returncode == 2
    assert "point 0 has the same folder as job 1, which has other parameters: " in done.stderr
    assert len(bench.jobs("sweep:s")) == 1


def test_the_default_name_depends_only_on_command_and_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep.read(parse("true {a}", "-p", "a", "1")).name
    assert first.startswith("true-")
    assert sweep.read(parse("true {a}", "-p", "a", "1", "2")).name == first
    assert sweep.read(parse("true  {a}", "-p", "a", "1")).name != first
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert sweep.read(parse("true {a}", "-p", "a", "1")).name != first


def test_a_file_gives_what_the_command_line_does_not(here: Path) -> None:
    (here / "s.yaml").write_text(
        "command: true {lr}\nname: yam\nproject: p\ngpus: 2\ntime: 2h\n"
        "metric: {name: acc, goal: maximize, from: 'a=(.)'}\n"
        "jobs: 3\nhalt: 7\ndir: out/{lr}\nparameters:\n  lr: [1e-3, 0.1]\n"
    )
    asked = sweep.read(parse("s.yaml", "-t", "1h"))
    assert (asked.name, asked.project) == ("yam", "p")
    told = asked.defaults
    assert (told["gpus"], told["time_limit_s"], told["metric"]) == (2, 3600.0, {"acc": "a=(.)"})
    body = sweep_drafts.request(asked)
    assert (body["at_once"], body["halt_after"], body["goal"], body["dir"]) == (3, 7, "maximize", "out/{lr}")
    assert list(asked.writer.lines(asked.points)) == ["true 1e-3", "true 0.1"]


def test_a_csv_file_is_one_run_per_row_and_needs_a_command(here: Path) -> None:
    (here / "s.csv").write_text("lr,bs\n0.1,32\n0.2,64\n")
    assert lines("s.csv", "--", "true", "{lr}", "{bs}") == ["true 0.1 32", "true 0.2 64"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["true {a}"], "expected parameters, got none"),
        (["-p", "a", "1"], "expected a command, got none"),
        (["-p", "a", "1", "true {a}"], "was read as a value: put it before -p"),
        (["true {b}", "-p", "a", "1"], "unknown parameter {b}"),
        (["true", "-p", "a", "1"], "the parameter a is not used"),
        (["true {a}", "-p", "a"], "-p expected values for the parameter a"),
        (["true {a}", "-p", "a=uniform(0,1)"], "set the number of points with --sample"),
        (["true {a}", "-p", "a", "1", "1"], "has the value 1 twice"),
        (["true", "{a}", "-p", "a", "1"], "expected the command as one string"),
        (["true {a}", "-p", "a", "1", "--", "true", "{a}"], "expected one command"),
        (["missing.yaml"], "cannot be read"),
        (["-p", "a", "1", "--", "no-such-program", "{a}"], "command not found: no-such-program"),
        (["true {a} {dir}", "-p", "a", "1"], "no folder is given"),
        (["true {a}", "-p", "a", "1", "--dir", "x/{b}"], "expected placeholders"),
    ],
)
def test_an_invalid_sweep_is_refused_before_the_daemon_is_contacted(
    here: Path, words: list[str], expected: str
) -> None:
    with pytest.raises(UserError) as refused:
        sweep.read(parse(*words))
    assert expected in refused.value.line()


def test_the_summary_always_has_new_retried_and_done() -> None:
    assert sweep.summary(500, {"retried": 3, "done": 497}) == "500 points: 0 new, 3 retried, 497 done"
    assert sweep.summary(1, {"queued": 1}) == "1 point: 0 new, 0 retried, 0 done, 1 queued"


def test_print_streams_all_commands_without_a_daemon(bench: Bench) -> None:
    printed = bench.cli("sweep", "--print", "true {a} {b}", "-p", "a=range(3)", "-p", "b=range(1000)")
    assert printed.returncode == 0, printed.stderr
    found = printed.stdout.splitlines()
    assert (len(found), found[0], found[-1]) == (3000, "true 0 0", "true 2 999")
    assert bench.pid() is None


# -- map ----------------------------------------------------------------------------------------------------------


def test_map_makes_one_job_per_argument_as_argument_list_or_shell_command(here: Path) -> None:
    def jobs(*words: str) -> object:
        body = mapping.read(options.parse("map", mapping.OPTIONS, words, takes_command=True))
        return body.get("commands") or body.get("jobs")

    assert jobs("true", "{}", ":::", "a b", "c") == [{"argv": ["true", "a b"]}, {"argv": ["true", "c"]}]
    assert jobs("true {1} {2} # {#}", ":::", "a", "b", ":::+", "c", "d") == ["true a c # 1", "true b d # 2"]


def test_map_queues_one_batch_and_prints_its_ids(bench: Bench) -> None:
    printed = bench.cli("map", "-j", "1", "echo", "{}-{#}", ":::", "a", "b c")
    assert (printed.returncode, printed.stdout) == (0, "1\n2\n"), printed.stderr
    finished = bench.wait_all()
    assert [bench.log(job["id"]) for job in finished] == ["a-1\n", "b c-2\n"]
    assert {job["sweep"] for job in finished} == {None}
    assert len({job["batch"] for job in finished}) == 1


@pytest.mark.parametrize("words", [["true"], [":::", "a"], ["true", ":::"], ["true", "{3}", ":::", "a"]])
def test_map_refuses_invalid_arguments(bench: Bench, words: list[str]) -> None:
    refused = bench.cli("map", *words)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert bench.pid() is None


# -- whole sweeps -------------------------------------------------------------------------------------------------

TRAIN = """
import json, os, sys
params = json.loads(os.environ["DIBS_PARAMS"])
lr, seed = float(sys.argv[1]), int(sys.argv[2])
assert params == {"lr": lr, "seed": seed}, params
assert os.path.isdir(os.environ["DIBS_RUN_DIR"])
with open(os.environ["DIBS_REPORT"], "a") as file:
    file.write(json.dumps({"loss": lr + seed / 100}) + "\\n")
print("accuracy:", 1 - lr)
"""


@pytest.fixture
def trained(bench: Bench) -> Bench:
    """A bench with a sweep that has ended."""
    (bench.folder / "train.py").write_text(TRAIN)
    made = bench.cli(*sweep_words())
    assert (made.returncode, made.stdout) == (0, "6 points: 6 new, 0 retried, 0 done\n"), made.stderr
    bench.wait_all()
    return bench


def sweep_words(*more: str) -> list[str]:
    command = f"{sys.executable} train.py {{lr}} {{seed}} && echo done > {{dir}}/end"
    return ["sweep", command, "-p", "lr", "0.2", "0.1", "-p", "seed=range(3)", "--name", "vit", "--dir",
            "runs/{lr}-{seed}", "--metric", "accuracy=accuracy: ([0-9.]+)", "--goal", "max", *more]  # fmt: skip


def read_json(answer: subprocess.CompletedProcess[str]) -> object:
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_results_have_parameters_states_and_metrics_with_the_best_first(trained: Bench) -> None:
    table = list(csv.DictReader(io.StringIO(trained.cli("results", "vit", "--csv").stdout)))
    assert [row["lr"] for row in table] == ["0.1"] * 3 + ["0.2"] * 3
    assert {row["state"] for row in table} == {"done"}
    assert (table[0]["accuracy"], table[-1]["accuracy"]) == ("0.9", "0.8")
    by_loss = trained.cli("results", "vit", "--metric", "loss", "--goal", "min", "-q", "-n", "1").stdout
    assert trained.job(int(by_loss))["params"] == {"lr": 0.1, "seed": 0}
    grouped = read_json(trained.cli("results", "vit", "--group", "seed", "--metric", "loss", "--json"))
    assert [group["n"] for group in grouped["groups"]] == [3, 3]
    assert grouped["groups"][-1]["numbers"]["loss"] == {"mean": pytest.approx(0.11), "sd": pytest.approx(0.01), "n": 3}
    assert trained.cli("results", "vit", "--md").stdout.startswith("| job | lr | seed | state | accuracy | loss |")
    assert trained.cli("results").stdout.split("\n")[1].split()[:5] == ["vit", "default", "6", "6", "done"]


def test_a_run_has_its_folder_its_index_and_its_parameters(trained: Bench) -> None:
    assert (trained.folder / "runs" / "0.1-2" / "end").read_text() == "done\n"
    job = trained.jobs("sweep:vit")[-1]
    assert (job["sweep"], job["index"], job["params"], job["name"]) == ("vit", 5, {"lr": 0.1, "seed": 2}, "vit-5")
    assert job["dir"] == str(trained.folder / "runs" / "0.1-2")


def test_a_finished_sweep_run_again_has_nothing_to_do(trained: Bench) -> None:
    assert trained.cli(*sweep_words()).stdout == "6 points: 0 new, 0 retried, 6 done\n"
    assert len(trained.jobs()) == 6
    told = read_json(trained.cli(*sweep_words("--again", "--json")))
    assert (told["retried"], told["new"], told["done"]) == (6, 0, 0)
    assert {job["attempt"] for job in trained.wait_all()} == {2}


def test_results_are_kept_when_the_jobs_are_cleaned(trained: Bench) -> None:
    trained.cli("results", "vit")
    assert trained.cli("clean", "sweep:vit", "-y").returncode == 0
    assert not any(trained.client.get("/v1/queue")["counts"].values())
    kept = read_json(trained.cli("results", "vit", "--json"))
    assert [run["numbers"]["accuracy"] for run in kept["runs"]] == [0.9] * 3 + [0.8] * 3
    assert trained.cli(*sweep_words()).stdout == "6 points: 0 new, 0 retried, 6 done\n"


def test_the_same_name_with_another_command_is_exit_code_2(trained: Bench) -> None:
    refused = trained.cli("sweep", "true {lr}", "-p", "lr", "1", "--name", "vit")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert len(trained.jobs()) == 6


def test_a_dry_run_shows_the_first_commands_and_queues_nothing(bench: Bench) -> None:
    shown = bench.cli("sweep", "true {a}", "-p", "a=range(100)", "--name", "n", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("100 points of n, a new sweep; nothing was submitted.\n  true 0\n")
    assert "... and 95 more" in shown.stdout
    assert bench.client.get("/v1/sweeps") == {"sweeps": []}


def test_an_impossible_sweep_is_not_stored(bench: Bench) -> None:
    refused = bench.cli("sweep", "true {a}", "-p", "a", "1", "-g", "99")
    assert (refused.returncode, refused.stderr.count("\n")) == (69, 1)
    assert bench.client.get("/v1/sweeps") == {"sweeps": []}


def test_results_of_an_unknown_sweep_are_an_error(bench: Bench) -> None:
    missing = bench.cli("results", "nope")
    assert (missing.returncode, missing.stderr) == (3, 'dibs: there is no sweep "nope". `dibs results` lists them.\n')


def test_the_output_path_may_contain_parameters(bench: Bench) -> None:
    made = bench.cli("sweep", "echo {a}", "-p", "a", "x", "y", "-o", "out-{a}-{index}.log")
    assert made.returncode == 0, made.stderr
    bench.wait_all()
    assert (bench.folder / "out-y-1.log").read_text() == "y\n"
    refused = bench.cli("sweep", "echo {a}", "-p", "a", "x", "-o", "out-{b}.log", "--name", "n")
    assert refused.returncode == 2
    assert "{b}" in refused.stderr


def test_the_limit_of_a_sweep_can_be_changed_later(bench: Bench) -> None:
    bench.cli("sweep", "sleep 60 # {a}", "-p", "a=range(4)", "--name", "n", "-j", "1")
    bench.until(1, "started")
    assert bench.cli("edit", "sweep:n", "-j", "2").returncode == 0
    bench.until(2, "started")
    assert [job["state"] for job in bench.jobs("sweep:n")][2:] == ["queued", "queued"]


# -- tables -------------------------------------------------------------------------------------------------------


def test_a_table_fits_the_terminal_even_with_long_values() -> None:
    runs = [Run({"model": "x" * 100, "lr": 0.1 / 3}, "done", {"loss": 1 / 3, "note": 2.0}, 1, 0)]
    fitted = list(results_table.fitted(Screen(True, False, 60), results_table.of_runs(runs, "loss")))
    assert max(len(line) for line in fitted) <= 60
    assert "0.333333" in fitted[1]


def test_a_parameter_that_a_run_does_not_have_is_an_empty_cell() -> None:
    runs = [Run({"a": 1}, "done", {}, 1, 0), Run({"b": 2}, "queued", {"loss": None}, 2, 1)]
    assert list(results_table.of_runs(runs, None).rows()) == [[1, 1, "", "done", ""], [2, "", 2, "queued", None]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_document_written_in_pieces_equals_the_whole(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{"job": n, "params": {"text": "two\nlines"}} for n in range(count)]
    pieces = "\n".join(results_table.document({"sweep": {"id": 1}}, "runs", iter(runs)))
    assert json.loads(pieces) == {"sweep": {"id": 1}, "runs": runs}
    if count:
        screen.print_json({"sweep": {"id": 1}, "runs": runs})
        assert capsys.readouterr().out == pieces + "\n"


def test_a_spool_returns_runs_in_any_order_repeatedly() -> None:
    with Spool("loss", ranking.MINIMIZE) as spool:
        losses: list[float | None] = [None, 3.0, 1.0, 2.0, 1.0]
        for index, loss in zip((4, 3, 2, 1, 0), losses, strict=True):
            numbers = {} if loss is None else {"loss": loss}
            spool.add({"params": {"x": index}, "state": "done", "numbers": numbers, "job": index + 1, "index": index})
        best = spool.best(None)
        assert [run.index for run in best] == [run.index for run in best] == [0, 2, 1, 3, 4]
        assert [run.index for run in spool.best(2)] == [0, 2]
        assert [run.index for run in spool.by_point()] == [0, 1, 2, 3, 4]
        assert list(spool.names) == ["loss"]


def test_sweep_map_and_results_are_verbs() -> None:
    assert {"sweep", "map", "results"} <= {*cli.VERBS}
