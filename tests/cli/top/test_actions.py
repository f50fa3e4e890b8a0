"""What a key does to a job: the request, its question, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from dibs.cli.top import actions
from dibs.cli.top.actions import Request
from dibs.errors import UserError
from top_source import job


def test_cancelling_asks_first_and_names_the_job() -> None:
    assert actions.cancel(job(5, name="vit")) == Request("cancel", 5, "Stop job 5 vit (running)?")
    assert actions.cancel(job(6, "queued")).question == "Cancel job 6 job6 (queued)?"


def test_a_failed_job_is_retried_at_once_and_a_good_one_after_a_question() -> None:
    assert actions.retry(job(5, "failed")) == Request("retry", 5)
    again = actions.retry(job(6, "done"))
    assert (again.more, bool(again.question)) == ({"done": True}, True)


def test_hold_releases_what_is_held() -> None:
    assert (actions.hold(job(5, "queued")).verb, actions.hold(job(6, "held")).verb) == ("hold", "unhold")


def test_a_job_moves_before_the_one_above_it_of_the_same_priority() -> None:
    listed = [job(1), job(2, "queued", priority=9), job(3, "queued"), job(4, "queued")]
    assert actions.move_up(listed[3], listed).more == {"to": "before", "other": 3}
    with pytest.raises(UserError, match="job 3 is the first of its priority"):
        actions.move_up(listed[2], listed)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: actions.cancel(job(5, "done")), "job 5 is done: there is nothing to cancel."),
        (lambda: actions.retry(job(5)), "job 5 is running: only a finished job can be retried."),
        (lambda: actions.hold(job(5)), "job 5 is running: only a waiting job can be held."),
        (lambda: actions.move_up(job(5), []), "job 5 is running: only a waiting job can be moved."),
        (lambda: actions.typed("'"), "expected a command line, got an error: No closing quotation."),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(refused: Any, said: str) -> None:
    with pytest.raises(UserError) as refusal:
        refused()
    assert refusal.value.line() == said


def test_the_answer_fits_one_line() -> None:
    done: Any = {"changed": [{"id": 5, "state": "held"}], "unchanged": [], "note": "it waits"}
    assert actions.told(Request("hold", 5), done) == "job 5: held; it waits"
    left: Any = {"changed": [], "unchanged": [{"id": 5, "state": "done", "why": "it is done"}]}
    with pytest.raises(UserError, match="job 5: it is done"):
        actions.told(Request("cancel", 5), left)
