"""The GPUs as lines: bars, holders, and everybody on the machine."""

from __future__ import annotations

import pytest

from dibs.cli.top import gpu_lines, lines
from dibs.cli.top.snapshot import Snapshot, active_jobs
from top_source import NOW, ago, gpu, holder, job, snapshot


def shown(found: Snapshot, width: int = 80, marks: lines.Marks = lines.UNICODE) -> list[str]:
    """Return the texts of the lines."""
    return [lines.plain(line) for line in gpu_lines.gpu_lines(found, width, NOW, marks)]


def test_a_job_has_bars_its_time_and_its_limit() -> None:
    busy = gpu(0, "leased", utilization=50, memory_used=6 * 2**30, holders=[holder(job="5")])
    found = snapshot(job(5, name="vit", time_limit_s=7200.0), gpus=[busy, gpu(1)])
    assert shown(found) == [
        " 0 █████·····  50%  ██▌······· 6/24G    job 5 vit 30m00s/2h00m",
        " 1 ··········   0%  ·········· 0/24G    free",
    ]


def test_without_unicode_every_character_is_ascii() -> None:
    busy = gpu(0, "leased", utilization=50, memory_used=6 * 2**30, holders=[holder("bob")])
    (text,) = shown(snapshot(gpus=[busy]), marks=lines.ASCII)
    assert text == " 0 #####.....  50%  ##........ 6/24G    bob pid 77 20m00s"
    assert text.isascii()


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (gpu(0, "leased", holders=[holder("bob", "12")]), "bob pid 77 20m00s"),
        (gpu(0, "leased", holders=[holder("me", "5")], is_idle=True, unused_since=ago(minutes=40)), "idle 40m00s"),
        (gpu(0, "drained", drained="fan"), "drained: fan"),
        (gpu(0, "unhealthy", fault="Xid 79"), "unhealthy: Xid 79"),
        (gpu(0, reserved_for=7), "reserved for job 7"),
        (gpu(0, reservation={"user": "ann", "to": "2026-11-18T12:00:00Z"}), "reserved for ann until "),
        (gpu(0, blocked={"text": "bob (pid 3) stopped", "fix": ""}), "blocked: bob (pid 3) stopped"),
        (gpu(0, "leased", holders=[holder("e\x1b[2Jvil")]), "e\\e[2Jvil"),
    ],
)  # fmt: skip
def test_each_state_says_who_or_why(device: dict[str, object], text: str) -> None:
    assert text in gpu_lines.holder(snapshot(job(5)), device, NOW)  # type: ignore[arg-type]


def test_a_narrow_terminal_cuts_and_shows_it() -> None:
    busy = gpu(0, "leased", holders=[holder("a-user-with-a-very-long-name")])
    (text,) = shown(snapshot(gpus=[busy]), width=48)
    assert len(text) == 48
    assert text.endswith("…")


def test_a_driver_that_is_not_known_has_empty_bars() -> None:
    (text,) = shown(snapshot(gpus=[gpu(0, utilization=None, memory_used=None)]))
    assert text.split() == ["0", "free"]


def test_a_problem_is_shown() -> None:
    found = snapshot()
    found.gpus["problem"] = "the driver is not loaded"
    assert shown(found) == ["the driver is not loaded"]


def test_everybody_on_the_machine_is_listed() -> None:
    devices = [
        gpu(0, "leased", holders=[holder("bob", "12", vram=6 * 2**30, evictable=True)]),
        gpu(1, "leased", holders=[holder() | {"pid": None, "user": None}]),
    ]
    line = {"user": "ann", "pid": 9, "gpus": 4, "vram": None, "devices": [], "since": ago(seconds=90)}
    found = snapshot(gpus=devices, waiters=[line])
    texts = [lines.plain(one).split() for one in gpu_lines.people_lines(found, 80, NOW, lines.UNICODE)]
    assert texts[1] == ["0", "bob", "77", "12", "20m00s", "6G,", "evictable"]
    assert texts[2] == ["1", "?", "?", "-", "20m00s", "all"]
    assert texts[-1] == ["1", "ann", "9", "4", "1m30s", "all"]


def test_an_idle_machine_says_so() -> None:
    texts = [lines.plain(one) for one in gpu_lines.people_lines(snapshot(), 80, NOW, lines.UNICODE)]
    assert texts == ["nobody holds a GPU", "", "nobody waits for a GPU"]


def test_a_gpu_names_its_job_while_a_search_lists_others() -> None:
    running, failed = job(7, name="vit"), job(3, "failed")
    listed = snapshot(running, failed, gpus=[gpu(0, "leased", holders=[holder(job="7")])])
    assert listed.jobs is not None
    active = active_jobs(listed.jobs, {})
    assert [*active] == [7]
    searched = snapshot(failed, gpus=listed.gpus["gpus"], active=active)
    assert "job 7 vit 30m" in gpu_lines.holder(searched, searched.gpus["gpus"][0], NOW)
    # It has ended meanwhile.
    assert searched.jobs is not None
    over = snapshot(job(7, "done")).jobs
    assert over is not None
    assert active_jobs(over, active) == {}
