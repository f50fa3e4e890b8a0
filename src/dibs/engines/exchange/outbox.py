"""The starts that an engine is to get: written, submitted, and found again after a crash around the submission."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, MutableMapping, Sequence

from dibs.engines.protocol import Engine, Seen, Unavailable
from dibs.engines.remote_starts import Accepted, Declined, News, Packer, StartId, Tracked
from dibs.system.crash_points import crash_point

#: Starts that are written and submitted in one go: at first few, so that the nodes have work soon, then more each time.
FIRST_AT_ONCE, MOST_AT_ONCE = 32, 1000
MORE_AT_ONCE = 8
#: Seconds until a start is offered again that the engine did not accept for now, or said nothing about.
OFFER_AGAIN_S, ASK_AGAIN_S = 15.0, 1.0
#: Of several jobs of one start, the one to follow is the first by these.
PHASES = ("running", "ended", "waiting", "gone")


class Outbox:
    """Sends the starts among those of one engine that it does not have yet; errors are `Unavailable`."""

    def __init__(
        self,
        engine: Engine,
        packer: Packer,
        tracked: MutableMapping[StartId, Tracked],
        listen: Callable[[Sequence[News]], None],
    ) -> None:
        self._engine = engine
        self._packer = packer
        self._tracked = tracked
        self._listen = listen
        #: When there is something to send, by the monotonic clock.
        self.due_at = math.inf

    def empty(self) -> None:
        """Send everything, and plan when to offer again what was not accepted."""
        self._find_doubtful()
        waiting = [own for own in self._tracked.values() if own.ref is None and own.outgoing is not None]
        count, again_s = FIRST_AT_ONCE, math.inf
        while waiting:
            # Recorded at once: the first ones may be over before the last ones are written.
            news, some_again_s = self._submit(waiting[:count])
            self._listen(news)
            again_s = min(again_s, some_again_s)
            waiting, count = waiting[count:], min(MOST_AT_ONCE, count * MORE_AT_ONCE)
        self.due_at = time.monotonic() + again_s

    def _find_doubtful(self) -> None:
        """Find starts that the engine may have without our knowledge, because its answer or a daemon was lost."""
        doubtful = {own.key: own for own in self._tracked.values() if own.is_doubtful}
        if not doubtful:
            return
        for key, refs in self._engine.find(doubtful).items():
            seen = self._engine.poll(refs)
            best, *others = sorted(refs, key=lambda ref: PHASES.index(seen[ref].phase if ref in seen else "gone"))
            if others:
                # The claim lets only one of them run.
                self._engine.stop(others, now=True)
            doubtful[key].ref = best
            self._listen([Accepted(doubtful[key].start_id, best)])
        for own in doubtful.values():
            own.is_doubtful = False

    def _submit(self, some: Sequence[Tracked]) -> tuple[list[News], float]:
        """Submit starts; return the news, and after how many seconds to offer again what was not accepted."""
        crash_point("remote:placed")
        starts = []
        for own in some:
            assert own.outgoing is not None
            try:
                starts.append(self._packer.write(own.outgoing))
            except OSError as error:
                # The shared folder: nothing about the job, and nothing about the engine.
                raise Unavailable(f"{own.folder} cannot be written: {error.strerror or error}") from error
        crash_point("remote:written")
        try:
            answers = self._engine.submit(starts)
        except Unavailable:
            # It may have received some of them.
            for own in some:
                own.is_doubtful = True
            raise
        crash_point("remote:submitted")
        news: list[News] = []
        again_s = math.inf
        for own in some:
            answer = answers.get(own.key)
            if isinstance(answer, str):
                own.ref, own.outgoing = answer, None
                news.append(Accepted(own.start_id, answer))
            elif answer is None:
                again_s = min(again_s, ASK_AGAIN_S)
            elif answer.is_final:
                self._tracked.pop(own.start_id, None)
                own.remove_spec()
                news.append(Declined(own.start_id, answer.why))
            else:
                own.is_doubtful = True
                again_s = min(again_s, OFFER_AGAIN_S)
                own.seen = Seen("waiting", f"not accepted yet: {answer.why}")
        return news, again_s
