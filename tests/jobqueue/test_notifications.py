"""Which ends trigger a notification, and its text. Nothing is run here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import build
from dibs.jobqueue import notifications
from dibs.jobqueue.notifications import Event
from dibs.model import lifecycle
from dibs.model.jobs import Job
from dibs.store.writer import BatchTally

SETTING = "tell-me"


def ended(number: int = 1, code: int = 0, **wanted: Any) -> Job:
    """Return a job that ran for 90 seconds."""
    return build.lived(
        build.job(number, name="vit", **wanted),
        lifecycle.Placed(build.NOW, ()),
        lifecycle.Started(build.NOW, 77),
        lifecycle.Ended(build.NOW + 90_000, exit_code=code),
    )


def told(
    *over: Job, batch: BatchTally | None = None, is_empty: bool = False, default: str = ""
) -> list[tuple[Event, int, str]]:
    batches = {} if batch is None else {1: batch}
    return [(each.event, each.job.id, each.command) for each in notifications.due(over, batches, is_empty, default)]


def test_without_a_notify_command_nothing_is_sent() -> None:
    assert told(ended(), ended(2, 1), is_empty=True) == []
    assert told(ended(batch=1), batch=BatchTally(1, 1, 1, 0)) == []


def test_each_single_job_sends_one_notification_whatever_its_outcome() -> None:
    assert told(ended(3, notify="a"), ended(4, 1, notify="b")) == [(Event.FINISHED, 3, "a"), (Event.FINISHED, 4, "b")]


def test_the_setting_applies_to_all_jobs_and_the_jobs_own_command_comes_first() -> None:
    assert told(ended(3), ended(4, notify="own"), default=SETTING) == [
        (Event.FINISHED, 3, SETTING),
        (Event.FINISHED, 4, "own"),
    ]


def test_an_empty_queue_is_reported_to_the_setting_only() -> None:
    assert told(ended(3, notify="own"), is_empty=True) == [(Event.FINISHED, 3, "own")]
    assert told(ended(3, notify="own"), is_empty=True, default=SETTING) == [
        (Event.FINISHED, 3, "own"),
        (Event.EMPTY, 3, SETTING),
    ]


@pytest.mark.parametrize(
    ("bad_before", "codes", "finished", "expected"),
    [
        (0, [0, 0], 2, []),
        (0, [0, 1], 2, [(Event.FAILED, 2)]),
        (0, [1, 1], 2, [(Event.FAILED, 1)]),
        (1, [1, 0], 3, []),
        (0, [0, 1], 9, [(Event.FINISHED, 2)]),
        (3, [0, 0], 9, [(Event.FINISHED, 2)]),
    ],
)
def test_a_batch_sends_a_notification_at_its_first_failure_and_at_its_end(
    bad_before: int, codes: list[int], finished: int, expected: list[tuple[Event, int]]
) -> None:
    over = [ended(n, code, batch=1, notify="own") for n, code in enumerate(codes, 1)]
    bad = bad_before + sum(code != 0 for code in codes)
    found = told(*over, batch=BatchTally(9, finished, finished - bad, bad))
    assert [(event, job_id) for event, job_id, _ in found] == expected


@pytest.mark.parametrize(
    ("notice", "text"),
    [
        (notifications.Notice(Event.FINISHED, "x", ended(12)), "job 12 (vit) done after 1m30s"),
        (notifications.Notice(Event.FINISHED, "x", ended(12, 3)), "job 12 (vit) failed after 1m30s: exit code 3"),
        (
            notifications.Notice(Event.FAILED, "x", ended(12, 3), BatchTally(20, 4, 3, 1)),
            "job 12 (vit) failed after 1m30s: exit code 3, first failure in a batch of 20",
        ),
        (
            notifications.Notice(Event.FINISHED, "x", ended(12), BatchTally(20, 20, 18, 2)),
            "all 20 jobs of a batch have finished, 18 succeeded; last: job 12 (vit) done after 1m30s",
        ),
        (
            notifications.Notice(Event.EMPTY, "x", ended(12)),
            "the queue is empty; last: job 12 (vit) done after 1m30s",
        ),
        (
            notifications.Notice(
                Event.FINISHED, "x", build.lived(build.job(name="vit"), lifecycle.CancelAsked(build.NOW))
            ),
            "job 1 (vit) cancelled",
        ),
    ],
)
def test_one_line_summarizes_the_event(notice: notifications.Notice, text: str) -> None:
    assert notifications.sentence(notice) == text
    assert notifications.variables(notice, "host", "ada", "/log")["DIBS_TEXT"] == text


def test_the_text_is_one_clean_line_whatever_the_name_of_a_job() -> None:
    """It may become the subject of a mail, or reach a terminal."""
    job = replace(ended(), spec=replace(ended().spec, name="vit\r\nBcc: all\x1b]0;x\x07\x9b2J\u202e\udc80"))
    (notice,) = notifications.due([job], {}, False, SETTING)
    text = notifications.variables(notice, "host", "user", "/log")["DIBS_TEXT"]
    assert text.isprintable()
    assert text == notifications.sentence(notice)
    assert "vit\\r\\nBcc: all\\x1b]0;x\\x07" in text
