"""Rows of jobs, their order, the search and the first line of the screen."""

from __future__ import annotations

from dibs.cli.top import frame, job_rows, lines
from dibs.cli.top.snapshot import Snapshot, matches, unlisted
from top_source import NOW, ago, gpu, job, snapshot


def ids(found: Snapshot, search: str = "") -> list[int]:
    """Return the jobs of the rows, in their order."""
    return [row.id for row in job_rows.rows(found, search, NOW)]


def test_active_jobs_come_first_then_the_line_then_the_latest_ends() -> None:
    jobs = [
        job(1, "done", finished_at=ago(hours=2)), job(2, "failed", finished_at=ago(minutes=1)), job(3, "queued"),
        job(4, "queued", priority=5), job(5, "held"), job(6),
    ]  # fmt: skip
    assert ids(snapshot(*jobs)) == [6, 4, 3, 5, 2, 1]


def test_a_row_shows_the_reason_the_cause_or_the_command() -> None:
    failed = job(2, "failed", cause="exit", exit_code=3)
    rows = job_rows.rows(snapshot(job(1, time_limit_s=3600.0), failed, job(3, "queued")), "", NOW)
    assert [row.cells[3:] for row in rows] == [
        ("", "30m/1h00m", "train.py 1"),
        ("x1", "1h00m", "needs 1 GPU; none is free"),
        ("", "5m00s ago", "exit 3"),
    ]


def test_every_word_of_a_search_must_be_found() -> None:
    one = job(12, name="vit-large", tags=["paper"], command="python train.py --lr 0.1")
    for text in ("VIT", "12", "running paper", "lr 0.1", ""):
        assert matches(one, text), text
    assert not matches(one, "vit resnet")
    assert ids(snapshot(one, job(13)), "large") == [12]


def test_the_columns_fill_the_terminal() -> None:
    for width in (80, 120, 200):
        assert sum(job_rows.widths(width)) + 2 * len(job_rows.COLUMNS) == width - 1


def test_the_first_line_counts_jobs_and_has_the_clock() -> None:
    found = snapshot(job(1), job(2, "queued"), counts={"queued": 500})
    text = lines.plain(job_rows.head(found, "", 80, NOW, lines.UNICODE))
    assert text.startswith("dibs · box  1 running, 500 queued, 499 of them not listed")
    assert text.endswith(f"{NOW.astimezone():%H:%M:%S}")
    assert unlisted(found) == 499
    assert 'search "vit"' in lines.plain(job_rows.head(found, "vit", 80, NOW, lines.UNICODE))


def test_the_first_line_says_that_the_daemon_is_away() -> None:
    text = lines.plain(job_rows.head(snapshot(job(1), away="the daemon has ended"), "", 80, NOW, lines.UNICODE))
    assert text == "dibs · box  the daemon has ended"


def test_the_first_screen_fits_any_terminal() -> None:
    found = snapshot(*(job(number) for number in range(1, 200)), gpus=[gpu(index) for index in range(16)])
    for width, height in ((40, 10), (80, 24), (120, 40), (200, 60)):
        texts = [lines.plain(line) for line in frame.first(found, width, height, NOW, lines.UNICODE)]
        assert len(texts) <= height
        assert max(map(len, texts)) <= width
        assert any(text.startswith(" 1 ") and "train.py 1" in text[:width] for text in texts) or width < 80


def test_jobs_keep_their_lines_whatever_else_is_open() -> None:
    for height in range(14, 100):
        for gpus in (1, 8, 64):
            parts = frame.heights(height, gpus, is_log_open=True)
            assert sum(parts) <= height - 2 - frame.DETAIL_LINES - frame.LEAST_JOBS or height < 20


def test_no_gpu_is_left_out_without_a_word() -> None:
    assert frame.heights(24, 8, is_log_open=False).gpus == 8
    found = [((f"GPU {index}", ""),) for index in range(8)]
    assert frame.cut(found, 8, lines.UNICODE) == found
    for height in range(1, 8):
        shown = [lines.plain(line) for line in frame.cut(found, height, lines.UNICODE)]
        assert len(shown) == height
        assert shown[-1].endswith(f" {8 - height + 1} {'more ' if height > 1 else ''}GPUs")


def test_an_open_log_has_most_of_a_small_terminal() -> None:
    parts = frame.heights(24, 8, is_log_open=True)
    assert parts.log >= 10
    assert frame.heights(60, 8, is_log_open=True).gpus == 8


def test_without_a_job_the_next_step_is_named() -> None:
    assert "n submits one" in job_rows.detail(None, snapshot(), "")
    assert "Esc" in job_rows.detail(None, snapshot(job(1)), "nothing")
    assert job_rows.detail(None, snapshot(away="the daemon has ended"), "") == ""


def test_unicode_is_a_matter_of_the_locale() -> None:
    assert frame.has_unicode({"LANG": "en_US.UTF-8"})
    assert frame.has_unicode({"LANG": "C", "LC_ALL": "C.utf8"})
    assert not frame.has_unicode({"LANG": "en_US.UTF-8", "LC_ALL": "C"})
    assert not frame.has_unicode({})
