"""The client's event stream: messages from any cuts of the text, of a daemon, and at its end."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bench import Bench
from dibs.client.event_stream import EventStream, Message, parse
from dibs.errors import NoDaemon

TEXT = b': comment\n\nid: 4\nevent: hello\ndata: {"last":4}\n\nevent: counts\ndata: {"a":"\xc3\xa9"}\n\n'


@given(some.sets(some.integers(0, len(TEXT))))
def test_messages_are_found_wherever_the_text_is_cut(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    chunks = (TEXT[begin:end] for begin, end in itertools.pairwise(places))
    assert [*parse(chunks)] == [Message("hello", {"last": 4}), Message("counts", {"a": "é"})]


def test_a_daemon_tells_of_itself_its_jobs_and_its_end(bench: Bench) -> None:
    bench.start()
    messages = EventStream(bench.client).messages()
    assert next(messages).event == "hello"
    bench.add("true", gpus=0)
    assert any(message.event == "job" for message in messages)
    bench.kill()
    with pytest.raises(NoDaemon):
        for _ in messages:
            pass


def test_without_a_daemon_none_is_started(bench: Bench) -> None:
    with pytest.raises(NoDaemon, match="no daemon answers"):
        EventStream(bench.client)
    assert bench.pid() is None


def test_another_thread_can_end_it(bench: Bench) -> None:
    bench.start()
    stream = EventStream(bench.client)
    messages = stream.messages()
    assert next(messages).event == "hello"
    ends = threading.Thread(target=lambda: list(messages))
    ends.start()
    stream.close()
    ends.join(60)
    assert not ends.is_alive()
