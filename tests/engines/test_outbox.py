"""Starts whose submission got no answer that makes sense: they are looked for before they are submitted again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import pytest

from dibs.engines.exchange.outbox import Outbox
from dibs.engines.protocol import Engine, Needs, Refused, Seen, Start, Unavailable
from dibs.engines.remote_starts import Accepted, News, OutgoingJob, Packer, StartId, Tracked


class Cluster:
    """An engine that takes everything, and whose first answer is lost."""

    def __init__(self, answer: Refused | None) -> None:
        self.answer = answer
        self.queue: list[str] = []

    def submit(self, starts: Sequence[Start]) -> Mapping[str, str | Refused]:
        self.queue += [start.key for start in starts]
        if len(self.queue) > 2:
            return {start.key: str(place) for place, start in enumerate(starts, 1)}
        if self.answer is None:
            raise Unavailable("Socket timed out on send/recv operation")
        return {start.key: self.answer for start in starts}

    def find(self, keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        return {key: [str(self.queue.index(key) + 1)] for key in keys if key in self.queue}

    def poll(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        return dict.fromkeys(refs, Seen("waiting"))


class Specs:
    """Starts without files."""

    def write(self, outgoing: OutgoingJob) -> Start:
        key = str(outgoing)
        return Start(key, "/nonexistent", ("py",), Needs(), 0, "n", "/nonexistent/engine.1", 0)


@pytest.mark.parametrize("answer", [None, Refused("sbatch printed no job id but ''")])
def test_what_arrived_although_its_answer_was_lost_is_not_submitted_again(answer: Refused | None) -> None:
    cluster = Cluster(answer)
    ids = [StartId(number, 1, 1) for number in (1, 2)]
    tracked = {
        one: Tracked(one, f"key-{one.job}", "/nonexistent", cast("OutgoingJob", f"key-{one.job}")) for one in ids
    }
    news: list[News] = []
    outbox = Outbox(cast("Engine", cluster), cast("Packer", Specs()), tracked, news.extend)
    if answer is None:
        with pytest.raises(Unavailable):
            outbox.empty()
    else:
        outbox.empty()
    assert not [own.ref for own in tracked.values() if own.ref]
    outbox.empty()
    assert cluster.queue == ["key-1", "key-2"]
    assert news == [Accepted(ids[0], "1"), Accepted(ids[1], "2")]
