"""How jobs, lists, GPUs and sweeps show in a REPL and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import dibs
from bench import Bench
from dibs.python_api import display

NASTY = "<script>alert(1)</script>\x1b[2J"


class Cells(HTMLParser):
    """Collects the texts of the cells of a table, and the tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        assert not attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_job_shows_its_name_state_and_gpus(queue: Bench) -> None:
    job = dibs.Job(queue.long_job(gpus=2, name="vit"))
    shown = repr(job)
    indices = ", ".join(map(str, job.data["gpu_indices"]))
    assert shown == f"<Job {job.id} vit running on GPUs {indices}>"
    job.cancel(grace=0)
    job.wait()
    assert repr(job) == f"<Job {job.id} vit cancelled>"
    failed = dibs.submit("exit 3", gpus=0, name="bad")
    failed.wait()
    assert repr(failed) == f"<Job {failed.id} bad failed (exit code 3)>"


def test_a_job_shows_its_state_of_now(queue: Bench) -> None:
    job = dibs.submit("true", gpus=0, hold=True, name="x")
    assert repr(job) == f"<Job {job.id} x held>"
    queue.cancel(job.id)
    assert repr(job) == f"<Job {job.id} x cancelled>"


def test_html_has_no_markup_of_others(queue: Bench) -> None:
    many = dibs.submit_many([f"echo '{NASTY}'"] * 2, gpus=0, hold=True, name=NASTY)
    for shown in (many[0]._repr_html_(), many._repr_html_()):
        cells = Cells(shown)
        assert cells.tags == {"table", "thead", "tbody", "tr", "th", "td"}
        assert "<script>alert(1)</script>\\e[2J" in cells.texts
    assert "\x1b" not in repr(many) + repr(many[0])


def test_a_long_list_is_cut(queue: Bench) -> None:
    many = dibs.submit_many(["true"] * 60, gpus=0, hold=True, name="n")
    shown = repr(many)
    assert shown.splitlines()[0] == f"[<Job {many[0].id} n held>,"
    assert shown.splitlines()[-1] == " ... 10 more]"
    assert "60 jobs, the first 50 are shown" in Cells(many._repr_html_()).texts
    many.cancel()


def test_gpus_show_who_holds_them(queue: Bench) -> None:
    job = dibs.Job(queue.long_job(gpus=1))
    index = job.data["gpu_indices"][0]
    gpus = dibs.gpus()
    assert f"job {job.id}>" in repr(gpus).splitlines()[index]
    assert " free>" in repr(gpus)
    texts = Cells(gpus._repr_html_()).texts
    assert {"GPU", "memory", "held by", "leased"} <= {*texts}
    assert gpus[index]["index"] == index
    job.cancel(grace=0)


def test_a_sweep_shows_its_points_and_then_its_states(queue: Bench) -> None:
    sweep = dibs.Sweep("echo {lr}", {"lr": [0.1, 0.2]}, name="shown", gpus=0)
    assert repr(sweep) == "<Sweep default/shown: 2 points>"
    assert Cells(sweep._repr_html_()).texts == ["default/shown: 2 points", "lr", "0.1", "0.2"]
    sweep.submit()
    sweep.wait()
    assert repr(sweep) == "<Sweep default/shown: 2 done>"


def test_without_a_daemon_nothing_is_started(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_HOME", f"{tmp_path}/none")
    assert repr(dibs.Job(7)) == "<Job 7>"
    assert "<td>7</td>" in dibs.Job(7)._repr_html_()
    assert repr(dibs.JobList([dibs.Job(7)])) == "[<Job 7>]"
    assert repr(dibs.Sweep("echo {a}", {"a": [1]}, name="s")) == "<Sweep default/s: 1 points>"
    assert repr(dibs.JobList()) == "[]"


@pytest.mark.parametrize(
    ("value", "shown"), [(None, ""), (0.1 + 0.2, "0.3"), ("a\nb", "a\\nb"), ("x" * 100, "x" * 79 + "…"), (True, "True")]
)
def test_a_cell_is_one_short_line(value: object, shown: str) -> None:
    assert display.cell(value) == shown
