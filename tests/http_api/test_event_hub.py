"""The hub of the event streams: nothing is lost or sent twice, and a client that does not read delays nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import event_listener
from dibs.http_api import event_hub
from dibs.http_api.event_hub import Hub, Message, Stream
from event_listener import Ear

COUNTS = event_hub.message("counts", {"counts": {"queued": 1}})


def told(number: int, job: int = 1) -> Message:
    return Message(number, job, event_hub.message("job", {"job": job}, number))


def awake(top: int = 0) -> Hub:
    made = Hub()
    made.wake(top, COUNTS)
    return made


def join(to: Hub, job: int | None = None, ear: Ear | None = None) -> Ear:
    ear = ear or Ear()
    to.streams.add(Stream(ear, job, lambda: ear.ends.append(True)))
    return ear


def test_all_listeners_get_the_same_bytes_followed_by_the_counts() -> None:
    one = awake()
    ears = [join(one) for _ in range(3)]
    one.tell([told(1), told(2, job=7)], 2, COUNTS)
    assert ears[0].data == ears[1].data == ears[2].data
    assert [each.event for each in ears[0].heard()] == ["job", "job", "counts"]


def test_a_listener_to_one_job_gets_no_events_of_others() -> None:
    one = awake()
    all_of_it, seventh = join(one), join(one, job=7)
    one.tell([told(1), told(2, job=7), told(3, job=8)], 3, COUNTS)
    one.tell([told(4)], 4, COUNTS)
    one.tell_gpus(event_hub.message("gpus", {}))
    assert all_of_it.numbers() == [1, 2, 3, 4]
    assert [each.event for each in seventh.heard()] == ["job", "counts"]
    assert seventh.numbers() == [2]


def test_queue_and_devices_are_sent_only_when_they_change() -> None:
    one = awake()
    ear = join(one)
    one.tell([], 5, COUNTS)
    assert ear.data == b""
    paused = event_hub.message("counts", {"queue": {"paused": True}})
    one.tell([], 5, paused)
    one.tell([], 5, paused)
    for use in (1, 1, 2):
        one.tell_gpus(event_hub.message("gpus", {"gpus": use}))
    assert [(each.event, each.data) for each in ear.heard()] == [
        ("counts", {"queue": {"paused": True}}),
        ("gpus", {"gpus": 1}),
        ("gpus", {"gpus": 2}),
    ]


@pytest.mark.parametrize("top", [1, event_hub.HISTORY, event_hub.HISTORY + 1, 3 * event_hub.HISTORY])
def test_the_history_is_bounded_and_says_how_far_it_reaches(top: int) -> None:
    one = awake()
    for number in range(1, top + 1):
        one.tell([told(number)], number, COUNTS)
    first = max(0, top - event_hub.HISTORY)
    assert one.is_within(first)
    assert one.is_within(first - 1) == (top < event_hub.HISTORY)
    assert not one.is_within(top + 1)
    assert one.missed(first).count(b"id: ") == top - first
    assert one.missed(top) == b""


def test_an_extended_history_has_no_gaps_or_duplicates() -> None:
    """The table is read while the hub continues, and another listener may have asked for more."""
    one = awake(top=10)
    one.tell([told(11)], 11, COUNTS)
    one.prepend([told(8), told(10)], 7)
    one.prepend([told(5), told(6), told(8), told(10)], 4)
    assert one.floor == 4
    assert one.missed(4) == b"".join(told(number).text for number in (5, 6, 8, 10, 11))
    assert one.missed(8) == b"".join(told(number).text for number in (10, 11))


def test_after_too_many_events_all_listeners_are_reset() -> None:
    one = awake()
    ear, seventh = join(one), join(one, job=7)
    one.tell([told(1)], 1, COUNTS)
    one.skip(90_000, COUNTS)
    one.tell([told(90_001)], 90_001, COUNTS)
    assert [each.event for each in ear.heard()] == ["job", "counts", "reset", "counts", "job", "counts"]
    assert [(each.event, each.number) for each in seventh.heard()] == [("reset", 90_000), ("counts", None)]
    assert not one.is_within(1)


def test_a_listener_that_does_not_read_is_disconnected_when_too_much_waits() -> None:
    one = awake()
    slow, quick = join(one, ear=Ear(takes=False)), join(one)
    text = b"x" * (event_hub.MOST_WAITING // 2)
    for number in range(1, 6):
        one.tell([Message(number, 1, text)], number, COUNTS)
    assert slow.ends == [True]
    assert len(slow.held) < 2 * event_hub.MOST_WAITING
    assert quick.ends == []
    assert len(one.streams) == 1


def test_a_listener_that_reads_too_slowly_is_disconnected_after_a_while() -> None:
    one = awake()
    slow = join(one, ear=Ear(takes=False))
    one.sweep(0.0)
    one.beat()
    one.sweep(1.0)
    one.sweep(1.0 + event_hub.PATIENCE_S)
    assert slow.ends == []
    one.sweep(1.5 + event_hub.PATIENCE_S)
    assert slow.ends == [True]


def test_a_listener_that_caught_up_gets_the_full_time_again() -> None:
    one = awake()
    slow = join(one, ear=Ear(takes=False))
    one.beat()
    one.sweep(1.0)
    slow.held = b""
    one.sweep(20.0)
    one.beat()
    one.sweep(40.0)
    assert slow.ends == []


def test_a_disconnected_listener_is_removed() -> None:
    one = awake()
    gone = join(one, ear=Ear(is_gone=True))
    one.sweep(0.0)
    assert gone.ends == [True]
    assert not one.streams


def test_every_listener_gets_the_final_message_once() -> None:
    one = awake()
    ears = [join(one), join(one, job=3)]
    one.end_all()
    one.end_all()
    assert [ear.ends for ear in ears] == [[True], [True]]


HOSTILE = ["\n\nevent: reset\ndata: {}", "\r", "\x00", "\u2028", "a\nid: 7", ": no", "\ud7ff€𝄞"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_can_break_out_of_its_event(text: str) -> None:
    made = event_hub.message("job", {"detail": text}, 3)
    assert made.count(b"\n") == 4
    assert b"\r" not in made
    assert event_listener.parse(made.removesuffix(b"\n\n")) == event_listener.Heard("job", {"detail": text}, 3)


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6), max_size=12),
    cuts=st.lists(st.integers(0, 11), max_size=4),
    job=st.sampled_from([None, 1, 2]),
)
def test_a_stream_interrupted_repeatedly_delivers_every_event_once(
    batches: list[list[tuple[int, bool]]], cuts: list[int], job: int | None
) -> None:
    """Events of deleted jobs leave gaps in the numbers."""
    one, number = awake(), 0
    written: list[Message] = []
    ear, heard = join(one, job), []
    for step, batch in enumerate(batches):
        news = []
        for owner, is_kept in batch:
            number += 1
            news += [told(number, owner)] if is_kept else []
        written += news
        one.tell(news, number, COUNTS)
        if step in cuts:
            heard += ear.numbers()
            one.end_all()
            since = heard[-1] if heard else 0
            ear = Ear()
            missed = one.missed(since, job)
            if missed:
                ear.write(event_hub.frame(missed))
            join(one, job, ear)
    heard += ear.numbers()
    assert heard == [each.number for each in written if job in (None, each.job)]
