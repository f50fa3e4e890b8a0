"""What Ray is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dibs import errors
from dibs.engines import ray_requests
from dibs.engines.protocol import Needs, Node, Start

NODES = [
    Node("n1", True, 4, 1, "A100", 8, 64 << 30),
    Node("n2", True, 2, 2, "H100", 32, 16 << 30),
    Node("n3", False, 8, 0, "V100", 8, 64 << 30),
]


ANY = Needs()


def start(needs: Needs = ANY, argv: tuple[str, ...] = ("true",), output: str = "/dev/null") -> Start:
    return Start("dibs-a1b2c3-1.1.1", "/f", argv, needs, 0, "name", output, 0)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(gpus=4), None),
        (Needs(gpus=8), None),
        (Needs(gpus=9), "it needs 9 GPUs of one node; the largest of lab has 8"),
        (Needs(cpus=99), "it needs 99 cores of one node; the largest of lab has 32"),
        (Needs(mem=1 << 40), "it needs 1T of one node; the largest of lab has 64G"),
        (Needs(gpus=4, cpus=32), "no single node of lab has all"),
        (Needs(gpus=1, gpu_type="a100"), None),
        (Needs(gpus=1, gpu_type="*100"), None),
        (Needs(gpus=5, gpu_type="a100"), "the largest of lab has 4"),
        (Needs(gpus=1, gpu_type="B200"), 'lab has no GPU of type "B200"; its types are: A100, H100, V100'),
    ],
)
def test_what_no_node_can_ever_run_is_refused(needs: Needs, words: str | None) -> None:
    why = ray_requests.refuse("lab", needs, NODES)
    assert why is None if words is None else words in (why or "")


def test_of_an_unknown_cluster_nothing_is_refused() -> None:
    assert ray_requests.refuse("lab", Needs(gpus=99), []) is None


def test_a_job_without_gpus_takes_a_core_so_that_it_is_counted() -> None:
    assert ray_requests.resources(Needs(), NODES).cpus == 1
    assert ray_requests.resources(Needs(gpus=1), NODES).cpus == 0
    assert ray_requests.resources(Needs(gpus=1, cpus=3), NODES).cpus == 3


def test_of_several_types_that_fit_the_one_with_most_free_gpus_is_asked_for() -> None:
    assert ray_requests.resources(Needs(gpus=1, gpu_type="*100"), NODES).custom == {"accelerator_type:H100": 0.001}


def test_options_have_the_names_of_rays_own_program() -> None:
    text = """--entrypoint-num-cpus 4 --entrypoint-resources='{"ssd": 1}' --entrypoint-label-selector '{"rack": "4"}'"""
    found = ray_requests.resources(Needs(gpus=2, options=text), NODES)
    assert found == ray_requests.Resources(2, 4, 0, {"ssd": 1}, {"rack": "4"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-p gpu", 'expected some of --entrypoint-num-cpus, .*, got "-p"'),
        ("--entrypoint-num-cpus", "expected a value after --entrypoint-num-cpus"),
        ("--entrypoint-num-cpus=nan", "--entrypoint-num-cpus expected a number"),
        ("--entrypoint-resources [1]", "expected a JSON object"),
        ("--entrypoint-memory 'x", "expected balanced quotes"),
    ],
)
def test_wrong_options_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(errors.UserError, match=words):
        ray_requests.refuse("lab", Needs(options=text), [])


def test_any_words_reach_the_process_through_rays_shell(tmp_path: Path) -> None:
    output = tmp_path / 'it\'s an "output" $HOME'
    words = ("printf", "%s|", "a b", "q\"'$ \nz", "*", ";exit 9")
    body = ray_requests.body(start(argv=words, output=str(output)), ray_requests.resources(Needs(), []))
    subprocess.run(["sh", "-c", str(body["entrypoint"])], check=True)
    assert output.read_text() == "a b|q\"'$ \nz|*|;exit 9|"


def test_only_what_is_asked_for_is_sent() -> None:
    body = ray_requests.body(start(Needs(gpus=2)), ray_requests.resources(Needs(gpus=2), []))
    assert body["submission_id"] == "dibs-a1b2c3-1.1.1"
    assert (body["entrypoint_num_gpus"], body["entrypoint_num_cpus"]) == (2, 0)
    assert not {"entrypoint_memory", "entrypoint_resources", "entrypoint_label_selector"} & set(body)


def test_the_script_is_a_command_of_rays_own_program() -> None:
    needs = Needs(gpus=1, options="--entrypoint-resources '{\"ssd\": 1}'")
    text = ray_requests.script("http://127.0.0.1:8265", start(needs), ray_requests.resources(needs, []))
    assert "ray job submit --no-wait --address=http://127.0.0.1:8265 --submission-id=dibs-a1b2c3-1.1.1" in text
    assert text.endswith("-- true\n")
