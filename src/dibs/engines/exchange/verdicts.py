"""What became of a start on an engine: the table that joins the files of the start with what the engine says.

The files win. The link of `started.S` decides whether a start begins, the runner's record how it ended; the engine is
only asked whether a process may still be there. An engine that does not answer changes nothing, so it is no part of the
table. What the records alone decide is shared with the local engine (`attempts.settle`).

| files | engine | verdict |
|---|---|---|
| final record | whatever | as recorded; if nobody asked the job to stop and the engine did, `Lost` |
| tombstone | whatever | never started |
| claim | waits, runs | `Alive` |
| claim | ended or gone for less than the grace | `Alive`: its record may not be visible yet |
| claim | ended or gone | `Lost` |
| nothing | waits, runs | `Sent` |
| nothing | ended or gone for less than the grace | `Sent` |
| nothing | ended or gone | `Unclaimed`: the caller buries the start, and looks again if that fails |

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.engines.protocol import Seen
from dibs.runner import attempts
from dibs.runner.attempts import Alive, Ended, Lost, Records, Shim


@dataclass(frozen=True, slots=True)
class Sent:
    """The engine has the start, and no runner has begun it."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The engine has ended or lost the start before any runner began it."""

    seen: Seen


if TYPE_CHECKING:
    Verdict = attempts.Verdict | Sent | Unclaimed


def judge(found: Records | None, seen: Seen, *, absent_for_s: float, grace_s: float, is_stop_asked: bool) -> Verdict:
    """Return the verdict on a start.

    `absent_for_s`: for how long the engine has said that it ended or is gone. `is_stop_asked`: we ordered its end.
    """
    is_over = seen.phase in ("ended", "gone") and absent_for_s >= grace_s
    if found is None:
        return Unclaimed(seen) if is_over else Sent(seen)
    settled = attempts.settle(found)
    if isinstance(settled, Ended) and settled.final.stopped and not is_stop_asked:
        # A preemption, or an administrator: the job did nothing wrong, and a retry may help.
        return Lost(found.running, f"its cluster stopped it ({seen.why})" if seen.why else "its cluster stopped it")
    if settled is not None:
        return settled
    if is_over:
        return Lost(found.running, seen.why)
    assert isinstance(found.decision, Shim)
    return Alive(found.decision, found.running)
