"""Submissions with a key, and submissions to an earlier batch."""

import pytest

import build
from dibs.errors import UserError
from dibs.http_api.schemas import submission
from dibs.jobqueue import control
from dibs.jobqueue.validation import Rules, Submission


def submit(desk, count=1, **rules):
    turn = desk.new_turn()
    with desk.store.batch():
        return control.submit(turn, [Submission(build.spec()) for _ in range(count)], Rules(**rules))


def test_a_submission_repeated_with_its_key_returns_the_same_jobs(desk):
    """The first answer may have been lost: the client can safely repeat the request."""
    first = submit(desk, 3, key="abc")
    assert submit(desk, 3, key="abc").ids == first.ids
    assert submit(desk, 1, key="abd").ids == [4]
    assert desk.rows()["jobs"] == 4


def test_a_submission_without_a_key_is_a_new_one_each_time(desk):
    assert (submit(desk).ids, submit(desk).ids) == ([1], [2])


def test_later_jobs_may_join_a_batch_and_its_rules(desk):
    first = submit(desk, 2, at_once=1, key="abc")
    later = submit(desk, 3, batch=first.batch)
    assert first.batch == later.batch != 0
    assert desk.store.batch_tally(first.batch).size == 5
    assert {desk.store.job(job_id).spec.batch for job_id in (*first.ids, *later.ids)} == {first.batch}
    assert submit(desk, 2, at_once=1, key="abc").batch == first.batch


@pytest.mark.parametrize("batch", [7, 2**63])
def test_an_unknown_batch_cannot_be_joined(desk, batch):
    with pytest.raises(UserError, match="batch expected the id of a batch"):
        submit(desk, batch=batch)
    assert desk.rows()["jobs"] == 0


def test_a_key_is_kept_as_long_as_one_of_its_jobs(desk):
    first, _ = submit(desk, 2, key="abc").ids
    submit(desk, 1, key="other")
    assert tidied(desk, first) == []
    assert desk.store.submission_keys() == {"abc", "other"}
    assert tidied(desk, first + 1) == ["abc"]
    assert desk.store.submission_keys() == {"other"}
    assert desk.store.submission("abc") == []


def tidied(desk, job_id):
    """Delete a job; return the keys that are released by this."""
    desk.do(control.cancel, str(job_id))
    with desk.store.batch():
        desk.store.forget([job_id], False)
        return desk.store.tidy()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"key": "../x"}, "key expected 1 to 64 letters and digits"),
        ({"key": ""}, "key expected"),
        ({"key": 7}, "key expected"),
        ({"key": "a" * 65}, "key expected"),
        ({"batch": 0}, "batch expected a whole number from 1 up"),
        ({"batch": 1, "at_once": 2}, "cannot be combined with"),
    ],
)
def test_an_invalid_key_or_batch_is_refused(body, says):
    with pytest.raises(UserError, match=says):
        submission.rules({"jobs": [{"command": "true"}], **body})


def test_changes_since_an_event_list_each_job_once(desk):
    submit(desk, 3)
    seen = desk.store.last_event()
    assert [glance.id for glance in desk.store.changes(0, seen)] == [1, 2, 3]
    assert desk.store.changes(seen, seen) == []
    desk.do(control.hold, "2")
    desk.do(control.cancel, "2")
    (glance,) = desk.store.changes(seen, desk.store.last_event())
    assert (glance.id, glance.word, glance.attempt, glance.is_finished) == (2, "cancelled", 1, True)
