"""`dibs import`: the jobs of a GPUPeasy file, all of them or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import Bench

LIST = "one;;{0}/one.txt;;sh -c 'echo $DIBS_JOB_NAME; echo err >&2';;;\ntwo;;{0}/t{{w}}o.txt;;echo '2  x';;;"


def written(queue: Bench, name: str, text: str) -> str:
    """Write a file of jobs; return its path."""
    path = queue.folder / name
    path.write_text(text)
    return str(path)


def test_every_job_of_the_file_is_queued(queue: Bench, tmp_path: Path) -> None:
    done = queue.cli("import", "-P", "paper", "-g", "0", written(queue, "good.esy", LIST.format(tmp_path)))
    assert done.stderr == ""
    ids = [int(line) for line in done.stdout.split()]
    jobs = [queue.until(job_id) for job_id in ids]
    assert [(job["name"], job["project"], job["state"]) for job in jobs] == [
        ("one", "paper", "done"),
        ("two", "paper", "done"),
    ]
    assert (tmp_path / "one.txt").read_text() == "one\nerr\n"
    assert (tmp_path / "t{w}o.txt").read_text() == "2 x\n"


def test_a_dry_run_queues_nothing(queue: Bench, tmp_path: Path) -> None:
    before = queue.client.get("/v1/queue")["counts"]
    done = queue.cli("import", "--dry-run", "--json", "-", input=LIST.format(tmp_path))
    assert [job["name"] for job in json.loads(done.stdout)["jobs"]] == ["one", "two"]
    assert queue.client.get("/v1/queue")["counts"] == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected jobs such as NAME;;OUTPUT;;COMMAND;;;, got none"),
        ("a;;{0}/a;;true;;;b;;c", 'job 2: expected NAME;;OUTPUT;;COMMAND;;;, got "b;;c"'),
        ("a;;{0}/a;;echo 'x", "No closing quotation"),
        ("a;;{0}/same;;true;;;b;;{0}/same;;true", "a and b have the same output"),
        ("a;;{0}/same;;true;;;b;;{0}/./same;;true", "a and b have the same output"),
        ("a;;{0};;true", "exists already"),
        ("a;;{0}/a;;no-such-program-xyz 1", "job 1: command not found: no-such-program-xyz"),
    ],
)
def test_one_invalid_job_and_none_is_queued(queue: Bench, tmp_path: Path, text: str, told: str) -> None:
    before = queue.client.get("/v1/queue")["counts"]
    done = queue.cli("import", written(queue, "bad.esy", text.format(tmp_path)))
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert queue.client.get("/v1/queue")["counts"] == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["a.esy", "b.esy"], ["no-such-file.esy"], ["-n", "x", "a.esy"], ["/"]])
def test_invalid_arguments_are_a_one_line_error(queue: Bench, words: list[str]) -> None:
    done = queue.cli("import", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("dibs: ")
    assert done.stderr.count("\n") == 1
